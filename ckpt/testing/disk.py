"""A disk that remembers every change made through it, so that crashes can be replayed at any instant.

`RecordingDisk` performs each operation and records what it changed in terms of objects: files and directories
have numbers of their own, so a recorded write still means the same file after a rename. `mark` notes an event
of the test between two operations, for example that a write was acknowledged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ckpt.contract.disk import Disk

Entry = tuple[int, str, int | None]
"""(directory, name, object): the name now means the object, or nothing."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of a disk, a sync, or a mark of the test."""

    kind: str
    path: str = ""
    object: int = 0
    """The file that a write, truncate, allocate or sync is about; the directory of a sync_dir."""
    entries: tuple[Entry, ...] = ()
    """What a create, rename, unlink, mkdir or rmdir does to names; the last one is the target's."""
    offset: int = 0
    data: bytes = b""
    length: int = 0

    def __str__(self) -> str:
        detail = f" {len(self.data)} bytes at {self.offset}" if self.kind == "write" else ""
        return f"{self.kind} {self.path}{detail}"


@dataclass(slots=True)
class Tree:
    """The files and directories below one root, by object number; the root is number 0."""

    files: dict[int, bytes]
    directories: dict[int, dict[str, int]]

    def copy(self) -> Tree:
        return Tree(dict(self.files), {number: dict(names) for number, names in self.directories.items()})


class RecordingDisk(Disk):
    """The local filesystem, with every change below `root` recorded in order; safe to use from threads.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     disk = RecordingDisk(root)
    ...     disk.replace_file(root + "/a", [b"1"])
    ...     [operation.kind for operation in disk.operations]
    ['create', 'write', 'sync', 'rename', 'sync_dir']
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(root)
        self.operations: list[Operation] = []
        self._lock = threading.RLock()
        self._files_by_fd: dict[int, int] = {}
        self._last_object = 0
        self._now = Tree({}, {0: {}})
        self._adopt(self.root, 0)
        self.start = self._now.copy()
        """What was there when recording began; taken to be durable."""

    def mark(self, label: str) -> None:
        """Note an event of the test between two operations."""
        with self._lock:
            self.operations.append(Operation("mark", label))

    # -- files -----------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        with self._lock:
            place = self._place(path)
            existed = os.path.lexists(path)
            fd = super().open(path, flags, mode)
            if place is None or os.path.isdir(path):
                return fd
            directory, name = place
            file = self._now.directories[directory].get(name)
            if file is None or not existed:
                file = self._new_object()
                self._now.files[file] = b""
                self._record_entries("create", path, (directory, name, file))
            if existed and flags & os.O_TRUNC:
                self._record(Operation("truncate", path, file, length=0))
            self._files_by_fd[fd] = file
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._files_by_fd.pop(fd, None)
            super().close(fd)

    def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
        with self._lock:
            done = super().pwritev(fd, views, offset)
            if (file := self._files_by_fd.get(fd)) is not None:
                data = b"".join(views)[:done]
                self._record(Operation("write", f"file {file}", file, offset=offset, data=data))
            return done

    def sync(self, fd: int) -> None:
        with self._lock:
            super().sync(fd)
            self._record_file("sync", fd)

    def allocate(self, fd: int, length: int) -> None:
        with self._lock:
            super().allocate(fd, length)
            self._record_file("allocate", fd, length)

    def truncate(self, fd: int, length: int) -> None:
        with self._lock:
            super().truncate(fd, length)
            self._record_file("truncate", fd, length)

    # -- names -----------------------------------------------------------------------------------

    def sync_dir(self, path: str) -> None:
        with self._lock:
            super().sync_dir(path)
            if (directory := self._find(path)) is not None:
                self._record(Operation("sync_dir", path, directory))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            super().rename(source, target)
            old, new = self._place(source), self._place(target)
            if old is not None and new is not None:
                moved = self._now.directories[old[0]][old[1]]
                self._record_entries("rename", f"{source} -> {target}", (*old, None), (*new, moved))

    def unlink(self, path: str) -> None:
        with self._lock:
            super().unlink(path)
            self._forget("unlink", path)

    def mkdir(self, path: str) -> None:
        with self._lock:
            super().mkdir(path)
            if (place := self._place(path)) is not None:
                directory = self._new_object()
                self._now.directories[directory] = {}
                self._record_entries("mkdir", path, (*place, directory))

    def rmdir(self, path: str) -> None:
        with self._lock:
            super().rmdir(path)
            self._forget("rmdir", path)

    # -- bookkeeping -----------------------------------------------------------------------------

    def _adopt(self, path: str, directory: int) -> None:
        with os.scandir(path) as found:
            for entry in found:
                number = self._new_object()
                self._now.directories[directory][entry.name] = number
                if entry.is_dir(follow_symlinks=False):
                    self._now.directories[number] = {}
                    self._adopt(entry.path, number)
                else:
                    with open(entry.path, "rb") as file:
                        self._now.files[number] = file.read()

    def _new_object(self) -> int:
        self._last_object += 1
        return self._last_object

    def _find(self, path: str) -> int | None:
        """The number of the directory at that path; None outside of the root."""
        path = os.path.realpath(path)
        if path == self.root:
            return 0
        if not path.startswith(self.root + os.sep):
            return None
        number = 0
        for name in os.path.relpath(path, self.root).split(os.sep):
            number = self._now.directories[number][name]
        return number

    def _place(self, path: str) -> tuple[int, str] | None:
        directory = self._find(os.path.dirname(path) or ".")
        return None if directory is None else (directory, os.path.basename(path))

    def _forget(self, kind: str, path: str) -> None:
        if (place := self._place(path)) is not None:
            self._record_entries(kind, path, (*place, None))

    def _record_file(self, kind: str, fd: int, length: int = 0) -> None:
        if (file := self._files_by_fd.get(fd)) is not None:
            self._record(Operation(kind, f"file {file}", file, length=length))

    def _record_entries(self, kind: str, path: str, *entries: Entry) -> None:
        self._record(Operation(kind, path, entries=entries))
        for directory, name, target in entries:
            if target is None:
                self._now.directories[directory].pop(name, None)
            else:
                self._now.directories[directory][name] = target

    def _record(self, operation: Operation) -> None:
        self.operations.append(operation)
