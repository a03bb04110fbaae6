"""Many records at once: the rows of a scan as columns, frame by frame, every byte of them verified.

What a scan sees is decided before (`EngineReader`); here it is read. A frame that is seen whole, as most are,
gives its columns away as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ckpt.types import Block
from ckpt_backends.engine.frame import BadFrameError, Frame, lengths_of_ends
from ckpt_backends.engine.hashing import hash_pieces
from ckpt_backends.engine.records import Records
from ckpt_backends.engine.runs import RECORD_BITS, RECORD_MASK, SEGMENT_SHIFT, U64
from ckpt_backends.engine.segment import Segment

_ROW_BYTES = 8
"""What a row takes beside its key and value, wherever it goes: two lengths."""

U32 = npt.NDArray[np.uint32]


def by_frame(locations: U64) -> Iterator[U64]:
    """The locations, which are sorted, frame by frame."""
    for start, end in pairwise(_bounds(locations).tolist()):
        yield locations[start:end]


def by_large_frame(locations: U64, least: int) -> Iterator[U64]:
    """The same, but frames with fewer than `least` of the locations are not parted from their like.

    Examples
    --------
    >>> frames = np.repeat(np.arange(5, dtype=np.uint64), [1, 2, 4, 3, 1]) << np.uint64(RECORD_BITS)
    >>> [len(some) for some in by_large_frame(frames, 3)]
    [3, 4, 3, 1]
    """
    bounds = _bounds(locations)
    large = np.flatnonzero(np.diff(bounds) >= least)
    edges = np.unique(np.concatenate((bounds[large], bounds[large + 1], bounds[:1], bounds[-1:])))
    for start, end in pairwise(edges.tolist()):
        yield locations[start:end]


def _bounds(locations: U64) -> npt.NDArray[np.int64]:
    """Where a frame begins, and where the last one ends."""
    places = locations >> np.uint64(RECORD_BITS)
    inner = np.flatnonzero(places[1:] != places[:-1]) + 1
    return np.concatenate(([0], inner, [len(places)] if len(places) else [])).astype(np.int64)


def read_frame(
    records: Records, locations: U64, segments: Mapping[int, Segment], now_ms: int
) -> Block | None:
    """The rows at some locations of one frame, deletes left out; None if nothing else is there."""
    location = int(locations[0])
    frame = records.intact_frame(location, segments[location >> SEGMENT_SHIFT])
    if 0 < frame.expires_ms <= now_ms:
        return None
    puts, _ = part_deletes(frame, locations)
    return rows_at(records, frame, puts) if len(puts) else None


def part_deletes(frame: Frame, locations: U64) -> tuple[U64, U64]:
    """Of some locations of one frame, which are sorted, those of puts and those of deletes."""
    first = int((locations & np.uint64(RECORD_MASK)).searchsorted(np.uint64(frame.puts)))
    return locations[:first], locations[first:]


def rows_at(records: Records, frame: Frame, puts: U64) -> Block:
    """The rows of some puts of a frame whose keys and columns are intact; their values are verified."""
    location = int(puts[0])
    chosen = (puts & np.uint64(RECORD_MASK)).astype(np.int64)
    key_ends, value_ends = frame.key_ends_column()[: frame.puts], frame.value_ends_column()
    key_lengths, value_lengths = lengths_of_ends(key_ends), lengths_of_ends(value_ends)
    keys, values = bytes(frame.key_blob()[: int(key_ends[-1])]), bytes(frame.value_blob())
    checks = frame.checks()
    if len(chosen) != frame.puts:
        keys, key_lengths = _picked(keys, key_ends, key_lengths, chosen)
        values, value_lengths = _picked(values, value_ends, value_lengths, chosen)
        checks = checks[chosen]
    wrong = np.flatnonzero(hash_pieces(values, value_lengths).astype(np.uint32) != checks)
    if len(wrong):
        record = int(chosen[wrong[0]])
        raise records.corrupt(
            (location & ~RECORD_MASK) | record, BadFrameError("the value does not match its checksum")
        )
    return Block(key_lengths, value_lengths, keys, values)


def _picked(blob: bytes, ends: U32, lengths: U32, chosen: npt.NDArray[np.int64]) -> tuple[bytes, U32]:
    """Some of the pieces of a blob, joined, and their lengths."""
    width = int(lengths[0])
    if width and bool((lengths == lengths[0]).all()):
        rows = np.frombuffer(blob, np.uint8).reshape(len(lengths), width)
        return rows[chosen].tobytes(), lengths[chosen]
    # Neighbours stay together: of most frames all but a few records are seen.
    gaps = np.flatnonzero(chosen[1:] != chosen[:-1] + 1)
    first, last = chosen[np.concatenate(([0], gaps + 1))], chosen[np.concatenate((gaps, [len(chosen) - 1]))]
    starts, stops = (ends[first] - lengths[first]).tolist(), ends[last].tolist()
    return b"".join([blob[a:b] for a, b in zip(starts, stops, strict=True)]), lengths[chosen]


def pack(blocks: Iterator[Block], block_bytes: int) -> Iterator[Block]:
    """The same rows in blocks of at most that many bytes, or of one row that is longer.

    Examples
    --------
    >>> small = (Block.of([(b"%d" % i, b"v")]) for i in range(5))
    >>> [len(block) for block in pack(small, 20)]
    [2, 2, 1]
    >>> large = Block.of([(b"a", b"v" * 10), (b"b", b"v" * 99), (b"c", b"")])
    >>> [len(block) for block in pack(iter([large]), 20)]
    [1, 1, 1]
    """
    held: list[Block] = []
    room = block_bytes
    for block in blocks:
        for piece, size in _pieces(block, block_bytes):
            if held and size > room:
                yield _joined(held)
                held, room = [], block_bytes
            held.append(piece)
            room -= size
    if held:
        yield _joined(held)


def _pieces(block: Block, most_bytes: int) -> Iterator[tuple[Block, int]]:
    """The block, or what it has to be cut into, each with its size."""
    size = block.total_bytes + _ROW_BYTES * len(block)
    if size <= most_bytes:
        yield block, size
        return
    key_ends = np.concatenate(([0], block.key_lengths.cumsum(dtype=np.int64)))
    value_ends = np.concatenate(([0], block.value_lengths.cumsum(dtype=np.int64)))
    ends = key_ends + value_ends + _ROW_BYTES * np.arange(len(block) + 1)
    start = 0
    while start < len(block):
        end = max(int(ends.searchsorted(ends[start] + most_bytes, "right")) - 1, start + 1)
        piece = Block(
            block.key_lengths[start:end],
            block.value_lengths[start:end],
            block.keys[int(key_ends[start]) : int(key_ends[end])],
            block.values[int(value_ends[start]) : int(value_ends[end])],
        )
        yield piece, int(ends[end] - ends[start])
        start = end


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        np.concatenate([b.key_lengths for b in blocks]),
        np.concatenate([b.value_lengths for b in blocks]),
        b"".join([b.keys for b in blocks]),
        b"".join([b.values for b in blocks]),
    )
