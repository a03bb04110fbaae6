"""Joins that spread rows at random: matrix ("Dynamic") and biclique ("Bi", "Bi6") of mnrt-2017 §5.1.5."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.grouping import BicliqueRouter, MatrixRouter
from ckpt.rebalance.hashing import mixed, spread
from ckpt.rebalance.loads import I32, U64
from ckpt.rebalance.simulate.joins.rows import I64
from ckpt.rebalance.simulate.joins.scheme import Change, Stored
from ckpt.rebalance.splitting import Equal, JoinRouter, Predicate, Targets
from ckpt.rebalance.table import Side


class MatrixScheme:
    """ "Dynamic": every row is copied to a row or a column of a matrix, which grows from n to 4n instances.

    Growing cuts each cell into four. The instance of a cell keeps one of them with the rows that belong
    there, and three new instances get theirs.
    """

    def __init__(self, *, capacity_rows: int | None = None, rows: int = 1, columns: int = 1) -> None:
        self._capacity_rows = capacity_rows
        self._matrix = MatrixRouter(rows, columns)
        self._instance_of_cell: I64 = np.arange(rows * columns).reshape(rows, columns)
        self.router: JoinRouter = _Relabelled(self._matrix, self._instance_of_cell)

    @property
    def instances(self) -> int:
        """The cells of the matrix."""
        return self._instance_of_cell.size

    def adapt(self, stored: Stored) -> Change | None:
        """Grows while the mean instance holds more than it can."""
        if self._capacity_rows is None or len(stored) <= self._capacity_rows * self.instances:
            return None
        while len(stored) > self._capacity_rows * self.instances:
            self._grow()
            stored = stored.placed(self.router)
        return Change(stored)

    def _grow(self) -> None:
        cells, count = self._instance_of_cell, self._instance_of_cell.size
        grown = np.empty((2 * cells.shape[0], 2 * cells.shape[1]), np.int64)
        for number, corner in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
            grown[corner[0] :: 2, corner[1] :: 2] = cells + number * count
        self._instance_of_cell = grown
        self._matrix = MatrixRouter(*grown.shape)
        self.router = _Relabelled(self._matrix, grown)


class _Relabelled:
    """A matrix whose cells are not numbered in order."""

    def __init__(self, matrix: MatrixRouter, instance_of_cell: I64) -> None:
        self._matrix, self._instances = matrix, instance_of_cell.ravel().astype(np.int32)

    def store(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        targets = self._matrix.store(side, values, salts)
        return Targets(targets.offsets, self._instances[targets.instances])

    def probe(self, side: Side, values: npt.NDArray[np.generic], salts: U64) -> Targets:
        return self.store(side, values, salts)


class BicliqueScheme:
    """ "Bi" (one group a side) and "Bi6" (six): a row is stored once, and probes a group of the other side.

    A group whose members hold more than they can gets one more member. Rows lie in a group at random, so
    the new member takes an equal share of every old one's, and no other row moves.
    """

    def __init__(
        self,
        groups: int = 1,
        *,
        members: int = 1,
        capacity_rows: int | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        if min(groups, members) < 1:
            raise ConfigError(f"a biclique has groups with members, not {groups} with {members}")
        self._capacity_rows = capacity_rows
        self._predicate = Equal() if predicate is None else predicate
        numbers = np.arange(2 * groups * members).reshape(2, groups, members).tolist()
        self._members: dict[Side, list[list[int]]] = {Side.LEFT: numbers[0], Side.RIGHT: numbers[1]}
        self.router: JoinRouter = self._routed()

    @property
    def instances(self) -> int:
        """The members of all groups."""
        return sum(len(group) for side in self._members.values() for group in side)

    def adapt(self, stored: Stored) -> Change | None:
        """Each group grows by what it holds itself."""
        if self._capacity_rows is None:
            return None
        instance = stored.instance.copy()
        before = self.instances
        for groups in self._members.values():
            for members in groups:
                at = np.flatnonzero(np.isin(stored.instance, members))
                old = len(members)
                while len(at) > self._capacity_rows * len(members):
                    members.append(self.instances)
                if len(members) > old:
                    instance[at] = _shared(instance[at], stored.salt[at], old, members)
        if self.instances == before:
            return None
        self.router = self._routed()
        return Change(Stored(stored.row, instance, stored.side, stored.value, stored.salt))

    def _routed(self) -> BicliqueRouter:
        return BicliqueRouter.of_groups(self._members[Side.LEFT], self._members[Side.RIGHT], self._predicate)


def _shared(instance: I32, salts: U64, old: int, members: list[int]) -> I32:
    """Where the rows of a group are once the members after the first `old` have their equal shares."""
    drawn = (spread(mixed(salts) ^ np.uint64(len(members))) * len(members)).astype(np.int64)
    return np.where(drawn < old, instance, np.array(members)[drawn]).astype(np.int32)
