"""What generators share: keys in the order that intervals have, drawing by weight, and checked arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name, hash_longs, identities, mixed
from ckpt.rebalance.loads import F64, U64
from ckpt.rebalance.simulate.interval import Interval

I64 = npt.NDArray[np.int64]

Columns = dict[str, npt.NDArray[Any]]
"""Rows of one interval, column by column, all of one length."""

_HIGH_HALF = np.uint64(0xFFFF_FFFF_0000_0000)


class KeySet:
    """The keys of a stream by number, and their order by identity.

    Examples
    --------
    >>> keys = KeySet(identities(["be", "or", "not"]), ["be", "or", "not"])
    >>> interval = keys.interval(np.array([5.0, 0, 2]), np.array([5.0, 0, 2]), np.zeros(3))
    >>> sorted(interval.names.tolist()), float(interval.tuples.sum())
    (['be', 'not'], 7.0)
    """

    def __init__(self, ids: U64, names: Sequence[Name] | None = None) -> None:
        self.order = np.argsort(ids)
        """The numbers of the keys, ascending by identity."""
        self.keys: U64 = ids[self.order]
        self._names: npt.NDArray[np.object_] | None = None
        if names is not None:
            self._names = np.empty(len(names), object)
            self._names[:] = names

    @classmethod
    def named(cls, names: Sequence[Name]) -> KeySet:
        """Keys with these names; their numbers are the positions."""
        return cls(identities(names), names)

    @classmethod
    def numbered(cls, count: int) -> KeySet:
        """Keys whose names are the numbers from 0; in Spark, a column of longs has the same homes."""
        numbers = np.arange(count)
        high = mixed(numbers.astype(np.uint64)) & _HIGH_HALF
        return cls(high | hash_longs(numbers).astype(np.uint64))

    def __len__(self) -> int:
        return len(self.keys)

    def interval(self, tuples: F64, cost: F64, state: F64) -> Interval:
        """The interval with these columns, given by number; keys without tuples are not in it."""
        came = self.order[tuples[self.order] > 0]
        keys = self.keys[tuples[self.order] > 0]
        names = None if self._names is None else self._names[came]
        return Interval(keys, tuples[came], cost[came], state[came], names)

    def text(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """The names of these keys."""
        assert self._names is not None, "these keys have no names"
        return np.asarray(self._names[numbers])


def word(number: int) -> str:
    """A word that can be pronounced, another one for each number.

    Examples
    --------
    >>> [word(n) for n in (0, 1, 100, 12345)]
    ['ba', 'be', 'beba', 'begoma']
    """
    syllable = "bcdfghjklmnprstvwxyz"[number % 100 // 5] + "aeiou"[number % 5]
    return (word(number // 100) if number >= 100 else "") + syllable


def drawn(rng: np.random.Generator, weights: F64, count: int) -> I64:
    """So many numbers, each by its weight, independently of each other."""
    edges = np.cumsum(weights)
    return np.asarray(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), np.int64)


def times(rng: np.random.Generator, number: int, interval_s: float, count: int) -> F64:
    """When so many rows of interval `number` come: independent and uniform, in order."""
    return np.asarray((number + np.sort(rng.random(count))) * interval_s)


def counts(numbers: npt.NDArray[Any], keys: int) -> F64:
    """How often each key is there."""
    return np.bincount(numbers, minlength=keys).astype(np.float64)


def at_least_one(**given: int) -> None:
    """Refuses what counts things and has none."""
    for name, value in given.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")


def not_negative(**given: float) -> None:
    """Refuses amounts below 0, and what is no number."""
    _check(given, 0.0, math.inf)


def fractions(**given: float) -> None:
    """Refuses what is not from 0 to 1."""
    _check(given, 0.0, 1.0)


def _check(given: Mapping[str, float], low: float, high: float) -> None:
    for name, value in given.items():
        if not (math.isfinite(value) and low <= value <= high):
            wanted = "a number from 0" if high == math.inf else f"a number from {low:g} to {high:g}"
            raise ConfigError(f"{name} must be {wanted}, not {value}")
