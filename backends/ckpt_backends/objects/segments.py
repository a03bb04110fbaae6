"""Segments of an object store: in memory until their upload, in the store ever after.

Between the header of a segment and its first frame lie 16 random bytes. They tell an own object, whose
creation seemed to fail, from another writer's with the same frames.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from ckpt_backends.engine.segment import Segment, SegmentHeader
from ckpt_backends.engine.storage import Buffers

TOKEN_BYTES = 16


class UnsyncedSegment(Segment):
    """A segment that exists in memory only, and grows."""

    __slots__ = ("_mutex", "_parts", "end", "first_sequence", "size")

    def __init__(self, header: SegmentHeader, seed: int, size: int) -> None:
        self.number, self.seed, self.data_start, self.retired = header.number, seed, header.data_start, False
        self.first_sequence = header.first_sequence
        self.size = size
        self._mutex = threading.Lock()
        self._parts = [header.encode(), secrets.token_bytes(TOKEN_BYTES)]
        self.end = self.data_start

    def __getattr__(self, name: str) -> memoryview:
        if name != "buffer":
            raise AttributeError(name)
        return memoryview(self.data())

    def data(self) -> bytes:
        """All of it. Nothing is copied until it is asked for, which is usually the upload."""
        with self._mutex:
            if len(self._parts) > 1:
                self._parts = [b"".join(self._parts)]
            return self._parts[0]

    def write(self, buffers: Buffers, offset: int) -> None:
        assert offset == self.end
        # What its owner could change before it is stored is copied.
        parts = [buffer if type(buffer) is bytes else bytes(buffer) for buffer in buffers]
        with self._mutex:
            self._parts += parts
            self.end = offset + sum(map(len, parts))


class StoredSegment(Segment):
    """A segment in the store, fetched when it is first read. Holding it keeps its object there."""

    __slots__ = ("_fetch",)

    def __init__(self, number: int, seed: int, data_start: int, fetch: Callable[[int], memoryview]) -> None:
        self.number, self.seed, self.data_start, self.retired = number, seed, data_start, False
        self._fetch = fetch

    def __getattr__(self, name: str) -> memoryview:
        if name != "buffer":
            raise AttributeError(name)
        return self._fetch(self.number)
