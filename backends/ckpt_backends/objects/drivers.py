"""One request to an object store, for each kind of fsspec filesystem: an object appears whole or not at all.

A driver translates; it never tries again and never decides. What it raises:

- `FileNotFoundError`: there is no such object.
- `FileExistsError`: a conditional put was refused because there is one.
- anything else: the request failed, and what it was to do may be done or not.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fsspec.asyn import AsyncFileSystem

from ckpt.contract.disk import Disk
from ckpt_backends.disk_errors import lasting_advice

CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols whose filesystems pass a condition on to the server with `pipe_file(mode="create")`."""
LOCAL = frozenset({"file", "local"})
S3 = frozenset({"s3", "s3a"})

LEAST_BYTES_PER_S = 1 << 20
"""A transfer that is slower than this may be given up."""
LARGEST_BYTES = 1 << 31
_LEFTOVER_AGE_S = 900.0
_ASIDE = ".tmp-"
_MEMORY_LOCK = threading.Lock()


class ObjectDriver(Protocol):
    """What a store can be asked, from any thread. Paths are those of the filesystem."""

    conditional: bool | None
    """Whether `put(only_if_absent=True)` is atomic; None if it should be, and only the store can tell."""
    names_refusals: bool
    """A refused conditional put is always a FileExistsError, and nothing else is."""
    local_folder: str | None
    """Where the objects are files of this host, their folder."""

    def put(self, path: str, data: bytes, *, only_if_absent: bool) -> None:
        """Durably create or replace an object."""

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """An object, or the bytes from `start` to before `end` as far as it has them."""

    def head(self, path: str) -> None:
        """Return if the object exists."""

    def list(self, folder: str) -> dict[str, int]:
        """Name and size of every object in a folder; one that does not exist is empty."""

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are gone already are no error."""

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        """Remove what interrupted puts left beside their objects."""

    def lasting_advice(self, error: BaseException | None) -> str | None:
        """What to do about a failure that trying again does not mend; None for one that may pass."""

    def wrong_address(self, error: BaseException) -> str | None:
        """What is wrong with the address, if that is why a request failed, and what to do."""

    def close(self) -> None:
        """Free connections; idempotent."""


def seconds_for(timeout_s: float, size_bytes: int) -> float:
    """How long a request that moves so many bytes may take.

    Examples
    --------
    >>> seconds_for(10, 8 << 20)
    18.0
    """
    return timeout_s + size_bytes / LEAST_BYTES_PER_S


class LocalDriver:
    """Files: written aside, synced, then linked, so that a name is taken once and for a whole object."""

    conditional: bool | None = True
    names_refusals = True

    def __init__(self, folder: str, disk: Disk | None = None) -> None:
        self.local_folder: str | None = folder
        self._disk = disk or Disk()

    def put(self, path: str, data: bytes, *, only_if_absent: bool) -> None:
        del only_if_absent  # a link never replaces
        folder = os.path.dirname(path)
        self._disk.make_dirs(folder)
        aside = f"{path}{_ASIDE}{os.getpid()}-{secrets.token_hex(4)}"
        fd = self._disk.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                self._disk.pwrite(fd, [data], 0)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            os.link(aside, path)
            self._disk.sync_dir(folder)
        finally:
            with contextlib.suppress(OSError):
                self._disk.unlink(aside)

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)

    def head(self, path: str) -> None:
        os.stat(path)

    def list(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        # Unlike fsspec's listing, undisturbed by files that vanish meanwhile.
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if _ASIDE not in entry.name and entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        for folder in folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    # A young one may belong to a creation that is under way, on this host or another.
                    if _ASIDE in entry.name and entry.stat().st_mtime < time.time() - _LEFTOVER_AGE_S:
                        self._disk.unlink(entry.path)

    def lasting_advice(self, error: BaseException | None) -> str | None:
        return lasting_advice(error) if isinstance(error, OSError) else None

    def wrong_address(self, error: BaseException) -> str | None:
        in_the_way = isinstance(error, NotADirectoryError)
        return "it cannot be a folder: a file is in the way; choose another path" if in_the_way else None

    def close(self) -> None:
        """Nothing is held."""


class FilesystemDriver:
    """Any fsspec filesystem, by the methods that all of them have."""

    names_refusals = False
    local_folder: str | None = None

    def __init__(self, filesystem: Any, protocol: str, *, timeout_s: float) -> None:
        self._fs = filesystem
        self.conditional: bool | None = None if protocol in CONDITIONAL else protocol == "memory"
        self._in_memory = protocol == "memory"
        self._timeout_s = timeout_s
        # Asynchronous filesystems of servers take a limit with each call; others have none to give.
        self._has_limits = protocol in CONDITIONAL and isinstance(filesystem, AsyncFileSystem)

    def put(self, path: str, data: bytes, *, only_if_absent: bool) -> None:
        if self._in_memory:
            with _MEMORY_LOCK:
                if only_if_absent and self._fs.exists(path):
                    raise FileExistsError(path)
                self._fs.pipe_file(path, data)
        else:
            condition = {"mode": "create"} if only_if_absent else {}
            self._fs.pipe_file(path, data, **condition, **self._limit(len(data)))

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        part = {} if end is None and not start else {"start": start, "end": end}
        return bytes(self._fs.cat_file(path, **part, **self._limit(LARGEST_BYTES)))

    def head(self, path: str) -> None:
        # Not `exists`: filesystems take any error for a no there.
        self._fs.info(path, **self._limit())

    def list(self, folder: str) -> dict[str, int]:
        self._fs.invalidate_cache(folder)
        try:
            rows = self._fs.ls(folder, detail=True, **self._limit())
        except FileNotFoundError:
            return {}
        files = (row for row in rows if row["type"] == "file")
        return {row["name"].rsplit("/", 1)[-1]: int(row["size"] or 0) for row in files}

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(path, **self._limit())

    def remove_leftovers(self, folders: Iterable[str]) -> None:
        """What an interrupted put leaves, if anything, is the server's affair."""

    def lasting_advice(self, error: BaseException | None) -> str | None:
        return "check the credentials and try again" if isinstance(error, PermissionError) else None

    def wrong_address(self, error: BaseException) -> str | None:
        del error
        return None  # filesystems have no common words for it

    def close(self) -> None:
        """The filesystem belongs to the code that made it."""

    def _limit(self, size_bytes: int = 0) -> dict[str, float]:
        return {"timeout": seconds_for(self._timeout_s, size_bytes)} if self._has_limits else {}


def driver_of(
    filesystem: Any,
    protocol: str,
    root: str,
    *,
    timeout_s: float,
    owns_filesystem: bool = False,
    disk: Disk | None = None,
) -> ObjectDriver:
    """The driver for a filesystem."""
    if protocol in LOCAL:
        return LocalDriver(root, disk)
    if protocol in S3 and hasattr(filesystem, "call_s3"):
        from ckpt_backends.objects.s3 import S3Driver

        return S3Driver(filesystem, root, timeout_s=timeout_s, owns_filesystem=owns_filesystem)
    return FilesystemDriver(filesystem, protocol, timeout_s=timeout_s)
