"""The base hash of a key: the same number, and so the same partition, as Spark gives it.

Spark places the rows of a shuffle by `pmod(hash(columns), partitions)`, where `hash` is Murmur3_x86_32 with
seed 42. It differs from the published Murmur3 in one place: the bytes behind the last whole word are mixed
one by one, each as a signed int of its own. Columns are chained: the hash of one is the seed of the next, and
a null leaves the seed as it is.

Here a key's identity is a uint64. Its low half is Spark's hash, which alone decides the key's home. For keys
that come from Spark that is all: the high half is 0, and keys with one hash are one key. Names that are known
here get the high half of their xxh3-64 on top, which keeps names apart that collide in 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Name = str | bytes

SEED = 42
"""What Spark starts with."""

_C1, _C2, _FIVE = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(5)
_ADDED, _MIX_1, _MIX_2 = np.uint32(0xE6546B64), np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_HIGH_HALF = np.uint64(0xFFFF_FFFF_0000_0000)


def homes(keys: U64, instances: int) -> npt.NDArray[np.int32]:
    """The instance of each key that no table places: Spark's `pmod(hash, instances)` of its low half.

    Examples
    --------
    >>> homes(np.array([7, 2**32 - 1], np.uint64), 5).tolist()
    [2, 4]
    """
    return np.asarray(keys.astype(np.uint32).view(np.int32) % np.int32(instances))


def identities(names: Sequence[Name]) -> U64:
    """The identity of each name; text is hashed as its UTF-8 bytes.

    Examples
    --------
    >>> low = identities(["be", b"be"]) & np.uint64(0xFFFFFFFF)
    >>> low.tolist() == hash_bytes([b"be", b"be"]).tolist()
    True
    """
    raw = [encoded(name) for name in names]
    high = np.fromiter(map(xxh3_64_intdigest, raw), np.uint64, len(raw)) & _HIGH_HALF
    return np.asarray(high | hash_bytes(raw))


def encoded(name: Name) -> bytes:
    """The bytes of a name; of text, its UTF-8."""
    return name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name


def hash_ints(values: npt.NDArray[np.int32], seeds: U32 | int = SEED) -> U32:
    """Spark's hash of each int; boolean, byte, short and date are ints to it."""
    return _finish(_mix(_seeded(seeds, len(values)), values.astype(np.int32, copy=False).view(np.uint32)), 4)


def hash_longs(values: npt.NDArray[np.int64], seeds: U32 | int = SEED) -> U32:
    """Spark's hash of each long; timestamps (microseconds) and small decimals (unscaled) are longs to it."""
    words = values.astype(np.int64, copy=False).view(np.uint64)
    hashes = _mix(_seeded(seeds, len(values)), words.astype(np.uint32))
    return _finish(_mix(hashes, (words >> np.uint64(32)).astype(np.uint32)), 8)


def hash_bytes(values: Sequence[bytes], seeds: U32 | int = SEED) -> U32:
    """Spark's hash of each string (in UTF-8) or binary.

    Examples
    --------
    >>> hash_bytes([b"Spark"]).view(np.int32).tolist()
    [228093765]
    """
    count = len(values)
    lengths = np.fromiter(map(len, values), np.int64, count)
    order = np.argsort(-lengths, kind="stable")  # so that those with a next word are always a prefix
    ordered = lengths[order]
    blob = np.frombuffer(b"".join(values) + bytes(4), np.uint8)
    starts = (np.cumsum(lengths) - lengths)[order]
    hashes = _seeded(seeds, count)[order]
    rising = -ordered
    for word in range(int(ordered[0]) // 4 if count else 0):
        active = int(np.searchsorted(rising, -4 * (word + 1), side="right"))
        at = starts[:active] + 4 * word
        value = sum(blob[at + i].astype(np.uint32) << np.uint32(8 * i) for i in range(4))
        hashes[:active] = _mix(hashes[:active], np.asarray(value, np.uint32))
    for tail in range(3):
        at_tail = np.flatnonzero(ordered % 4 > tail)
        byte = blob[starts[at_tail] + ordered[at_tail] // 4 * 4 + tail]
        hashes[at_tail] = _mix(hashes[at_tail], byte.view(np.int8).astype(np.int32).view(np.uint32))
    hashed = np.empty(count, np.uint32)
    hashed[order] = _finish(hashes, ordered.astype(np.uint32))
    return hashed


def mixed(values: U64) -> U64:
    """Other numbers, one for each, every bit of which depends on every bit (the finaliser of SplitMix64)."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def spread(values: U64) -> npt.NDArray[np.float64]:
    """A number from 0 to below 1 for each value, evenly spread even if the values are not."""
    return np.asarray((mixed(values) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _seeded(seeds: U32 | int, count: int) -> U32:
    return np.array(np.broadcast_to(np.asarray(seeds, np.uint32), (count,)))


def _rotate(values: U32, bits: int) -> U32:
    return np.asarray((values << np.uint32(bits)) | (values >> np.uint32(32 - bits)))


def _mix(hashes: U32, words: U32) -> U32:
    return np.asarray(_rotate(hashes ^ (_rotate(words * _C1, 15) * _C2), 13) * _FIVE + _ADDED)


def _finish(hashes: U32, length: U32 | int) -> U32:
    mixed = hashes ^ np.asarray(length, np.uint32)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint32(13))) * _MIX_2
    return np.asarray(mixed ^ (mixed >> np.uint32(16)))
