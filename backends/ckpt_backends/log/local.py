"""Segments and index of a log in a local directory, with one writer and many readers.

Files are preallocated, and used again when they have no reader any more (`spares.py`). What is in the
directory is drawn in `directory.py`; how segments are read is in `mapped.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref

from ckpt.contract.disk import Disk
from ckpt_backends.disk_errors import DiskErrors
from ckpt_backends.engine.frame import BadFrameError
from ckpt_backends.engine.runs import MAX_SEGMENTS
from ckpt_backends.engine.segment import HEADER_BYTES, Segment, SegmentHeader
from ckpt_backends.engine.storage import Buffers
from ckpt_backends.log.mapped import DATA_START, MappedSegments
from ckpt_backends.log.spares import ZEROS, Spares

_MAX_UNSYNCED = 16
_SMALL_WRITE = 32 << 10
_ZERO_AHEAD = 256 << 10


class LocalStorage(MappedSegments):
    """A directory on a local or POSIX-like shared filesystem."""

    data_start = DATA_START
    tears = True
    unindexed_segments = 2
    small_segments = MAX_SEGMENTS
    small_bytes = 0
    reads_are_cheap = True

    def __init__(self, path: str, *, segment_bytes: int, read_only: bool, disk: Disk | None = None) -> None:
        super().__init__(path, disk, read_only=read_only)
        self.alone = not read_only
        self.segment_bytes = segment_bytes
        self._spares = Spares(self._disk, self._segments_dir, segment_bytes, lambda: self.is_gone)
        self._one_sync = threading.Lock()
        self._unsynced: dict[int, int] = {}
        """Segment number → descriptor of every segment that holds bytes which no sync has covered yet."""
        self._syncing: dict[int, int] = {}
        self._fd: int | None = None
        self._number = 0
        self._writing = DiskErrors("write to", self.path)
        """What a failing write to the current segment means; made once, since every put passes through."""
        self._size = 0
        self._touched = 0
        """Up to this offset the blocks of the current segment were written, now or in an earlier life."""
        self._closed = False
        if read_only:
            self._require_no_object_store()
        else:
            self._become_writer()

    # -- the place -------------------------------------------------------------------------------

    def examine(self, *, closed: bool) -> None:
        if not closed:
            self._require_no_object_store()
            self._make_folders()
        self._sign()

    def clean_up(self) -> None:
        self._make_folders()
        with DiskErrors("clean up", self.path):
            self._spares.find()
            self._remove_leftovers()

    def ends_at(self, number: int, offset: int, log_id: int) -> bool:
        try:
            fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
        except OSError:
            return False
        try:
            if os.fstat(fd).st_size != offset:
                return False
            header = SegmentHeader.decode(self._disk.pread(fd, HEADER_BYTES, 0))
        except (OSError, BadFrameError):
            return False
        finally:
            self._disk.close(fd)
        return (header.number, header.log_id, header.data_start) == (number, log_id, DATA_START)

    # -- appending -------------------------------------------------------------------------------

    def begin(self, header: SegmentHeader, seed: int, at_least: int) -> Segment:
        self._sync_backlog()
        self._require_place()
        path = self._segment_path(header.number)
        size = max(self.segment_bytes, -(-(at_least + DATA_START) // 4096) * 4096)
        with DiskErrors("create", path):
            fd, recycled = self._make_file(path, size)
            try:
                self._disk.pwrite(fd, [header.encode()], 0)
                # A recycled file still holds old frames. They are never taken for frames of this segment,
                # because their checksums have another seed.
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
            self._writing = DiskErrors("write to", self._segment_path(header.number))
            self._size = len(segment.buffer)
            self._touched = self._size if recycled else DATA_START
            self._remember(segment)
        return segment

    def give_back_room(self) -> None:
        self._spares.drop()

    def prepare(self) -> None:
        self._spares.prepare()

    def _make_file(self, path: str, size: int) -> tuple[int, bool]:
        """A file of that size under that name, and whether all of its blocks were written before."""
        if size == self.segment_bytes and (spare := self._spares.take(path)) is not None:
            return spare, True
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
            with self._writing:
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
        return [*buffers, ZEROS[:ahead]]

    def resume(self, number: int, seed: int) -> Segment | None:
        path = self._segment_path(number)
        with DiskErrors("open", path):
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
            if (known := self._alive.get(number)) is not None:
                # A reader may hold it since before the first write: there is one object for each
                # segment, so that its end means the end of all readers.
                known.buffer = segment.buffer
                segment = known
            self._fd, self._number, self._size = fd, number, len(segment.buffer)
            self._writing = DiskErrors("write to", self._segment_path(number))
            self._touched = touched
            self._remember(segment)
        return segment

    def abandon(self) -> None:
        self._size = 0

    def cut(self, number: int, end: int) -> bool:
        path = self._segment_path(number)
        with DiskErrors("cut", path):
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

    def heal(self, number: int, start: int, end: int) -> None:
        path = self._segment_path(number)
        rewrite = os.path.exists(self._failed_sync_path)
        with DiskErrors("sync", path):
            fd = self._disk.open(path, os.O_RDWR)
            try:
                # After a failed fsync the kernel may call a page clean that never reached the disk; only
                # writing it again makes it dirty. After a mere crash of the process a sync is enough.
                for at in range(start, end if rewrite else start, 1 << 20):
                    self._disk.pwrite(fd, [self._disk.pread(fd, min(1 << 20, end - at), at)], at)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)

    # -- durability ------------------------------------------------------------------------------

    def seal(self) -> None:
        """A sync covers whatever was written before it."""

    def sync(self) -> None:
        with self._one_sync:
            self._sync()
            self._require_place()

    def _sync(self) -> None:
        with self._mutex:
            syncing = self._syncing = self._unsynced
            self._unsynced = {}
        for number in sorted(syncing):
            self._sync_one(number, syncing[number])
        with self._mutex:
            self._syncing = {}
            unused = [n for n in syncing if n != self._number and n not in self._unsynced]
        for number in unused:
            self._disk.close(syncing[number])

    def _sync_one(self, number: int, fd: int) -> None:
        try:
            if self._failed_sync is not None:
                raise self._failed_sync
            self._disk.sync(fd)
        except OSError as error:
            with DiskErrors("sync", self._segment_path(number)):
                self._note_failed_sync(error)
                raise

    def _sync_backlog(self) -> None:
        """Sync segments that are full, so that their descriptors can be closed, if no call has done so."""
        if len(self._unsynced) < _MAX_UNSYNCED:
            return
        with self._one_sync:
            for number, fd in sorted(self._unsynced.items()):
                if number != self._number:
                    self._sync_one(number, fd)
                    with self._mutex:
                        del self._unsynced[number]
                    self._disk.close(fd)

    def _is_waiting(self, number: int) -> bool:
        """Whether the segment's descriptor is in the care of the next sync, or of the one that runs."""
        return number in self._unsynced or number in self._syncing

    def _note_failed_sync(self, error: OSError) -> None:
        """From now on no sync succeeds: the kernel may have forgotten what it could not write."""
        with self._mutex:
            self._unsynced = {**self._syncing, **self._unsynced}
            self._syncing = {}
        self._mark_failed_sync(error)

    def first_unsynced(self) -> int | None:
        return None  # after a failed sync the kernel does not say what reached the disk

    def drop_unsynced(self) -> bool:
        return False  # only the next writer can tell, when it reads the tail

    # -- the end ---------------------------------------------------------------------------------

    def retire(self, segment: Segment, since_s: float) -> None:
        del since_s  # readers in other processes hold a lock: there is no need to wait for them
        with self._mutex:
            segment.retired = True
            self._mapped.pop(segment.number, None)
        path = self._segment_path(segment.number)
        weakref.finalize(segment, self._spares.recycle, path, segment.number).atexit = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._spares.close()
        with self._mutex:
            fds = {*self._unsynced.values(), *self._syncing.values()}
            fds |= {self._fd} if self._fd is not None else set()
            self._unsynced, self._syncing = {}, {}
            self._fd = None
            self._mapped.clear()
        for fd in fds:
            self._disk.close(fd)
        self._unlock()
