"""The system calls that make bytes durable, behind one small seam.

Every embedded backend reaches the filesystem through a `Disk`, so that a test can record each write, sync,
rename and truncate, or make any of them fail, without touching the code under test
(`ckpt.testing.RecordingDisk`, `ckpt.testing.FaultyDisk`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

_IOV_MAX = 1024


class Disk:
    """The local filesystem. Every method either does all of its work or raises OSError."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open a file and return its descriptor. A new file is durable only after `sync_dir`."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor; this syncs nothing."""
        os.close(fd)

    def pwrite(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        """Write all buffers at the offset, continuing after short writes; the number of bytes written."""
        total = sum(map(len, buffers))
        left = buffers
        done = self.pwritev(fd, left[:_IOV_MAX], offset)
        while done < total:
            left = _after(left, done - (total - sum(map(len, left))))
            done += self.pwritev(fd, left[:_IOV_MAX], offset + done)
        return total

    def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
        """One system call, which may write less than asked. Callers use `pwrite`."""
        return os.pwritev(fd, views, offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes at the offset; fewer only at the end of the file."""
        data = os.pread(fd, length, offset)
        while len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
            data += more
        return data

    def sync(self, fd: int) -> None:
        """Return when the file's data, and the size needed to read it, are on stable storage."""
        os.fdatasync(fd)

    def sync_dir(self, path: str) -> None:
        """Return when the directory's entries (files created, renamed, removed) are on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def allocate(self, fd: int, length: int) -> None:
        """Reserve space so that later writes below `length` need no allocation; extends the file."""
        os.posix_fallocate(fd, 0, length)

    def truncate(self, fd: int, length: int) -> None:
        """Cut or extend the file."""
        os.ftruncate(fd, length)

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`; durable only after `sync_dir`."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; durable only after `sync_dir`."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Create a directory; durable only after `sync_dir` of its parent."""
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    # -- built from the above --------------------------------------------------------------------

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents durably; existing ones are no error."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path) or "."
        self.make_dirs(parent)
        try:
            self.mkdir(path)
        except FileExistsError:
            return
        self.sync_dir(parent)

    def replace_file(self, path: str, buffers: Sequence[bytes | memoryview], *, durable: bool = True) -> None:
        """Atomically replace a whole file: write aside, sync, rename, sync the directory."""
        aside = f"{path}.tmp-{os.getpid()}-{id(buffers):x}"
        fd = self.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            try:
                self.pwrite(fd, buffers, 0)
                if durable:
                    self.sync(fd)
            finally:
                self.close(fd)
            self.rename(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(aside)
            raise
        if durable:
            self.sync_dir(os.path.dirname(path) or ".")


def _after(buffers: Sequence[bytes | memoryview], skip: int) -> list[bytes | memoryview]:
    """What remains of the buffers after their first `skip` bytes."""
    remaining: list[bytes | memoryview] = []
    for buffer in buffers:
        if skip >= len(buffer):
            skip -= len(buffer)
        else:
            remaining.append(memoryview(buffer)[skip:])
            skip = 0
    return remaining
