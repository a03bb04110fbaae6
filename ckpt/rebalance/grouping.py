"""Routers that need no table: matrix, biclique and partial key grouping, with the promise of `splitting`.

They spread rows of one key over several instances from the start and pay for it with copies of each row: a
matrix of r by c instances stores a left row c times and a right row r times; a biclique stores each row once
and sends it to a whole group of the other side; partial key grouping stores a row on one of two instances and
sends it to both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import homes, spread
from ckpt.rebalance.loads import F64, I32, U64
from ckpt.rebalance.splitting import Equal, Predicate, Targets
from ckpt.rebalance.table import Side


class MatrixRouter:
    """Instances as a matrix: a left row goes to all of one row of it, a right row to all of one column.

    Any two rows share one cell, whatever the predicate, and every instance has the same load. "Dynamic" in
    mnrt-2017 §5.1.5, after Elseidy and others, "Scalable and adaptive online joins", 2014.
    """

    def __init__(self, rows: int, columns: int) -> None:
        if rows < 1 or columns < 1:
            raise ConfigError(f"a matrix has at least one row and one column, not {rows} by {columns}")
        self.rows, self.columns = rows, columns

    @classmethod
    def of_instances(cls, instances: int) -> MatrixRouter:
        """The squarest matrix that a power of two of these instances makes; the others stay unused.

        Examples
        --------
        >>> matrix = MatrixRouter.of_instances(15)
        >>> matrix.rows, matrix.columns
        (2, 4)
        """
        if instances < 1:
            raise ConfigError(f"a matrix needs at least one instance, not {instances}")
        power = instances.bit_length() - 1
        return cls(1 << power // 2, 1 << power - power // 2)

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """Every cell of a row, or of a column, that the salt decides."""
        del values
        if side is Side.LEFT:
            row = (spread(salts) * self.rows).astype(np.int64)
            cells = row[:, None] * self.columns + np.arange(self.columns)
        else:
            column = (spread(salts) * self.columns).astype(np.int64)
            cells = np.arange(self.rows) * self.columns + column[:, None]
        count, width = cells.shape
        return Targets(np.arange(count + 1) * width, cells.ravel().astype(np.int32))

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """Where it is stored."""
        return self.store(side, values, salts)


class BicliqueRouter:
    """One part of the instances stores left rows, the other right rows, each in groups by key.

    A row is stored on one instance of its group, which the salt decides, and probes a whole group of the
    other part: the one of its key, or the groups of all keys that a predicate wants. "Bi" has one group to a
    part, "Bi6" six (mnrt-2017 §5.1.5, after Lin and others, "Scalable distributed stream join processing").

    Instances 0 to `left - 1` store left rows, the `right` ones after them right rows.
    """

    def __init__(self, left: int, right: int, groups: int = 1, predicate: Predicate | None = None) -> None:
        if groups < 1 or min(left, right) < groups:
            raise ConfigError(
                f"each of {groups} groups needs an instance of {left} left and {right} right ones"
            )
        self._predicate = Equal() if predicate is None else predicate
        self._members = {
            Side.LEFT: [np.arange(group, left, groups) for group in range(groups)],
            Side.RIGHT: [left + np.arange(group, right, groups) for group in range(groups)],
        }

    @classmethod
    def of_groups(
        cls, left: Sequence[Sequence[int]], right: Sequence[Sequence[int]], predicate: Predicate | None = None
    ) -> BicliqueRouter:
        """Groups of these instances, which need not be equally large; each side has as many groups.

        Examples
        --------
        >>> router = BicliqueRouter.of_groups([[0, 4]], [[1, 2, 3]])
        >>> router.probe(Side.LEFT, np.array([7]), np.array([1], np.uint64)).of(0)
        [1, 2, 3]
        """
        members = [[np.array(group, np.int64) for group in side] for side in (left, right)]
        if len(left) != len(right) or not all(len(group) for side in members for group in side):
            raise ConfigError("both sides have as many groups, and each group has an instance")
        made = cls(len(left), len(right), len(left), predicate)
        made._members = {Side.LEFT: members[0], Side.RIGHT: members[1]}
        return made

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """One instance of the key's group on the row's own part."""
        group = self._predicate.identities(values) % np.uint64(len(self._members[side]))
        chosen = np.empty(len(group), np.int32)
        for number, members in enumerate(self._members[side]):
            at = np.flatnonzero(group == number)
            chosen[at] = members[(spread(salts[at]) * len(members)).astype(np.int64)]
        return Targets.one_each(chosen)

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """Every instance of the groups of the other part whose keys the row must meet."""
        del salts
        other = Side.RIGHT if side is Side.LEFT else Side.LEFT
        groups = self._predicate.partners(values) % np.uint64(len(self._members[other]))
        rows, instances = [], []
        for number, members in enumerate(self._members[other]):
            at = np.flatnonzero((groups == number).any(axis=1))
            rows.append(np.repeat(at, len(members)))
            instances.append(np.tile(members, len(at)))
        return Targets.of_pairs(np.concatenate(rows), np.concatenate(instances), len(groups))


class PartialKeyRouter:
    """Each key has two instances, and a row goes to the one of them that has had less so far.

    PKG (Nasir and others, "The power of both choices", 2015): the first is the key's home, the other follows
    from its hash. Which of them a row goes to depends on all rows before it, so a task that runs again may
    choose otherwise. A join probes both; PKG itself has no join, and mnrt-2017 rules one out.

    Examples
    --------
    >>> router, key = PartialKeyRouter(4), np.array([7, 7, 7, 7])
    >>> router.store(Side.LEFT, key, key.astype(np.uint64)).instances.tolist()
    [3, 0, 3, 0]
    """

    def __init__(self, instances: int, predicate: Predicate | None = None) -> None:
        if instances < 2:
            raise ConfigError(f"two choices need two instances, not {instances}")
        self.had: F64 = np.zeros(instances)
        """How many rows each instance has had."""
        self._predicate = Equal() if predicate is None else predicate

    def choices(self, keys: U64) -> tuple[I32, I32]:
        """The two instances of each key, which differ."""
        instances = len(self.had)
        first = homes(keys, instances)
        step = 1 + (spread(keys) * (instances - 1)).astype(np.int32)
        return first, (first + step) % np.int32(instances)

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """The choice with fewer rows so far, the first one if they are equal; rows count as they come."""
        del side, salts
        first, second = self.choices(self._predicate.identities(values))
        had = self.had.tolist()
        chosen = []
        for one, other in zip(first.tolist(), second.tolist(), strict=True):
            least = other if had[other] < had[one] else one
            had[least] += 1
            chosen.append(least)
        self.had = np.array(had)
        return Targets.one_each(np.array(chosen, np.int32))

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        """Both choices of every key that the row must meet."""
        del side, salts
        partners = self._predicate.partners(values)
        count, width = partners.shape
        both = np.stack(self.choices(partners.ravel()), axis=1).reshape(count, 2 * width)
        return Targets.of_pairs(np.repeat(np.arange(count), 2 * width), both.ravel(), count)
