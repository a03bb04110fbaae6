"""Large values in parts, written before the row that names them: a row never shows a value that is not whole.

Parts of one value share a random name, so a new value of a key leaves those of the old one alone until
they are not needed. All parts of a key are one partition; they are removed by time, so that those of later
values stay. What a writer that crashed has left goes when the key gets a large value again, or its namespace
is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ckpt.errors import ConfigError, shown_key
from ckpt_backends.cassandra.keys import Parts, stored_key
from ckpt_backends.cassandra.ledger import Names
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, bigint, integer
from ckpt_backends.cassandra.schema import Cql

INLINE_BYTES = 64 << 10
"""The longest value that stands in its row."""
_PART_BYTES = 512 << 10
_LARGEST_BYTES = 256 << 20
_PARTS_TO_A_PAGE = 4


class PartStore:
    """The parts of rows, or of cells."""

    def __init__(self, link: CassandraLink, names: Names, put: Cql, get: Cql, remove: Cql) -> None:
        self._link, self._names = link, names
        self._put, self._get, self._remove = put, get, remove

    def write(self, namespace: str, key: bytes, value: bytes, *, timestamp: int, ttl_s: int = 0) -> Parts:
        """Durably write a value in parts, and say where."""
        name, place = os.urandom(16), (*self._names.place(namespace), stored_key(key))
        starts = range(0, len(value), _PART_BYTES)
        self._link.done(
            PartitionRequest.one(
                self._put,
                integer(ttl_s),
                value[start : start + _PART_BYTES],
                *place,
                name,
                integer(number),
                level=self._link.rows,
                timestamp=timestamp,
            )
            for number, start in enumerate(starts)
        )
        return Parts(name, len(starts))

    def read(self, namespace: str, stored: bytes, parts: Parts) -> bytes | None:
        """The whole value; None if a part is missing."""
        place = (*self._names.place(namespace), stored)
        request = PartitionRequest(
            ((self._get, ((*place, parts.name),)),), self._link.rows, page=_PARTS_TO_A_PAGE
        )
        found: dict[int, bytes] = {}
        for page in self._link.pages([request])[0]:
            found.update(page)
        if found.keys() != set(range(parts.count)):
            return None
        return b"".join(found[number] for number in range(parts.count))

    def remove(self, namespace: str, up_to: Iterable[tuple[bytes, int]]) -> None:
        """Of each stored key, remove the parts that were written up to that time."""
        place = self._names.place(namespace)
        self._link.done(
            PartitionRequest.one(self._remove, bigint(at), *place, stored, level=self._link.rows)
            for stored, at in up_to
        )


def require_size(namespace: str, key: bytes, value: bytes) -> None:
    """Raise ConfigError for a value that is too large to be stored."""
    if len(value) > _LARGEST_BYTES:
        raise ConfigError(
            f"the value of key {shown_key(key)} of namespace {namespace!r} has {len(value)} bytes, and "
            f"cassandra takes at most {_LARGEST_BYTES >> 20} MiB; split the state over several keys"
        )
