"""Many records at once: the rows of a scan as columns, frame by frame, every byte of them verified.

What a scan sees is decided before (`EngineReader`); here it is read. A frame that is seen whole, as most are,
gives its columns away as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ckpt.types import Block
from ckpt_backends.log.frame import BadFrameError, Frame
from ckpt_backends.log.records import Records
from ckpt_backends.log.runs import RECORD_BITS, RECORD_MASK, SEGMENT_SHIFT, U64
from ckpt_backends.log.segment import Segment

_LOW32 = np.uint64(0xFFFFFFFF)
_ROW_BYTES = 8
"""What a row takes beside its key and value, wherever it goes: two lengths."""

U32 = npt.NDArray[np.uint32]


def read_frames(
    records: Records, locations: U64, segments: Mapping[int, Segment], now_ms: int
) -> Iterator[Block]:
    """One block for each frame that holds some of the locations, which are sorted; deletes are left out."""
    places = locations >> np.uint64(RECORD_BITS)
    ends = [*(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
    for start, end in pairwise([0, *ends] if len(places) else ()):
        location = int(locations[start])
        frame = records.intact_frame(location, segments[location >> SEGMENT_SHIFT])
        if 0 < frame.expires_ms <= now_ms:
            continue
        chosen = (locations[start:end] & np.uint64(RECORD_MASK)).astype(np.int64)
        chosen = chosen[: int(chosen.searchsorted(frame.puts))]
        if len(chosen):
            yield _rows(records, frame, location, chosen)


def _rows(records: Records, frame: Frame, location: int, chosen: npt.NDArray[np.int64]) -> Block:
    key_ends, value_ends = frame.key_ends_column()[: frame.puts], frame.value_ends_column()
    key_lengths, value_lengths = _lengths(key_ends), _lengths(value_ends)
    keys, values = bytes(frame.key_blob()), bytes(frame.value_blob())
    checks = frame.checks()
    whole = len(chosen) == frame.puts
    if not whole:
        key_ends, key_lengths = key_ends[chosen], key_lengths[chosen]
        value_ends, value_lengths = value_ends[chosen], value_lengths[chosen]
        checks = checks[chosen]
        keys = b"".join(_cut(keys, key_ends, key_lengths))
    pieces = _cut(values, value_ends, value_lengths)
    found = np.fromiter(map(xxh3_64_intdigest, pieces), np.uint64, len(pieces)) & _LOW32
    wrong = np.flatnonzero(found != checks)
    if len(wrong):
        record = int(chosen[wrong[0]])
        raise records.corrupt(
            (location & ~RECORD_MASK) | record, BadFrameError("the value does not match its checksum")
        )
    if whole:
        keys = keys[: int(key_ends[-1])]  # behind them are the keys of deletes
    else:
        values = b"".join(pieces)
    return Block(key_lengths, value_lengths, keys, values)


def _lengths(ends: U32) -> U32:
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths


def _cut(blob: bytes, ends: U32, lengths: U32) -> list[bytes]:
    starts = (ends - lengths).tolist()
    return [blob[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


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
