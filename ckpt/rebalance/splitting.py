"""Routing rows of a join whose keys may be split: two rows that must meet do so on exactly one instance.

Every router of a join answers two questions about a row. `store`: which instances keep it, for rows that come
later. `probe`: on which instances it is compared with the rows of the other side that are kept there. Of two
rows that must meet, the later one probes, so the router's promise is

    |store(earlier) ∩ probe(later)| = 1,    whichever side is the earlier one.

`TableRouter` is Algorithm 1 of mnrt-2017 on our table. Names of the paper: Y the routing table, Y(k, p) the
instances of the keys that satisfy p with k, F(k, p) the same by the base hash, ONE picks by shares, ALL takes
every part. Deviations:

- Line 8 puts the table's instances into C and Line 9 those of the base hash into M, and Line 10 returns M
  alone. Both are needed: keys that satisfy p are partly in the table, partly not.
- ONE is decided by the row's salt, a hash of its bytes, so that a task that runs again sends it where the
  first attempt did.
- A split may divide the rows of one side only (`Side.LEFT`, `Side.RIGHT`), as Spark needs it, where a row is
  stored and compared in one step. Rows of the other side are then stored at every part, and a row of the
  divided side probes only the part where it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import U32, hash_longs, spread
from ckpt.rebalance.loads import I32, U64
from ckpt.rebalance.table import RoutingTable, Side, Split

I64 = npt.NDArray[np.int64]

MAX_BAND = 1 << 12
"""A band predicate asks for each key in its band; a wider one should be sent to every instance."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """For each row the instances that it goes to, ascending: `instances[offsets[i] : offsets[i + 1]]`."""

    offsets: I64
    instances: I32

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, row: int) -> list[int]:
        """The instances of one row."""
        return list(map(int, self.instances[self.offsets[row] : self.offsets[row + 1]]))

    @classmethod
    def one_each(cls, instances: npt.NDArray[np.integer]) -> Targets:
        """Every row goes to one instance."""
        return cls(np.arange(len(instances) + 1), instances.astype(np.int32))

    @classmethod
    def of_pairs(cls, rows: I64, instances: npt.NDArray[np.integer], count: int) -> Targets:
        """From (row, instance) pairs in any order, which may repeat."""
        width = int(instances.max(initial=0)) + 1
        cells = np.unique(rows * width + instances)
        return cls(np.searchsorted(cells // width, np.arange(count + 1)), (cells % width).astype(np.int32))


class Predicate(Protocol):
    """Which keys a row must meet, by the values of its own key column."""

    def identities(self, values: npt.NDArray[np.generic]) -> U64:
        """The identity of each row's key."""

    def partners(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
        """One row per value: the identities of all keys that it must meet, in as many columns as needed."""


class Equal:
    """Rows of equal keys meet. Values are identities."""

    def identities(self, values: npt.NDArray[np.generic]) -> U64:
        """The values themselves."""
        return values.astype(np.uint64)

    def partners(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
        """Each key meets itself."""
        return self.identities(values)[:, None]


class Band:
    """Rows meet whose whole-number keys differ by at most `width`, such as `|a.day - b.day| <= 1`.

    `hashed` is the base hash of the key column: `hash_longs` for a bigint, `hash_ints` for an int.
    """

    def __init__(self, width: int, hashed: Callable[[I64], U32] = hash_longs) -> None:
        if not 0 <= width <= MAX_BAND:
            raise ConfigError(f"a band is 0 to {MAX_BAND} wide, not {width}")
        self._offsets = np.arange(-width, width + 1, dtype=np.int64)
        self._hashed = hashed

    def identities(self, values: npt.NDArray[np.generic]) -> U64:
        """The base hash of each value."""
        return self._hashed(values.astype(np.int64)).astype(np.uint64)

    def partners(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
        """The identities of the keys from `value - width` to `value + width`."""
        whole = values.astype(np.int64)[:, None] + self._offsets[None, :]
        return self.identities(whole.ravel()).reshape(whole.shape)


class JoinRouter(Protocol):
    """Where rows of a join are stored and compared; the promise is at the top of this module.

    `side` is LEFT or RIGHT. `salts` are hashes of the rows' bytes.
    """

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """Which instances keep each row."""

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """On which instances each row is compared with the stored rows of the other side."""


class TableRouter:
    """Storage and operation routing by a table with split keys.

    Examples
    --------
    >>> table = RoutingTable(4, splits=(Split(7, (0, 3), (0.5, 0.5), Side.LEFT),))
    >>> router, key, salt = TableRouter(table), np.array([7, 7]), np.array([1, 2], np.uint64)
    >>> [router.store(Side.LEFT, key, salt).of(row) for row in (0, 1)]
    [[3], [0]]
    >>> router.probe(Side.RIGHT, key, salt).of(0)
    [0, 3]
    """

    def __init__(self, table: RoutingTable, predicate: Predicate | None = None) -> None:
        self._table = table
        self._predicate = Equal() if predicate is None else predicate
        one_sided = any(split.side is not Side.BOTH for split in table.splits)
        if one_sided and not isinstance(self._predicate, Equal):
            raise ConfigError("a split of one side's rows works for equal keys only; split both sides")

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """STORAGEROUTING: one instance, by shares; of the undivided side of a split, every part."""
        keys = self._predicate.identities(values)
        chosen = self._table.place(keys)
        rows, parts = [], []
        for split in self._table.splits:
            at = np.flatnonzero(keys == np.uint64(split.key))
            if split.side in (Side.BOTH, side):
                chosen[at] = _by_share(split, salts[at])
            else:
                rows.append(np.repeat(at, len(split.instances)))
                parts.append(np.tile(np.array(split.instances, np.int32), len(at)))
        return _with_more(chosen, rows, parts)

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """OPERATORROUTING: every instance that stores a row which this one must meet."""
        partners = self._predicate.partners(values)
        count, width = partners.shape
        chosen = self._table.place(partners.ravel()).reshape(count, width)
        rows = [np.repeat(np.arange(count), width - 1)]
        more = [chosen[:, 1:].ravel()]
        first = chosen[:, 0].copy()
        for split in self._table.splits:
            at, column = np.nonzero(partners == np.uint64(split.key))
            if split.side is side:  # equal keys only, so this is the row's own key
                first[at] = _by_share(split, salts[at])
            else:
                rows.append(np.repeat(at, len(split.instances)))
                more.append(np.tile(np.array(split.instances, np.int32), len(column)))
        return _with_more(first, rows, more)


def _with_more(one_each: I32, rows: list[I64], instances: list[I32]) -> Targets:
    """One instance for each row, and these ones for some rows in addition."""
    count = len(one_each)
    if not sum(map(len, rows)):
        return Targets.one_each(one_each)
    all_rows = np.concatenate([np.arange(count), *rows])
    return Targets.of_pairs(all_rows, np.concatenate([one_each, *instances]), count)


def _by_share(split: Split, salts: U64) -> I32:
    """ONE: each part in proportion to its share, decided by the salt alone."""
    ends = np.cumsum(split.shares)
    drawn = spread(salts) * ends[-1]
    at = np.minimum(np.searchsorted(ends, drawn, side="right"), len(ends) - 1)
    return np.asarray(np.array(split.instances, np.int32)[at])
