"""What a join scheme is: where rows go now, and what becomes of stored rows when that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.loads import I32, U64
from ckpt.rebalance.simulate.joins.rows import I8, I64
from ckpt.rebalance.splitting import JoinRouter, Targets
from ckpt.rebalance.table import Side


@dataclass(frozen=True, eq=False)
class Stored:
    """Every row that is stored anywhere, once per copy."""

    row: I64
    """The number of the row in the stream."""
    instance: I32
    side: I8
    value: npt.NDArray[np.int64]
    salt: U64

    def __len__(self) -> int:
        return len(self.row)

    def once(self) -> Stored:
        """Each row once, in the order of the stream; its instance is that of one of its copies."""
        _, first = np.unique(self.row, return_index=True)
        return self.take(first)

    def take(self, at: I64) -> Stored:
        """These copies."""
        return Stored(self.row[at], self.instance[at], self.side[at], self.value[at], self.salt[at])

    def placed(self, router: JoinRouter) -> Stored:
        """The same rows where a router stores them."""
        rows, parts = self.once(), []
        for side in (Side.LEFT, Side.RIGHT):
            mine = rows.take(np.flatnonzero(rows.side == side))
            targets = router.store(side, mine.value, mine.salt)
            copies = mine.take(row_of(targets))
            parts.append(Stored(copies.row, targets.instances, copies.side, copies.value, copies.salt))
        return Stored.joined(*parts)

    @classmethod
    def joined(cls, *parts: Stored) -> Stored:
        """The copies of all parts."""
        names = ("row", "instance", "side", "value", "salt")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class Change:
    """What a scheme has decided."""

    stored: Stored
    """Where all stored rows are from now on."""
    plan_s: float = 0.0
    """How long the decision took, by the clock of this machine: the only figure that is not exact."""


class Scheme(Protocol):
    """Routes rows by its `router`; `adapt` may replace that, and says where stored rows have to be then."""

    router: JoinRouter

    @property
    def instances(self) -> int:
        """How many instances are in use; they are numbered from 0."""

    def adapt(self, stored: Stored) -> Change | None:
        """Called between intervals; None: nothing changes.

        The answer and the new router keep the promise of `splitting`: a later row probes exactly one of the
        instances where a row that it must meet is stored.
        """


def row_of(targets: Targets) -> I64:
    """For each of the instances of all rows, the position of its row."""
    return np.repeat(np.arange(len(targets)), np.diff(targets.offsets))
