"""The segments of a log's directory, mapped for reading: a reader that holds one may read it to its end.

A reader in another process than the writer's holds a shared lock on each file that it has mapped; the writer
neither reuses nor cuts a file that is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
import time
import weakref
from collections import OrderedDict

from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.disk_errors import DiskErrors
from ckpt_backends.engine.frame import MAGIC as FRAME_MAGIC
from ckpt_backends.engine.frame import BadFrameError
from ckpt_backends.engine.segment import HEADER_BYTES, Segment, SegmentHeader, UnbegunSegmentError
from ckpt_backends.engine.storage import SegmentGoneError
from ckpt_backends.engine.store_kind import LOG_DATA_START
from ckpt_backends.log.directory import LogDirectory, map_file

DATA_START = LOG_DATA_START
_MAX_MAPPED = 256
_COARSE_NS = 1_000_000_000
_SEGMENT_NAME = re.compile(r"(\d{12})\.seg")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


class MappedSegments(LogDirectory):
    """What a reader needs of a log's directory: which segments there are, and what they hold."""

    def __init__(self, path: str, disk: Disk | None, *, read_only: bool) -> None:
        super().__init__(path, disk)
        self.read_only = read_only
        self._mutex = threading.Lock()
        self._mapped: OrderedDict[int, Segment] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        """Every segment that still has a reader: one object each, so that its end means the end of all."""
        self._listed: list[int] | None = None
        self._listed_at = (0, 0)
        """Inode and time of change of the folder when it was listed and had been at rest for a while."""

    def _segment_path(self, number: int) -> str:
        return f"{self._segments_dir}/{number:012d}.seg"

    def numbers(self) -> list[int]:
        try:
            names = os.listdir(self._segments_dir)
        except FileNotFoundError:
            if self.read_only:
                raise ConfigError(f"there is no log at {self.path}; check the address") from None
            raise
        return sorted(int(m[1]) for name in names if (m := _SEGMENT_NAME.fullmatch(name)))

    def header(self, number: int) -> SegmentHeader:
        with DiskErrors("read", self._segment_path(number)):
            try:
                fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
            except FileNotFoundError:
                raise self._gone(number) from None
            try:
                self._forget_if_shorter(number, os.fstat(fd).st_size)
                return SegmentHeader.decode(self._disk.pread(fd, HEADER_BYTES, 0))
            except BadFrameError as error:
                if self._disk.pread(fd, len(FRAME_MAGIC), DATA_START) != FRAME_MAGIC:
                    raise UnbegunSegmentError(str(error)) from None
                raise
            finally:
                self._disk.close(fd)

    def extent(self, number: int) -> int:
        with DiskErrors("read", self._segment_path(number)):
            try:
                return os.stat(self._segment_path(number)).st_size
            except FileNotFoundError:
                raise self._gone(number) from None

    def written(self, number: int, start: int, end: int) -> list[tuple[int, int]]:
        with DiskErrors("read", self._segment_path(number)):
            try:
                fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
            except FileNotFoundError:
                raise self._gone(number) from None
            try:
                return _stretches(fd, start, end)
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
            mapped = map_file(fd)
        except FileNotFoundError:
            raise self._gone(number) from None
        except (OSError, ValueError) as error:
            raise BackendUnavailableError(f"{path} cannot be mapped: {error}") from error
        finally:
            self._disk.close(fd)
        return Segment(number, seed, DATA_START, mapped)

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

    # -- watching a writer -----------------------------------------------------------------------

    def has_frame_at(self, number: int, offset: int) -> bool:
        with self._mutex:
            segment = self._mapped.get(number)
        if segment is not None and offset + len(FRAME_MAGIC) > len(segment.buffer):
            try:
                size = self.extent(number)
            except SegmentGoneError:
                return True  # its writer is ahead of us and has retired it: there is something to see
            self._forget_if_shorter(number, size)
            return size > offset
        return segment is None or bytes(segment.buffer[offset : offset + 4]) == FRAME_MAGIC

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
        with DiskErrors("read", self._segment_path(number)):
            try:
                fd = self._disk.open(self._segment_path(number), os.O_RDONLY)
            except FileNotFoundError:
                return b""
            try:
                return self._disk.pread(fd, HEADER_BYTES, 0) + self._disk.pread(fd, HEADER_BYTES, DATA_START)
            finally:
                self._disk.close(fd)


def _stretches(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """What was written of a file, without what was only reserved: that would take memory to look at."""
    found: list[tuple[int, int]] = []
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
            hole = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            # Nothing but a hole from here on; or a filesystem that cannot tell, then everything counts.
            return found if error.errno == errno.ENXIO else [*found, (start, end)]
        if start < end:
            found.append((start, min(hole, end)))
        start = hole
    return found
