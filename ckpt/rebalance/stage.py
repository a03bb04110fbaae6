"""The part of a plan that is carried out now: within the caps, and never with a higher peak than before.

All moves of one key go together. Keys that shrink the table come first, then those that move the most load
for their bytes. A move is left for later if it exceeds a cap or the table's limit, or if its target would
have more load than the fullest of the plan's instances has now: half of a swap can be worse than none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.loads import F64, U64, sums
from ckpt.rebalance.planning import Kind, Plan
from ckpt.rebalance.table import RoutingTable, find

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Caps:
    """What may move in one interval; None: any number."""

    moves: int | None = None
    state_bytes: float | None = None


@dataclass(frozen=True, eq=False)
class Stage:
    """What is carried out of a plan."""

    plan: Plan
    keys: U64
    """Keys that move, ascending."""
    table: RoutingTable
    moves: int
    state_bytes: float
    before: F64
    """The load of each instance if nothing moves."""
    after: F64
    """The load of each instance once these keys have moved."""
    whole: bool
    """Nothing of the plan is left for later."""

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """Which instances have another load afterwards."""
        return ~np.isclose(self.before, self.after, rtol=1e-12)

    @property
    def gain(self) -> float:
        """By how much the peak of the changed instances falls, as a fraction of their mean load."""
        return peak(self.before, self.changed) - peak(self.after, self.changed)


def peak(loads: F64, instances: npt.NDArray[np.bool_]) -> float:
    """The highest load among some instances above their mean, as a fraction of it; 0 if they have none."""
    some = loads[instances]
    return float(some.max() / some.mean()) - 1 if some.any() else 0.0


def stage(plan: Plan, table: RoutingTable, caps: Caps, kept_split: frozenset[int] = frozenset()) -> Stage:
    """What may be carried out now; keys of `kept_split` are not merged."""
    loads, moves = plan.loads, plan.moves
    before = table.instance_loads(loads)
    left_out = (moves.kind == Kind.MERGE.value) & np.isin(moves.key, np.array([*kept_split], np.uint64))
    at, of_unit = np.unique(moves.at, return_inverse=True)
    parts, blocked = np.bincount(of_unit), sums(of_unit, left_out.astype(np.float64), 0) > 0
    state = sums(of_unit, moves.state_bytes, 0)
    change = _Change(plan, table, at)
    if table.instances != plan.table.instances:
        # Every key without an entry moves, listed or not, so there is no part that could be carried out.
        return _stage(plan, plan.table, before, plan.loads_after, at, parts, state, whole=True)
    if caps == Caps() and not blocked.any():
        return _stage(plan, plan.table, before, change.loads(before), at, parts, state, whole=True)
    now, ceiling = before.copy(), float(before[change.touched].max(initial=0))
    entries, moved, travelled = len(table), 0, 0.0
    chosen = []
    for unit in change.in_order(state):
        if caps.moves is not None and moved >= caps.moves:
            break
        grown = int(change.entries[unit])
        within = (
            not blocked[unit]
            and (caps.moves is None or moved + parts[unit] <= caps.moves)
            and (caps.state_bytes is None or travelled + state[unit] <= caps.state_bytes)
            and (plan.table_limit is None or grown <= 0 or entries + grown <= plan.table_limit)
        )
        if not within:
            continue
        delta = change.of(unit)
        after = now + delta
        if (after[delta > 0] <= ceiling).all():
            chosen.append(unit)
            now, entries = after, entries + grown
            moved, travelled = moved + int(parts[unit]), travelled + float(state[unit])
    picked = np.array(sorted(chosen), np.int64)
    adopted = table.adopting(plan.table, loads.keys[at[picked]])
    whole = len(picked) == len(at)
    return _stage(plan, adopted, before, now, at[picked], parts[picked], state[picked], whole=whole)


def _stage(
    plan: Plan, table: RoutingTable, before: F64, after: F64, at: I64, parts: I64, state: F64, *, whole: bool
) -> Stage:
    keys = np.sort(plan.loads.keys[at])
    width = max(len(before), len(after))
    before, after = (np.pad(loads, (0, width - len(loads))) for loads in (before, after))
    return Stage(plan, keys, table, int(parts.sum()), float(state.sum()), before, after, whole)


class _Change:
    """What each key of a plan does to loads and table when it moves."""

    def __init__(self, plan: Plan, table: RoutingTable, at: I64) -> None:
        loads = plan.loads.take(at)
        self._cost = loads.cost
        self._gives = table.shares(loads)
        self._takes = plan.table.shares(plan.applied().take(at))
        self._count = table.instances
        moved = np.concatenate([self._gives[1], self._takes[1]])
        self.touched = np.unique(moved[moved < table.instances])
        self.entries = _entries(plan.table, loads.keys) - _entries(table, loads.keys)

    @cached_property
    def _rows(self) -> list[list[I64]]:
        """Of what is given and what is taken, the rows of each unit."""
        return [self._by_unit(shares) for shares in (self._gives, self._takes)]

    def of(self, unit: int) -> F64:
        """What the load of each instance changes by."""
        change = np.zeros(self._count)
        for rows, sign, (_, instances, shares) in zip(
            self._rows, (-1, 1), (self._gives, self._takes), strict=True
        ):
            mine = rows[unit]
            np.add.at(change, instances[mine], sign * self._cost[unit] * shares[mine])
        return change

    def loads(self, before: F64) -> F64:
        """The loads once all keys have moved."""
        after = before.copy()
        for sign, (keys, instances, shares) in ((-1, self._gives), (1, self._takes)):
            after += sign * sums(instances, self._cost[keys] * shares, len(before))
        return after

    def in_order(self, state: F64) -> list[int]:
        """Units that shrink the table first, then by load for bytes; ties by their place in the loads."""
        with np.errstate(divide="ignore", invalid="ignore"):
            worth = np.where(state > 0, self._cost / state, np.inf)
        return list(map(int, np.lexsort((np.arange(len(state)), -worth, self.entries >= 0))))

    def _by_unit(self, shares: tuple[I64, npt.NDArray[np.int32], F64]) -> list[I64]:
        order = np.argsort(shares[0], kind="stable")
        ends = np.searchsorted(shares[0][order], np.arange(1, len(self._cost)))
        return np.split(order, ends)


def _entries(table: RoutingTable, keys: U64) -> I64:
    """How many entries of the table each key has."""
    counts = (find(table.keys, keys) >= 0).astype(np.int64)
    parts = np.array([len(split.instances) for split in table.splits], np.int64)
    at = find(table.split_keys, keys)
    counts[at >= 0] = parts[at[at >= 0]]
    return counts
