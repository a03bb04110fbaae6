"""Which numbers are drawn: the distributions of YCSB, with its constants, from a seed.

Numbers are drawn in blocks, since one at a time would cost more than an operation on a fast store. The
zipfian one is the method of Gray et al. ("Quickly generating billion-record synthetic databases", SIGMOD
1994), as in YCSB: exact for the two most popular numbers, close for the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt_bench.ycsb.settings import MOST_BYTES

Numbers = npt.NDArray[np.int64]

ZIPFIAN_CONSTANT = 0.99
SCRAMBLED_ITEMS = 10_000_000_000
SCRAMBLED_ZETA = 26.46902820178302
"""The zeta of so many items and that constant, which takes minutes to compute; YCSB has the same figure."""
BLOCK = 1024

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 1099511628211
_FNV_POWERS = [pow(_FNV_PRIME, n, 1 << 64) for n in range(9)]
_MASK = (1 << 64) - 1
_ZETA_TERMS = 1 << 20


def fnv64(number: int) -> int:
    """YCSB's hash of one number: FNV-1a over its eight bytes, lowest first, without its sign.

    Examples
    --------
    >>> fnv64(0), fnv64(1)
    (6284781860667377211, 8517097267634966620)
    """
    hashed, octets = _FNV_OFFSET, 8
    while number:
        hashed = (hashed ^ number & 0xFF) * _FNV_PRIME & _MASK
        number >>= 8
        octets -= 1
    hashed = hashed * _FNV_POWERS[octets] & _MASK  # to go on with zeroes only multiplies
    return hashed if hashed < 1 << 63 else (1 << 64) - hashed


def fnv64_many(numbers: Numbers) -> Numbers:
    """`fnv64` of each.

    Examples
    --------
    >>> fnv64_many(np.array([0, 1])).tolist() == [fnv64(0), fnv64(1)]
    True
    """
    left = numbers.astype(np.uint64)
    hashed = np.full(len(numbers), _FNV_OFFSET, np.uint64)
    for _ in range(8):
        hashed ^= left & np.uint64(0xFF)
        hashed *= np.uint64(_FNV_PRIME)
        left >>= np.uint64(8)
    return np.abs(hashed.view(np.int64))


def zeta(items: int, constant: float, *, above: int = 0) -> float:
    """The sum of 1/i^constant for i from above+1 to items.

    Examples
    --------
    >>> round(zeta(1000, 0.99), 6) == round(zeta(10, 0.99) + zeta(1000, 0.99, above=10), 6)
    True
    """
    each = min(items, max(above, _ZETA_TERMS))
    total = float(np.sum(np.arange(above + 1, each + 1, dtype=np.float64) ** -constant))
    if items > each:
        # Euler and Maclaurin: from a million on the integral and the ends are as exact as the sum
        total += (items ** (1 - constant) - each ** (1 - constant)) / (1 - constant)
        total += (items**-constant - each**-constant) / 2
        total -= constant * (items ** (-constant - 1) - each ** (-constant - 1)) / 12
    return total


class Generator(Protocol):
    """A distribution of whole numbers."""

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        """So many numbers, independent of each other."""


class Constant:
    """Always the same number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        del random
        return np.full(count, self.number, np.int64)


class Uniform:
    """Every number from low to high is as likely."""

    def __init__(self, low: int, high: int) -> None:
        if high < low:
            raise ConfigError(
                f"there is no number from {low} to {high} to draw; check recordcount and lengths"
            )
        self._low, self._high = low, high

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return random.integers(self._low, self._high, count, endpoint=True)


class Zipfian:
    """Low is the most likely number, its successor the next, and so on to high."""

    def __init__(
        self, low: int, high: int, constant: float = ZIPFIAN_CONSTANT, zetan: float | None = None
    ) -> None:
        if high < low:
            raise ConfigError(
                f"there is no number from {low} to {high} to draw; check recordcount and lengths"
            )
        self._low, self._items, self._constant = low, high - low + 1, constant
        self._for = self._first = self._items
        self._zetan = zeta(self._items, constant) if zetan is None else zetan
        self._alpha = 1 / (1 - constant)
        self._zeta2 = zeta(2, constant)
        self._second = 1 + 0.5**constant
        self._eta = self._eta_of(self._zetan)

    def _eta_of(self, zetan: float) -> float:
        rest = 1 - self._zeta2 / zetan
        return (1 - (2 / self._first) ** (1 - self._constant)) / rest if rest else 0.0

    def grow(self, items: int) -> None:
        """There are so many items now, never fewer than before."""
        if items > self._for:
            self._zetan += zeta(items, self._constant, above=self._for)
            self._eta = self._eta_of(self._zetan)
            self._for = self._items = items

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        u = random.random(count)
        ranks = (self._items * (self._eta * u - self._eta + 1) ** self._alpha).astype(np.int64)
        scaled = u * self._zetan
        ranks[scaled < self._second] = 1
        ranks[scaled < 1] = 0
        return self._low + ranks

    def cumulative(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How likely a number at or below low + rank is."""
        u = (((ranks + 1) / self._items) ** (1 / self._alpha) + self._eta - 1) / self._eta
        u = np.maximum(u, self._second / self._zetan)
        return np.where(ranks < 1, 1 / self._zetan, np.minimum(u, 1.0))


class ScrambledZipfian:
    """As popular as zipfian numbers of ten thousand million items, scattered from low to high by a hash."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._items = low, high - low + 1
        self.ranks = Zipfian(0, SCRAMBLED_ITEMS, ZIPFIAN_CONSTANT, SCRAMBLED_ZETA)

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return self._low + fnv64_many(self.ranks.draw(random, count)) % self._items


class Hotspot:
    """A share of the operations goes evenly to the first share of the numbers, the rest to the others."""

    def __init__(self, low: int, high: int, data_fraction: float, operation_fraction: float) -> None:
        self._low, self._operations = low, operation_fraction
        self._hot = int((high - low + 1) * data_fraction)
        self._cold = high - low + 1 - self._hot
        if (self._hot < 1 and operation_fraction > 0) or (self._cold < 1 and operation_fraction < 1):
            raise ConfigError(
                f"hotspotdatafraction={data_fraction:g} of {high - low + 1} records leaves none for "
                f"hotspotopnfraction={operation_fraction:g}; change one of the three"
            )

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        hot = random.random(count) < self._operations
        chosen = random.integers(0, np.where(hot, max(self._hot, 1), max(self._cold, 1)))
        return self._low + chosen + np.where(hot, 0, self._hot)


class Exponential:
    """Distances from the newest record: that percentage of them lies within the range."""

    def __init__(self, percentile: float, range_: float) -> None:
        self._mean = -range_ / float(np.log(1 - percentile / 100))

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return random.exponential(self._mean, count).astype(np.int64)


class Histogram:
    """Multiples of a block size, as often as a file says: `BlockSize<tab>n`, then `bucket<tab>weight`."""

    def __init__(self, path: str) -> None:
        try:
            self._sizes, weights = _sizes_and_weights(path)
        except OSError as error:
            raise ConfigError(
                f"fieldlengthhistogram: cannot read {path}: {(error.strerror or str(error)).lower()}; name a "
                f"file of `BlockSize<tab>bytes` and lines of `bucket<tab>weight`"
            ) from error
        except (IndexError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"fieldlengthhistogram: {path} is no histogram; its first line is `BlockSize<tab>bytes`, the "
                f"others are `bucket<tab>weight`, in numbers from 0 on, and one weight is more than 0"
            ) from error
        self._share = weights / weights.sum()
        self.longest = int(self._sizes.max())
        if self.longest > MOST_BYTES:
            raise ConfigError(
                f"fieldlengthhistogram: {path} has fields of {self.longest:,} bytes; 1 GiB is the most"
            )

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return random.choice(self._sizes, count, p=self._share)


def _sizes_and_weights(path: str) -> tuple[Numbers, npt.NDArray[np.float64]]:
    with open(path, encoding="utf-8") as file:
        head, *lines = [line.split("\t") for line in file.read().splitlines() if line.strip()]
    found = {int(bucket): float(weight) for bucket, weight in lines}
    sizes = np.array([(bucket + 1) * int(head[1]) for bucket in found], np.int64)
    weights = np.array(list(found.values()))
    if head[0] != "BlockSize" or sizes.min() < 1 or weights.min() < 0 or not 0 < weights.sum() < np.inf:
        raise ValueError(path)
    return sizes, weights


class InsertedKeys:
    """Numbers for new records; `last` is the highest below which every one is inserted.

    Several threads insert at once, and none may read what another has not written yet.
    """

    def __init__(self, first: int) -> None:
        self.last = first - 1
        self._next = first
        self._ahead: set[int] = set()
        self._lock = threading.Lock()

    def take(self) -> int:
        """The number of the next record to insert."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def acknowledge(self, number: int) -> None:
        """That record may be read from now on."""
        with self._lock:
            self._ahead.add(number)
            while self.last + 1 in self._ahead:
                self.last += 1
                self._ahead.remove(self.last)


def endless(generator: Generator, random: np.random.Generator) -> Iterator[int]:
    """One number after the other."""
    while True:
        yield from generator.draw(random, BLOCK).tolist()
