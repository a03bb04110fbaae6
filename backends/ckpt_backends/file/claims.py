"""The owner of a namespace: checked and changed under a lock that holds between processes.

Each namespace has a lock file, which is never removed, so that all processes lock the same one, and an owner
file with the epoch, which outlives a drop of the namespace. Writers of keys share the lock; a claim, commit,
truncation or drop has it alone. The kernel frees the lock of a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator

from ckpt.contract.disk import Disk
from ckpt.errors import FencedError
from ckpt.types import Epoch
from ckpt_backends.file.names import file_name
from ckpt_backends.file.records import Aside, encode_note, read_note


class Claims:
    """The claims of one handle, named by its token, on the namespaces of one directory."""

    def __init__(self, disk: Disk, directory: str, address: str, token: str, aside: Aside) -> None:
        self._disk = disk
        self._directory = directory
        self._address = address
        self._token = token
        self._aside = aside
        self._mine: dict[str, int] = {}
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def locked(self, namespace: str, *, alone: bool) -> Iterator[None]:
        """Hold the namespace's lock; `flock` belongs to the open file, so it excludes threads as well."""
        fd = self._disk.open(self._path(namespace, "lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            self._disk.close(fd)

    def require_owner(self, namespace: str) -> None:
        """Raise FencedError if another handle owns the namespace, or has taken it from this one."""
        epoch, owner = self._read(namespace)
        with self._guard:
            mine = self._mine.get(namespace)
        # A handle that lost its claim stays fenced after the new owner has gone: it may hold old state.
        fenced = owner is not None if mine is None else (epoch, owner) != (mine, self._token)
        if fenced:
            raise FencedError(
                f"namespace {namespace!r} in {self._address} was claimed by another owner (epoch {epoch}); "
                "stop writing, or claim() it to take it over"
            )

    def claim(self, namespace: str) -> Epoch:
        """Take the namespace over; the caller holds the lock alone."""
        epoch = self._read(namespace)[0] + 1
        self._write(namespace, epoch, self._token)
        with self._guard:
            self._mine[namespace] = epoch
        return Epoch(epoch)

    def release(self, namespace: str) -> None:
        """Give it up if it is still this handle's; the caller holds the lock alone."""
        with self._guard:
            mine = self._mine.pop(namespace, None)
        epoch, owner = self._read(namespace)
        if mine == epoch and owner == self._token:
            self._write(namespace, epoch, None)

    def held(self) -> list[str]:
        """The namespaces that this handle has claimed and not released."""
        with self._guard:
            return list(self._mine)

    def forget_damage(self, owner_file: str) -> None:
        """Replace an owner file that was quarantined, with an epoch above any that was counted from one."""
        note = encode_note({"epoch": int(time.time()), "owner": None})
        self._aside.replace(os.path.join(self._directory, owner_file), [note], durable=True)

    def _read(self, namespace: str) -> tuple[int, str | None]:
        note = read_note(self._disk, self._path(namespace, "owner"), namespace)
        return (note["epoch"], note["owner"]) if note else (0, None)

    def _write(self, namespace: str, epoch: int, owner: str | None) -> None:
        note = encode_note({"epoch": epoch, "owner": owner})
        self._aside.replace(self._path(namespace, "owner"), [note], durable=True)

    def _path(self, namespace: str, kind: str) -> str:
        return os.path.join(self._directory, f"{file_name(namespace.encode())}.{kind}")
