"""The next intact frame behind bytes that are none: what tells damage in the middle from the end of a log.

What is searched is nearly always the unused rest of a segment, up to 64 MiB, which a crash has left uncut:
zeros, or frames that a recycled file held before. Both are skipped as fast as memory is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ckpt_backends.engine.frame import ALIGN, HEADER_BYTES, MAGIC, BadFrameError, Frame

_WORDS_APART = ALIGN // 4
"""A frame starts at one word in so many."""
_MAGIC_WORD = np.uint32(int.from_bytes(MAGIC, "little"))
_EPOCH_WORD = 24 // 4
_HEADER_WORDS = HEADER_BYTES // 4
_WORDS_AT_ONCE = 1 << 18


def find_next_frame(
    buffer: memoryview,
    start: int,
    limit: int,
    seed: int,
    *,
    until: int | None = None,
    epoch: int | None = None,
) -> Frame | None:
    """The first intact frame that starts at or after `start`, before `until`, and ends by `limit`.

    With the epoch, the segment's number, frames from an earlier life of the file are skipped at once.
    """
    for at in _places(buffer, start, limit if until is None else min(until, limit), epoch):
        try:
            frame = Frame(buffer, at, seed)
            if frame.end <= limit and frame.middle_is_intact():
                return frame
        except BadFrameError:
            pass
    return None


def _places(buffer: memoryview, start: int, end: int, epoch: int | None) -> Iterator[int]:
    """Where a frame may start, ascending: multiples of 16 at which the magic stands, and then the epoch."""
    first = -(-start // ALIGN) * ALIGN
    if first >= end:
        return
    words = np.frombuffer(buffer, "<u4", (len(buffer) - first) // 4, first)
    last = min((end - first) // 4, len(words) - _HEADER_WORDS + 1)
    for begin in range(0, last, _WORDS_AT_ONCE):
        magics = words[begin : min(begin + _WORDS_AT_ONCE, last) : _WORDS_APART] == _MAGIC_WORD
        hits = begin + np.flatnonzero(magics) * _WORDS_APART
        if epoch is not None:
            hits = hits[words[hits + _EPOCH_WORD] == np.uint32(epoch & 0xFFFFFFFF)]
        for hit in hits.tolist():
            yield first + 4 * hit
