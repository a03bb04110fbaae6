"""A disk whose n-th operation fails: a full disk, an I/O error, a write cut short, a sync that reports loss.

Run a scenario once to learn how many operations of each kind it makes, then once for each of them:

```python
for fault in each_fault(lambda disk: scenario(fresh_directory(), disk)):
    ...  # run the scenario on FaultyDisk(fault); it succeeds or raises a CkptError; then check the store
```
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ckpt.contract.disk import Disk

FAILURES: dict[str, tuple[str, ...]] = {
    "open": ("ENOSPC", "EIO", "EMFILE"),
    "pwrite": ("ENOSPC", "EIO", "short", "torn"),
    "pread": ("EIO",),
    "sync": ("EIO", "ENOSPC"),
    "sync_dir": ("EIO",),
    "allocate": ("ENOSPC",),
    "truncate": ("EIO",),
    "rename": ("EIO", "ENOSPC"),
    "unlink": ("EIO", "EROFS"),
    "mkdir": ("ENOSPC",),
    "rmdir": ("EIO",),
}
"""The ways in which each kind of operation may fail.

`short` writes half of the bytes and says so, which is no error; `torn` writes half and the rest fails.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` operation of a kind (from 1) fails in that way; if it `lasts`, so does every later one."""

    kind: str
    nth: int
    failure: str
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.kind} number {self.nth}{' and later' if self.lasts else ''}: {self.failure}"


class FaultyDisk(Disk):
    """The local filesystem, except for one fault; without one it only counts. Safe to use from threads.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     disk = FaultyDisk(Fault("sync", 1, "EIO"))
    ...     try:
    ...         disk.replace_file(root + "/a", [b"1"])
    ...     except OSError as error:
    ...         print(os.strerror(error.errno), os.listdir(root), disk.fired)
    Input/output error [] True
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.counts: Counter[str] = Counter()
        self.fired = False
        """Whether the fault has happened."""
        self._torn: set[int] = set()
        self._lock = threading.Lock()

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        self._step("open", path)
        return super().open(path, flags, mode)

    def close(self, fd: int) -> None:
        with self._lock:
            self._torn.discard(fd)
        super().close(fd)

    def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
        with self._lock:
            torn = fd in self._torn
        if torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        failure = self._step("pwrite")
        total = sum(map(len, views))
        if failure is None or total < 2:
            return super().pwritev(fd, views, offset)
        if failure == "torn":
            with self._lock:
                self._torn.add(fd)
        return super().pwritev(fd, [b"".join(views)[: total // 2]], offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._step("pread")
        return super().pread(fd, length, offset)

    def sync(self, fd: int) -> None:
        self._step("sync")
        super().sync(fd)

    def sync_dir(self, path: str) -> None:
        self._step("sync_dir", path)
        super().sync_dir(path)

    def allocate(self, fd: int, length: int) -> None:
        self._step("allocate")
        super().allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        self._step("truncate")
        super().truncate(fd, length)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._step("mkdir", path)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._step("rmdir", path)
        super().rmdir(path)

    def _step(self, kind: str, path: str | None = None) -> str | None:
        """Count one operation and fail if it is its turn; the way in which a write is cut short, if so."""
        with self._lock:
            self.counts[kind] += 1
            fault = self.fault
            if fault is None or fault.kind != kind or self.counts[kind] < fault.nth:
                return None
            if self.counts[kind] > fault.nth and not fault.lasts:
                return None
            self.fired = True
        if fault.failure in ("short", "torn"):
            return fault.failure
        code: int = getattr(errno, fault.failure)
        raise OSError(code, os.strerror(code), path)


def each_fault(
    run: Callable[[FaultyDisk], object], *, kinds: Sequence[str] = tuple(FAILURES)
) -> Iterator[Fault]:
    """Every (operation, failure) of a scenario, which `run` makes once on a disk that only counts."""
    counting = FaultyDisk()
    run(counting)
    for kind in kinds:
        for failure in FAILURES[kind]:
            for nth in range(1, counting.counts[kind] + 1):
                yield Fault(kind, nth, failure)
        if counting.counts[kind] and kind in ("pwrite", "open", "sync"):
            yield from (
                Fault(kind, nth, FAILURES[kind][0], lasts=True) for nth in range(1, counting.counts[kind] + 1)
            )
