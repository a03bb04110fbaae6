"""Segments and index of a log in a local directory, with one writer and many readers.

```
LOCK                 held by the writer (flock)
SYNC-FAILED          exists after a failed fsync until the next writer has written the tail again
MANIFEST             which index files hold what; replaced atomically
segments/N.seg       preallocated; a retired one becomes spare-… and then a later segment
index/run-….idx      immutable, mapped
quarantine/…         what `repair` took out of service
```

A retired segment's file is reused only when nobody can still read it: readers in this process hold the
`Segment` object, readers in other processes hold a shared lock on the file. If one of those remains, the file
is unlinked instead, which leaves their mapping intact.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import threading
import time
import weakref
from collections import OrderedDict
from typing import ClassVar
from urllib.parse import quote

from ckpt.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.log.frame import MAGIC as FRAME_MAGIC
from ckpt_backends.log.frame import BadFrameError
from ckpt_backends.log.runs import MAX_SEGMENTS
from ckpt_backends.log.segment import HEADER_BYTES, Segment, SegmentHeader, UnbegunSegmentError
from ckpt_backends.log.storage import Buffers, SegmentGoneError

_DATA_START = 4096
_MAX_MAPPED = 256
_MAX_UNSYNCED = 16
_MAX_SPARES = 4
_COARSE_NS = 1_000_000_000
_ZEROS = memoryview(bytes(1 << 20))
_SMALL_WRITE = 32 << 10
_ZERO_AHEAD = 256 << 10
_SEGMENT_NAME = re.compile(r"(\d{12})\.seg")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


class LocalStorage:
    """A directory on a local or POSIX-like shared filesystem."""

    data_start = _DATA_START
    tears = True
    unindexed_segments = small_segments = MAX_SEGMENTS
    small_bytes = 0

    def __init__(self, path: str, *, segment_bytes: int, read_only: bool, disk: Disk | None = None) -> None:
        self.path = os.path.abspath(path)
        self.address = f"log://{quote(self.path)}"
        self.segment_bytes = segment_bytes
        self.read_only = read_only
        self._disk = disk or Disk()
        self._segments_dir = os.path.join(self.path, "segments")
        self._index_dir = os.path.join(self.path, "index")
        self._failed_sync_path = os.path.join(self.path, "SYNC-FAILED")
        self._mapped: OrderedDict[int, Segment] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        """Every segment that somebody still reads: one object each, so that its end means the end of all."""
        self._mutex = threading.Lock()
        self._one_sync = threading.Lock()
        self._unsynced: dict[int, int] = {}
        """Segment number → descriptor of every segment that holds bytes which no sync has covered yet."""
        self._syncing: dict[int, int] = {}
        self._failed_sync: OSError | None = None
        self._fd: int | None = None
        self._number = 0
        self._size = 0
        self._touched = 0
        """Up to this offset the blocks of the current segment were written, now or in an earlier life."""
        self._spares: list[str] = []
        self._listed: list[int] | None = None
        self._listed_at = (0, 0)
        """Inode and time of change of the folder when it was listed and had been at rest for a while."""
        self._closed = False
        self._lock_fd: int | None = None
        if not read_only:
            self._open_for_writing()

    def _open_for_writing(self) -> None:
        self._require_own_folder()
        with self._errors("create", self.path):
            for folder in (self.path, self._segments_dir, self._index_dir):
                self._disk.make_dirs(folder)
        self._lock_fd = self._lock()
        try:
            with self._errors("clean up", self.path):
                for name in os.listdir(self._segments_dir):
                    if name.startswith("spare-"):
                        self._spares.append(os.path.join(self._segments_dir, name))
                for folder in (self.path, self._segments_dir, self._index_dir):
                    for name in os.listdir(folder):
                        if ".tmp-" in name:
                            self._disk.unlink(os.path.join(folder, name))
        except BaseException:
            os.close(self._lock_fd)
            raise

    def _require_own_folder(self) -> None:
        """A folder that holds something else is not made a log by a slip in an address."""
        with self._errors("read", self.path):
            names = set(os.listdir(self.path)) if os.path.isdir(self.path) else set()
        if names and not names & {"segments", "LOCK", "MANIFEST"}:
            raise ConfigError(f"{self.path} holds other files and no log; choose an empty or new folder")

    def _lock(self) -> int:
        path = os.path.join(self.path, "LOCK")
        with self._errors("lock", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(fd, 64).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise BackendUnavailableError(f"{path} cannot be locked: {error.strerror}") from error
            raise BackendUnavailableError(
                f"another writer (process {owner}) has {self.address} open; a log has one writer: "
                "close that one, or read with ?mode=read"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    # -- segments --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        try:
            names = os.listdir(self._segments_dir)
        except FileNotFoundError:
            if self.read_only:
                raise ConfigError(f"there is no log at {self.path}; check the address") from None
            raise
        return sorted(int(m[1]) for name in names if (m := _SEGMENT_NAME.fullmatch(name)))

    def header(self, number: int) -> SegmentHeader:
        with self._errors("read", self._segment_path(number)):
            try:
                fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
            except FileNotFoundError:
                raise self._gone(number) from None
            try:
                self._forget_if_shorter(number, os.fstat(fd).st_size)
                return SegmentHeader.decode(self._disk.pread(fd, HEADER_BYTES, 0))
            except BadFrameError as error:
                if self._disk.pread(fd, len(FRAME_MAGIC), _DATA_START) != FRAME_MAGIC:
                    raise UnbegunSegmentError(str(error)) from None
                raise
            finally:
                self._disk.close(fd)

    def segment(self, number: int, seed: int) -> Segment:
        with self._mutex:
            segment = self._mapped.get(number)
            if segment is not None:
                self._mapped.move_to_end(number)
                return segment
            segment = self._alive.get(number)
            if segment is None or not segment.retired:
                segment = segment or self._map(number, seed)
                self._remember(segment)
            return segment

    def _remember(self, segment: Segment) -> None:
        self._mapped[segment.number] = self._alive[segment.number] = segment
        while len(self._mapped) > _MAX_MAPPED:
            self._mapped.popitem(last=False)

    def _map(self, number: int, seed: int) -> Segment:
        path = self._segment_path(number)
        try:
            fd = self._disk.open(path, os.O_RDONLY)
        except OSError as error:
            if error.errno in _GONE:
                raise self._gone(number) from None
            raise BackendUnavailableError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            # The lock keeps the writer from reusing or cutting the file under this mapping. It lives as long
            # as the mapping, because mmap keeps a duplicate of the descriptor.
            if self.read_only:
                fcntl.flock(fd, fcntl.LOCK_SH)
                if os.stat(path).st_ino != os.fstat(fd).st_ino:
                    raise self._gone(number)
            # A crash may leave a file without any bytes, which cannot be mapped.
            mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ) if os.fstat(fd).st_size else b""
        except FileNotFoundError:
            raise self._gone(number) from None
        except (OSError, ValueError) as error:
            raise BackendUnavailableError(f"{path} cannot be mapped: {error}") from error
        finally:
            self._disk.close(fd)
        return Segment(number, seed, _DATA_START, memoryview(mapped))

    def _gone(self, number: int) -> SegmentGoneError:
        return SegmentGoneError(
            f"{self._segment_path(number)} is gone although the log needs it; restore it, or run: "
            f"ckpt repair {self.address}"
        )

    def _forget_if_shorter(self, number: int, size: int) -> None:
        """Map a segment anew that its writer has made longer since."""
        with self._mutex:
            segment = self._mapped.get(number)
            if self.read_only and segment is not None and len(segment.buffer) < size:
                del self._mapped[number]
                self._alive.pop(number, None)

    def begin(self, header: SegmentHeader, seed: int, at_least: int) -> Segment:
        self._sync_backlog()
        path = self._segment_path(header.number)
        size = max(self.segment_bytes, -(-(at_least + _DATA_START) // 4096) * 4096)
        with self._errors("create", path):
            fd, recycled = self._make_file(path, size)
            try:
                self._disk.pwrite(fd, [header.encode()], 0)
                # A recycled file is longer than its header says anything about; what it held before cannot
                # be taken for frames of this segment, because their checksums have another seed.
                self._disk.sync(fd)
                self._disk.sync_dir(self._segments_dir)
                segment = self._map(header.number, seed)
            except BaseException:
                self._disk.close(fd)
                raise
        with self._mutex:
            if self._fd is not None and not self._is_waiting(self._number):
                self._disk.close(self._fd)
            self._fd, self._number = fd, header.number
            self._size = len(segment.buffer)
            self._touched = self._size if recycled else _DATA_START
            self._remember(segment)
        return segment

    def _sync_backlog(self) -> None:
        """Sync segments that are full, so that their descriptors can go, if nobody has asked for that."""
        if len(self._unsynced) < _MAX_UNSYNCED:
            return
        with self._one_sync:
            for number, fd in sorted(self._unsynced.items()):
                if number != self._number:
                    self._sync_one(number, fd)
                    with self._mutex:
                        del self._unsynced[number]
                    self._disk.close(fd)

    def _sync_one(self, number: int, fd: int) -> None:
        with self._errors("sync", self._segment_path(number)):
            try:
                if self._failed_sync is not None:
                    raise self._failed_sync
                self._disk.sync(fd)
            except OSError as error:
                self._note_failed_sync(error)
                raise

    def _is_waiting(self, number: int) -> bool:
        """Whether the segment's descriptor is in the care of the next sync, or of the one that runs."""
        return number in self._unsynced or number in self._syncing

    def prepare(self) -> None:
        if self._spares or self._closed:
            return
        aside = os.path.join(self._segments_dir, f"new.tmp-{os.getpid()}")
        spare = os.path.join(self._segments_dir, f"spare-{secrets.token_hex(6)}")
        try:
            fd = self._disk.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                # Zeros are written, not just reserved: syncing a write into blocks that were never written
                # costs a journal commit each time (measured: 1.2 to 1.9 times as long).
                self._disk.allocate(fd, self.segment_bytes)
                for at in range(0, self.segment_bytes, len(_ZEROS)):
                    self._disk.pwrite(fd, [_ZEROS[: self.segment_bytes - at]], at)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            self._disk.rename(aside, spare)
            self._spares.append(spare)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.unlink(aside)

    def _make_file(self, path: str, size: int) -> tuple[int, bool]:
        """A file of that size under that name, and whether all of its blocks were written before."""
        while size == self.segment_bytes and self._spares:
            spare = self._spares.pop()
            try:
                fd = self._disk.open(spare, os.O_RDWR)
            except FileNotFoundError:
                continue
            if os.fstat(fd).st_size == size:
                self._disk.rename(spare, path)
                return fd, True
            self._disk.close(fd)
            self._disk.unlink(spare)
        fd = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._disk.allocate(fd, size)
        except BaseException:
            self._disk.close(fd)
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        return fd, False

    def capacity(self) -> int:
        return self._size

    def write(self, buffers: Buffers, offset: int) -> None:
        assert self._fd is not None
        try:
            with self._errors("write to", self._segment_path(self._number)):
                self._disk.pwrite(self._fd, self._with_zeros(buffers, offset), offset)
        finally:
            # Listed after the write: a sync that takes the segment off the list covers all of it.
            with self._mutex:
                self._unsynced[self._number] = self._fd

    def _with_zeros(self, buffers: Buffers, offset: int) -> Buffers:
        """Small frames at a place that was never written take zeros along, for the frames after them.

        Syncing a write into blocks that were only reserved costs a journal commit; this way one write in a
        few hundred pays it.
        """
        end = offset + sum(map(len, buffers))
        if end <= self._touched:
            return buffers
        self._touched = end
        if end - offset > _SMALL_WRITE:
            return buffers
        ahead = min(_ZERO_AHEAD, self._size - end)
        self._touched += ahead
        return [*buffers, _ZEROS[:ahead]]

    def resume(self, number: int, seed: int) -> Segment | None:
        path = self._segment_path(number)
        with self._errors("open", path):
            fd = self._disk.open(path, os.O_RDWR)
            try:
                touched = os.fstat(fd).st_size
                if touched < self.segment_bytes:
                    self._disk.allocate(fd, self.segment_bytes)
                segment = self._map(number, seed)
            except BaseException:
                self._disk.close(fd)
                raise
        with self._mutex:
            self._fd, self._number, self._size = fd, number, len(segment.buffer)
            self._touched = touched
            self._remember(segment)
        return segment

    def abandon(self) -> None:
        self._size = 0

    def cut(self, number: int, end: int) -> bool:
        path = self._segment_path(number)
        with self._errors("cut", path):
            fd = self._disk.open(path, os.O_RDWR)
            try:
                # A reader that has mapped the file would die of a page that is not there any more.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._disk.truncate(fd, end)
                self._disk.sync(fd)
            except BlockingIOError:
                return False
            finally:
                self._disk.close(fd)
        with self._mutex:
            self._mapped.pop(number, None)
            self._alive.pop(number, None)
        return True

    def extent(self, number: int) -> int:
        with self._errors("read", self._segment_path(number)):
            return os.stat(self._segment_path(number)).st_size

    def has_frame_at(self, number: int, offset: int) -> bool:
        with self._mutex:
            segment = self._mapped.get(number)
        if segment is not None and offset + len(FRAME_MAGIC) > len(segment.buffer):
            self._forget_if_shorter(number, self.extent(number))
            return self.extent(number) > offset
        return segment is None or bytes(segment.buffer[offset : offset + 4]) == FRAME_MAGIC

    def heal(self, number: int, start: int, end: int) -> None:
        path = self._segment_path(number)
        rewrite = os.path.exists(self._failed_sync_path)
        with self._errors("sync", path):
            fd = self._disk.open(path, os.O_RDWR)
            try:
                # After a failed fsync the kernel may call a page clean that never reached the disk; only
                # writing it again makes it dirty. After a mere crash of the process a sync is enough.
                for at in range(start, end if rewrite else start, 1 << 20):
                    self._disk.pwrite(fd, [self._disk.pread(fd, min(1 << 20, end - at), at)], at)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)

    def seal(self) -> None:
        """A sync covers whatever was written before it."""

    def sync(self) -> None:
        with self._one_sync:
            self._sync()

    def _sync(self) -> None:
        with self._mutex:
            self._syncing, self._unsynced = self._unsynced, {}
        for number, fd in sorted(self._syncing.items()):
            self._sync_one(number, fd)
        with self._mutex:
            done, self._syncing = self._syncing, {}
            unused = [
                fd for number, fd in done.items() if number != self._number and number not in self._unsynced
            ]
        for fd in unused:
            self._disk.close(fd)

    def _note_failed_sync(self, error: OSError) -> None:
        """From now on no sync succeeds: the kernel may have forgotten what it could not write."""
        self._failed_sync = error
        with self._mutex:
            self._unsynced = {**self._syncing, **self._unsynced}
            self._syncing = {}
        with contextlib.suppress(OSError):
            os.close(os.open(self._failed_sync_path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))

    def first_unsynced(self) -> int | None:
        return None  # after a failed sync the kernel does not say what reached the disk

    def drop_unsynced(self) -> bool:
        return False  # only the next writer can tell, when it reads the tail

    def retire(self, segment: Segment, since_s: float) -> None:
        del since_s  # readers in other processes hold a lock: there is no need to wait for them
        with self._mutex:
            segment.retired = True
            self._mapped.pop(segment.number, None)
        weakref.finalize(segment, self._free, segment.number).atexit = False

    def _free(self, number: int) -> None:
        """Nobody in this process holds the segment any more: recycle its file, or remove it."""
        path = self._segment_path(number)
        if self._closed:
            return  # the next writer finds the file, and in the log that it was retired
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            reusable = os.fstat(fd).st_size == self.segment_bytes and len(self._spares) < _MAX_SPARES
        except OSError:
            reusable = False
        try:
            if reusable:
                spare = os.path.join(self._segments_dir, f"spare-{number:012d}")
                self._disk.rename(path, spare)
                self._spares.append(spare)
            else:
                self._disk.unlink(path)
        except OSError:
            pass  # the file stays; the next open retires it again
        finally:
            os.close(fd)

    def _segment_path(self, number: int) -> str:
        return os.path.join(self._segments_dir, f"{number:012d}.seg")

    # -- index -----------------------------------------------------------------------------------

    def write_index_file(self, name: str, buffers: Buffers) -> None:
        path = os.path.join(self._index_dir, name)
        with self._errors("write", path):
            self._disk.replace_file(path, buffers)

    def read_index_file(self, name: str) -> memoryview:
        path = os.path.join(self._index_dir, name)
        with self._errors("read", path, passing=FileNotFoundError):
            fd = self._disk.open(path, os.O_RDONLY)
            try:
                return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ) if os.fstat(fd).st_size else b"")
            finally:
                self._disk.close(fd)

    def remove_index_files(self, keep: set[str]) -> None:
        with contextlib.suppress(OSError):  # what is left over is removed the next time
            for name in os.listdir(self._index_dir):
                if name not in keep:
                    self._disk.unlink(os.path.join(self._index_dir, name))

    def read_manifest(self) -> bytes | None:
        path = os.path.join(self.path, "MANIFEST")
        try:
            with self._errors("read", path, passing=FileNotFoundError):
                fd = self._disk.open(path, os.O_RDONLY)
                try:
                    return self._disk.pread(fd, os.fstat(fd).st_size, 0)
                finally:
                    self._disk.close(fd)
        except FileNotFoundError:
            return None

    def replace_manifest(self, data: bytes) -> None:
        with self._errors("write", self.path):
            self._disk.replace_file(os.path.join(self.path, "MANIFEST"), [data])
            if self._failed_sync is None and os.path.exists(self._failed_sync_path):
                self._disk.unlink(self._failed_sync_path)

    def fingerprint(self) -> object:
        stamps = []
        for path in (os.path.join(self.path, "MANIFEST"), self._segments_dir):
            try:
                found = os.stat(path)
                stamps.append((found.st_ino, found.st_mtime_ns))
            except FileNotFoundError:
                stamps.append((0, 0))
        # Times are coarse, so a young folder is listed; and a segment has a name before it has a header.
        numbers = self._listed if stamps[1] == self._listed_at else None
        if numbers is None and stamps[1][0]:
            numbers = self.numbers()
            if time.time_ns() - stamps[1][1] > _COARSE_NS:
                self._listed, self._listed_at = numbers, stamps[1]
        newest = numbers[-1] if numbers else 0
        return stamps, len(numbers or ()), newest, self._first_bytes(newest) if newest else b""

    def _first_bytes(self, number: int) -> bytes:
        with self._errors("read", self._segment_path(number)):
            try:
                fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
            except FileNotFoundError:
                return b""
            try:
                return self._disk.pread(fd, HEADER_BYTES, 0) + self._disk.pread(fd, HEADER_BYTES, _DATA_START)
            finally:
                self._disk.close(fd)

    def stored_bytes(self) -> int:
        total = 0
        for folder in (self._segments_dir, self._index_dir):
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat().st_size
        return total

    def quarantine(self, name: str, data: bytes) -> str:
        folder = os.path.join(self.path, "quarantine")
        with self._errors("write", folder):
            self._disk.make_dirs(folder)
            self._disk.replace_file(os.path.join(folder, name), [data])
        return folder

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with self._mutex:
            fds = {*self._unsynced.values(), *self._syncing.values()}
            fds |= {self._fd} if self._fd is not None else set()
            self._unsynced, self._syncing = {}, {}
            self._fd = None
            self._mapped.clear()
        for fd in fds:
            self._disk.close(fd)
        if self._lock_fd is not None:
            os.close(self._lock_fd)

    def _errors(self, action: str, path: str, *, passing: type[OSError] | None = None) -> _Translated:
        return _Translated(action, path, passing)


class _Translated(contextlib.AbstractContextManager[None]):
    """Turns an OSError into BackendUnavailableError with what a person can do about it."""

    _ADVICE: ClassVar = {
        errno.ENOSPC: "the disk is full: free some space, or move the log to a larger disk",
        errno.EDQUOT: "the disk quota is used up: free some space",
        errno.EROFS: "the filesystem is read-only",
        errno.EACCES: "permission is denied: check who owns the directory",
        errno.EIO: "the disk reports an I/O error: check its health before going on",
    }

    def __init__(self, action: str, path: str, passing: type[OSError] | None) -> None:
        self._action, self._path, self._passing = action, path, passing

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._passing is not None and isinstance(error, self._passing):
            return
        if isinstance(error, OSError):
            why = self._ADVICE.get(error.errno or 0, error.strerror or str(error))
            raise BackendUnavailableError(f"cannot {self._action} {self._path}: {why}") from error
