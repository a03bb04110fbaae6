"""Index runs: immutable sorted arrays from key hash to location, mapped and verified piece by piece.

A run covers the keys of many namespaces, each a slice of the two columns, sorted by hash. Several entries may
share a hash: different keys, or several layers of a versioned namespace. Opening a run reads its directory
only; the columns are checked in chunks of 2,048 entries when they are first looked at.

```
offset size
     0    8  magic "CKPTRUN1"
     8    4  format version (1)
    12    4  number of namespaces (n)
    16    8  number of entries (e)
    24    8  number of chunks (c)
    32   24·n directory: namespace id u64, first entry u64, entries u64; ascending ids
     …    8·c first hash of each chunk
     …    8·c xxh3-64 of each chunk: its hashes, then its locations
     …    8  xxh3-64 of everything before
     …    8·e hashes
     …    8·e locations: segment 28 bits, offset of the frame / 16 22 bits, record 14 bits
```
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ckpt_backends.engine.frame import ALIGN, stream_hash
from ckpt_backends.engine.native import Entries, native

U64 = npt.NDArray[np.uint64]

MAGIC = b"CKPTRUN1"
FORMAT = 1
_HEADER = struct.Struct("<8sIIQQ")
_ROW = struct.Struct("<QQQ")
_CHUNK = 2048
_FEW = 4
"""A run of which so many chunks were looked at will be looked at again."""

SEGMENT_SHIFT = 36
RECORD_BITS = 14
MAX_SEGMENT_BYTES = ALIGN << 22
MAX_SEGMENTS = 1 << 28
_OFFSET_MASK = (1 << 22) - 1
RECORD_MASK = (1 << RECORD_BITS) - 1


class IndexDamagedError(Exception):
    """The index is not what was written. It is disposable: the engine rebuilds it from the frames."""


def pack_location(segment: int, offset: int, record: int = 0) -> int:
    """One number that says where a record is; the records of one frame are consecutive."""
    return segment << SEGMENT_SHIFT | (offset // ALIGN) << RECORD_BITS | record


def unpack_location(location: int) -> tuple[int, int, int]:
    """Segment, offset of the frame, position of the record in the frame."""
    return (
        location >> SEGMENT_SHIFT,
        ((location >> RECORD_BITS) & _OFFSET_MASK) * ALIGN,
        location & RECORD_MASK,
    )


def split_locations(
    locations: U64,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`unpack_location` for a whole column."""
    segment = (locations >> np.uint64(SEGMENT_SHIFT)).astype(np.int64)
    offset = ((locations >> np.uint64(RECORD_BITS)) & np.uint64(_OFFSET_MASK)).astype(np.int64) * ALIGN
    record = (locations & np.uint64(RECORD_MASK)).astype(np.int64)
    return segment, offset, record


def hash_keys(keys: Sequence[bytes], seed: int) -> U64:
    """The index hash of each key; the seed is the log's, so colliding keys cannot be prepared beforehand."""
    return np.fromiter(map(partial(xxh3_64_intdigest, seed=seed), keys), np.uint64, len(keys))


def encode_run(slices: Iterable[tuple[int, U64, U64]]) -> list[bytes | memoryview]:
    """The buffers of a run from (namespace id, hashes, locations) with ascending ids and sorted hashes."""
    directory: list[tuple[int, int, int]] = []
    hash_parts: list[U64] = []
    location_parts: list[U64] = []
    total = 0
    for namespace, hashes, locations in slices:
        if len(hashes):
            directory.append((namespace, total, len(hashes)))
            hash_parts.append(hashes)
            location_parts.append(locations)
            total += len(hashes)
    hashes = np.concatenate(hash_parts) if hash_parts else np.empty(0, np.uint64)
    locations = np.concatenate(location_parts) if location_parts else np.empty(0, np.uint64)
    checks = np.fromiter(
        (_chunk_check(hashes, locations, start) for start in range(0, total, _CHUNK)), np.uint64
    )
    head = b"".join(
        (
            _HEADER.pack(MAGIC, FORMAT, len(directory), total, len(checks)),
            np.array(directory, np.uint64).tobytes(),
            np.ascontiguousarray(hashes[::_CHUNK]).tobytes(),
            checks.tobytes(),
        )
    )
    return [
        head,
        xxh3_64_intdigest(head).to_bytes(8, "little"),
        hashes.data.cast("B") if total else b"",
        locations.data.cast("B") if total else b"",
    ]


def _chunk_check(hashes: U64, locations: U64, start: int) -> int:
    end = start + _CHUNK
    return stream_hash((hashes[start:end].data.cast("B"), locations[start:end].data.cast("B")))


class Run:
    """One run, mapped. Lookups see verified entries only, or raise IndexDamagedError."""

    def __init__(self, name: str, buffer: memoryview) -> None:
        self.name = name
        self._buffer = buffer
        self.file_bytes = len(buffer)
        self.sorted: Entries | None = None
        """The same columns for compiled lookups."""
        if native is not None:
            with contextlib.suppress(ValueError):
                self.sorted = native.Entries(buffer)
        if self.sorted is None:
            self._head = self._read_head()

    def _read_head(self) -> bytes:
        if len(self._buffer) < _HEADER.size:
            raise IndexDamagedError(f"{self.name} is too short")
        magic, version, namespaces, total, chunks = _HEADER.unpack_from(self._buffer)
        if magic != MAGIC or version != FORMAT:
            raise IndexDamagedError(f"{self.name} is not an index run of format {FORMAT}")
        head_bytes = _HEADER.size + _ROW.size * namespaces + 16 * chunks
        if chunks != -(-total // _CHUNK) or len(self._buffer) != head_bytes + 8 + 16 * total:
            raise IndexDamagedError(f"{self.name} has the wrong length")
        head = bytes(self._buffer[:head_bytes])
        check = int.from_bytes(self._buffer[head_bytes : head_bytes + 8], "little")
        if xxh3_64_intdigest(head) != check:
            raise IndexDamagedError(f"{self.name}: its directory does not match its checksum")
        return head

    # What compiled lookups do without is taken from the head when it is first asked for.

    @cached_property
    def _head(self) -> bytes:
        """A copy, which stays what was verified whatever becomes of the file."""
        return self._read_head()

    @cached_property
    def entries(self) -> int:
        """How many there are."""
        total: int = _HEADER.unpack_from(self._head)[3]
        return total

    @cached_property
    def _fences_at(self) -> int:
        namespaces: int = _HEADER.unpack_from(self._head)[2]
        return _HEADER.size + _ROW.size * namespaces

    @cached_property
    def directory(self) -> dict[int, tuple[int, int]]:
        """Namespace to where its entries begin and end."""
        rows = _ROW.iter_unpack(self._head[_HEADER.size : self._fences_at])
        return {namespace: (start, start + count) for namespace, start, count in rows}

    @cached_property
    def _verified(self) -> bytearray:
        """A byte for each chunk, shared with the compiled lookups."""
        return bytearray(-(-self.entries // _CHUNK)) if self.sorted is None else self.sorted.verified

    # Views, and no arrays: for single lookups they cost a tenth of numpy's fixed costs.

    @cached_property
    def _fences(self) -> Sequence[int]:
        return self._column_of_head(0)

    @cached_property
    def _checks(self) -> memoryview:
        return self._column_of_head(1)

    def _column_of_head(self, place: int) -> memoryview:
        """A number for each chunk: of two columns, the first or the second."""
        start, length = self._fences_at, 8 * len(self._verified)
        return memoryview(self._head)[start + place * length : start + (place + 1) * length].cast("Q")

    @cached_property
    def _hashes_at(self) -> int:
        return len(self._head) + 8

    @cached_property
    def _hash_view(self) -> memoryview:
        return self._view(self._hashes_at, self.entries)

    @cached_property
    def _location_view(self) -> memoryview:
        return self._view(self._hashes_at + 8 * self.entries, self.entries)

    def _view(self, start: int, count: int) -> memoryview:
        return self._buffer[start : start + 8 * count].cast("Q")

    @cached_property
    def _hashes(self) -> U64:
        return np.frombuffer(self._buffer, "<u8", self.entries, self._hashes_at)

    @cached_property
    def _locations(self) -> U64:
        return np.frombuffer(self._buffer, "<u8", self.entries, self._hashes_at + 8 * self.entries)

    def slice(self, namespace: int) -> tuple[U64, U64]:
        """All hashes and locations of a namespace, verified."""
        start, end = self.directory.get(namespace, (0, 0))
        self._verify(start // _CHUNK, -(-end // _CHUNK))
        return self._hashes[start:end], self._locations[start:end]

    def first_locations(self, namespace: int, count: int) -> list[int]:
        """The first few locations of a namespace, verified: a sample."""
        start, end = self.directory.get(namespace, (0, 0))
        end = min(end, start + count)
        self._verify(start // _CHUNK, -(-end // _CHUNK))
        first: list[int] = self._locations[start:end].tolist()
        return first

    def all_locations(self) -> U64:
        """Every location, verified: what counts references to segments."""
        self._verify(0, len(self._verified))
        return self._locations

    def find(self, namespace: int, key_hash: int) -> list[int]:
        """The locations of every entry with this hash."""
        bounds = self.directory.get(namespace)
        if bounds is None:
            return []
        start, end = bounds
        first, last = start // _CHUNK, (end - 1) // _CHUNK
        # A fence above `first` is a hash of this namespace, so the fences in between are sorted.
        chunk = bisect_left(self._fences, key_hash, first + 1, last + 1) - 1
        if not self._verified[chunk]:
            self._verify(chunk, chunk + 1)
        hashes, found = self._hash_view, []
        at = bisect_left(hashes, key_hash, max(start, chunk * _CHUNK), min(end, (chunk + 1) * _CHUNK))
        while at < end:
            if at % _CHUNK == 0 and not self._verified[at // _CHUNK]:
                self._verify(at // _CHUNK, at // _CHUNK + 1)
            if hashes[at] != key_hash:
                break
            found.append(self._location_view[at])
            at += 1
        return found

    def find_many(self, namespace: int, hashes: U64) -> tuple[npt.NDArray[np.int64], U64]:
        """Every entry that shares a hash with a query: positions of the queries, and locations."""
        mine, locations = self.slice(namespace)
        low = mine.searchsorted(hashes, "left")
        high = mine.searchsorted(hashes, "right")
        counts = high - low
        total = int(counts.sum())
        if not total:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        queries = np.repeat(np.arange(len(hashes)), counts)
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        return queries, locations[np.repeat(low, counts) + within]

    def is_worth_batching(self, queries: int) -> bool:
        """True if looking up that many keys at once is cheaper than one by one."""
        verified = self._verified
        return queries > 16 and (queries * 4 > len(verified) or 0 not in verified)

    def _verify(self, first: int, last: int) -> None:
        verified = self._verified
        chunk = verified.find(0, first, last)
        while chunk >= 0:
            start, end = chunk * _CHUNK, (chunk + 1) * _CHUNK
            pieces = (self._hash_view[start:end], self._location_view[start:end])
            if stream_hash(pieces) != self._checks[chunk]:
                raise IndexDamagedError(f"{self.name}: chunk {chunk} does not match its checksum")
            verified[chunk] = 1
            chunk = verified.find(0, chunk + 1, last)
        if isinstance(self._fences, memoryview) and verified.count(1) > _FEW:
            self._fences = self._fences.tolist()  # quicker to search, which pays off after a few searches
