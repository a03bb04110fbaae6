"""What a query's checkpoint says: which query it is, and which commits of its stores Spark counts on.

Read as files, without Spark: `metadata` holds the id of the query; `commits/<batch>` of a checkpoint in
format 2 holds, for each operator and partition, the commit ids that the batch after it builds on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from ckpt.errors import ConfigError, CorruptRecordError
from ckpt.spark.catalogue import StoreName

_JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
"""The order in which Spark notes down the commits of a join that keeps four stores."""


class Checkpoint:
    """One checkpoint location, local or on any file system that fsspec knows; nothing in it is changed."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._list, self._read = _access(self.path)
        metadata = self._document("metadata", self._read("metadata"))
        if not isinstance(metadata.get("id"), str):
            raise CorruptRecordError(f"{self.path}/metadata does not say which query it belongs to")
        self.query: str = metadata["id"]

    def last_batch(self) -> int:
        """The last batch that is committed; ConfigError if there is none yet."""
        batches = [int(name) for name in self._list("commits") if name.isdecimal()]
        if not batches:
            raise ConfigError(f"checkpoint {self.path} has no committed batch yet")
        return max(batches)

    def commit_ids(self, batch: int) -> CommitIds:
        """The commits that the batch left behind."""
        name = f"commits/{batch}"
        # The first line is the version of the format; older ones have no ids.
        _, _, body = self._read(name).partition("\n")
        ids = self._document(name, body.partition("\n")[0] or "{}").get("stateUniqueIds") or {}
        return CommitIds({int(operator): partitions for operator, partitions in ids.items()})

    def _document(self, name: str, text: str) -> dict[str, Any]:
        try:
            return dict(json.loads(text))
        except ValueError:
            raise CorruptRecordError(f"{self.path}/{name} is not what Spark writes there") from None


class CommitIds:
    """The commits of all stores of a query after one batch; none with checkpoint format 1."""

    def __init__(self, ids: dict[int, list[list[str]]]) -> None:
        self._ids = ids

    def has(self, name: StoreName) -> bool:
        """Whether the store still counts: its operator may have had more partitions before."""
        return name.operator not in self._ids or name.partition < len(self._ids[name.operator])

    def of(self, name: StoreName) -> str | None:
        """The commit of one store, or None if the last one at its version counts."""
        partitions = self._ids.get(name.operator, [])
        if name.partition >= len(partitions):
            return None
        listed = partitions[name.partition]
        several = len(listed) > 1 and name.store in _JOIN_STORES
        return listed[_JOIN_STORES.index(name.store) if several else 0]


def _access(path: str) -> tuple[Callable[[str], list[str]], Callable[[str], str]]:
    """How to list a folder of the checkpoint, and how to read a file of it."""
    local = path.removeprefix("file://").removeprefix("file:")
    if "://" not in local:

        def list_local(folder: str) -> list[str]:
            there = os.path.join(local, folder)
            return os.listdir(there) if os.path.isdir(there) else []

        def read_local(name: str) -> str:
            try:
                with open(os.path.join(local, name), encoding="utf-8") as file:
                    return file.read()
            except FileNotFoundError:
                raise _missing(path, name) from None

        return list_local, read_local

    import fsspec

    # Hadoop's names of S3 are not fsspec's.
    filesystem, root = fsspec.core.url_to_fs(path.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1))

    def list_remote(folder: str) -> list[str]:
        there = f"{root}/{folder}"
        if not filesystem.exists(there):
            return []
        return [str(entry).rsplit("/", 1)[-1] for entry in filesystem.ls(there, detail=False)]

    def read_remote(name: str) -> str:
        try:
            return str(filesystem.cat_file(f"{root}/{name}").decode())
        except FileNotFoundError:
            raise _missing(path, name) from None

    return list_remote, read_remote


def _missing(path: str, name: str) -> ConfigError:
    return ConfigError(f"{path} is no checkpoint of a query: {name} is missing; check the path")
