"""xxh3-64 of many pieces at once: the same numbers as the library's, for a fraction of the time.

Rows of one schema tend to have one length. For a stretch of them the hash is arithmetic on columns: nothing
is cut into pieces, and threads are not in each other's way. Everything else is hashed piece by piece.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ckpt.types import cut
from ckpt_backends.engine.native import native

U64 = npt.NDArray[np.uint64]

_LEAST_ROWS = 256
"""Below this many, the fixed cost of forty operations on columns is more than they save."""
_LEAST_WIDTH, _MOST_WIDTH = 17, 128
"""XXH3 has one algorithm for these lengths, which are those of nearly all rows."""
_MOST_STRETCHES = 4
"""So many neighbours of one length each are worth a look; with more, lengths are mixed."""
_PRIME = 0x9E3779B185EBCA87
_AVALANCHE = np.uint64(0x165667919E3779F9)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_ALL = 2**64 - 1
_SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
    "<u8",
).tolist()
"""The beginning of XXH3's own secret."""


def hash_pieces(blob: bytes | memoryview, lengths: npt.NDArray[np.uint32], seed: int = 0) -> U64:
    """The xxh3-64 of each piece of a blob that was made by joining them.

    Examples
    --------
    >>> found = hash_pieces(b"beor", np.array([2, 2], np.uint32))
    >>> found.tolist() == [xxh3_64_intdigest(b"be"), xxh3_64_intdigest(b"or")]
    True
    """
    count = len(lengths)
    if native is not None:
        hashes = np.empty(count, np.uint64)
        native.hash_pieces(blob, np.ascontiguousarray(lengths, np.uint32), seed, hashes)
        return hashes
    if count < _LEAST_ROWS:
        return _hash_each(blob, lengths, seed)
    # Nearly always one stretch, or two: a commit of Spark's has its catalogue behind the state.
    changes = (lengths[1:] != lengths[:-1]).nonzero()[0]
    if len(changes) >= _MOST_STRETCHES:
        return _hash_each(blob, lengths, seed)
    whole = memoryview(blob)
    hashes = np.empty(count, np.uint64)
    at = 0
    for start, end in pairwise((0, *(changes + 1).tolist(), count)):
        width = int(lengths[start])
        size = width * (end - start)
        hashes[start:end] = _hash_stretch(whole[at : at + size], end - start, width, seed)
        at += size
    return hashes


def _hash_stretch(blob: memoryview, count: int, width: int, seed: int) -> U64:
    """Of pieces that all have one length."""
    if count >= _LEAST_ROWS and _LEAST_WIDTH <= width <= _MOST_WIDTH:
        return _hash_rows(blob, count, width, seed & _ALL)
    pieces = (blob[width * i : width * (i + 1)] for i in range(count))
    return np.fromiter((xxh3_64_intdigest(piece, seed) for piece in pieces), np.uint64, count)


def _hash_each(blob: bytes | memoryview, lengths: npt.NDArray[np.uint32], seed: int) -> U64:
    return np.fromiter(
        map(partial(xxh3_64_intdigest, seed=seed), cut(blob, lengths)), np.uint64, len(lengths)
    )


def _hash_rows(blob: memoryview, count: int, width: int, seed: int) -> U64:
    # From both ends inwards, 16 bytes at a time; in the middle they overlap. All of them are multiplied at
    # once: with a few hundred rows an operation costs about the same, however many columns it is for.
    steps = (width - 1) // 32 + 1
    words = np.empty((2, 2 * steps, count), np.uint64)
    for step in range(steps):
        for end, start in enumerate((16 * step, width - 16 * (step + 1))):
            words[:, 2 * step + end] = np.ndarray((2, count), "<u8", blob, start, (8, width))
    words ^= _secrets(steps, seed)
    total: U64 = np.add.reduce(_folded_product(words[0], words[1]))
    total += np.uint64(width * _PRIME & _ALL)
    total ^= total >> np.uint64(37)
    total *= _AVALANCHE
    total ^= total >> _HALF
    return total


@lru_cache(maxsize=64)
def _secrets(steps: int, seed: int) -> U64:
    """What the lower and the upper words of each 16 bytes are mixed with, beginning at both ends."""
    pairs = zip(_SECRET[: 4 * steps : 2], _SECRET[1 : 4 * steps : 2], strict=True)
    mixed = [((low + seed) & _ALL, (high - seed) & _ALL) for low, high in pairs]
    return np.array(mixed, np.uint64).T[:, :, None]


def _folded_product(left: U64, right: U64) -> U64:
    """The upper half of the 128-bit product, exclusive-or the lower half."""
    left_low, left_high = left & _LOW, left >> _HALF
    right_low, right_high = right & _LOW, right >> _HALF
    high_low = left_high * right_low
    cross = left_low * right_low
    cross >>= _HALF
    cross += high_low & _LOW
    cross += left_low * right_high
    high_low >>= _HALF
    cross >>= _HALF
    high_low += cross
    high_low += left_high * right_high
    high_low ^= left * right
    return high_low
