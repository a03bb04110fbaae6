"""What `rb.plan` answers: the plan, its moves, the table afterwards, and how it explains itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.loads import Loads
from ckpt.rebalance.planning.problem import F64, I32, I64, U64, Splits
from ckpt.rebalance.table import RoutingTable


class Status(StrEnum):
    """What became of the limits. Everything but OK and NOOP comes with a reason."""

    OK = "ok"
    """Every load and the table are within their limits."""
    NOOP = "noop"
    """They were before, so nothing moves."""
    GIANT = "giant"
    """As OK, but for instances that hold a key that is heavier than any instance should be."""
    BEST_EFFORT = "best effort"
    """The table is within its limit, some load is not. Applying the plan may still be worth it."""
    INFEASIBLE = "infeasible"
    """The table would exceed its limit. The plan must not be applied."""


class Kind(StrEnum):
    """What a move does to a key."""

    MOVE = "move"
    """To another instance that is not its home; the table gets, or changes, an entry."""
    MOVE_BACK = "move back"
    """Home; the table loses an entry."""
    SWITCH = "switch"
    """To an instance that holds a backup: roles change, no state moves."""
    SPLIT = "split"
    """A part of the key goes to one more instance, or a larger part than before."""
    MERGE = "merge"
    """A part of the key rejoins another one."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Columns of what moves. A key is there once, but for split and merge: once for each part that moves."""

    at: I64
    """The key's position in the loads."""
    key: U64
    source: I32
    target: I32
    kind: npt.NDArray[np.str_]
    """Values of `Kind`."""
    state_bytes: F64
    """What travels; 0 for a switch."""

    def __len__(self) -> int:
        return len(self.key)

    def take(self, chosen: npt.NDArray[np.bool_]) -> Moves:
        """Some of these moves, in order."""
        return Moves(*(getattr(self, column.name)[chosen] for column in fields(self)))

    @classmethod
    def joined(cls, moves: Sequence[Moves]) -> Moves:
        """All these moves, in order."""
        return cls(*(np.concatenate([getattr(m, column.name) for m in moves]) for column in fields(cls)))


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan and everything that was counted about it, independently of the planner."""

    planner: str
    status: Status
    reason: str
    """Why the status is not OK or NOOP; also what the planner wants known."""
    moves: Moves
    table: RoutingTable
    """The successor of the table given: entries for exactly the keys whose place is not their home, and the
    splits. From which batch it is effective is for its user to say, by `dataclasses.replace`."""
    splits: Splits
    """Keys that are split afterwards; positions are those of the loads."""
    backups: I32 | None
    """Where backups are afterwards: a switch swaps the active instance with the backup."""
    loads: Loads
    """What was planned for."""
    loads_before: F64
    """Per instance; longer than `loads_after` if instances are given up."""
    loads_after: F64
    limits: F64
    """What each instance may come to."""
    table_limit: int | None
    migrated_bytes: float
    plan_s: float
    """How long the planner and the recount took."""
    bound: Callable[[], float] = field(repr=False)
    place: I32 = field(repr=False)
    """Where each key of the loads is afterwards; of a split key, its largest part."""

    @cached_property
    def lower_bound(self) -> float:
        """State that any plan within the limits has to move; computed when it is first asked for."""
        return self.bound()

    @property
    def applicable(self) -> bool:
        """True if the plan may be carried out: it moves something and does not break the table's limit."""
        return len(self.moves) > 0 and self.status is not Status.INFEASIBLE

    def applied(self) -> Loads:
        """The same loads with every key where the plan puts it."""
        old = self.loads
        return Loads(
            old.keys, old.cost, old.state, self.place, old.home, rows=old.rows, names=old.names, rest=old.rest
        )

    def explain(self) -> str:
        """The plan for people: what it does, what it costs, and the load of each instance before and after.

        Examples
        --------
        >>> import ckpt.rebalance as rb
        >>> loads = rb.Loads(["be", "or", "not"], [5, 3, 4], [80, 10, 40], [0, 0, 1], home=[0, 0, 1])
        >>> print(rb.plan(loads, "mixed", instances=2, theta=0.2).explain())
        mixed: ok
        1 of 3 keys moves (move 1), 10 of 130 bytes (7.7 %); at least 2.667 have to
        table: 1 entry, no limit
        instance  before   after   limit
               0       8       5     7.2
               1       4       7     7.2
        """
        kinds, counts = np.unique(self.moves.kind, return_counts=True)
        by_kind = ", ".join(f"{kind} {count}" for kind, count in zip(kinds, counts, strict=True)) or "nothing"
        total = float(self.loads.state.sum())
        share = 100 * self.migrated_bytes / total if total else 0.0
        moved = len(np.unique(self.moves.at))
        limit = "no limit" if self.table_limit is None else f"limit {self.table_limit}"
        lines = [
            f"{self.planner}: {self.status.value}" + (f": {self.reason}" if self.reason else ""),
            f"{moved} of {len(self.loads)} keys move{'s' if moved == 1 else ''} ({by_kind}), "
            f"{self.migrated_bytes:.6g} of {total:.6g} bytes ({share:.2g} %); "
            f"at least {self.lower_bound:.4g} have to",
            f"table: {len(self.table)} {'entry' if len(self.table) == 1 else 'entries'}, {limit}",
            "instance  before   after   limit",
        ]
        for d in range(len(self.loads_before)):
            after, bar = ("-", "-")
            if d < len(self.loads_after):
                after, bar = f"{self.loads_after[d]:.5g}", f"{self.limits[d]:.5g}"
            lines.append(f"{d:8}  {self.loads_before[d]:>6.5g}  {after:>6}  {bar:>6}")
        return "\n".join(lines)
