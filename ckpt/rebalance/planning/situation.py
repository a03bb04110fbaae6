"""From loads to the problem that a planner sees: what cannot be planned is taken out and accounted for.

Four kinds of keys are not a planner's to place, or not freely:

- **Giants** cost more than a whole instance may. No plan without splitting helps them, and no paper defines
  what to do. A giant is pinned where it is. Its instance may hold the giant and a load of θ·mean beside it;
  the others share what is left: `(1 + θ)` times *their* mean. That mean is lower than before, so keys may
  become giants by it; this is repeated until none does. If several giants share an instance, the one with the
  most state stays, and each other one goes to an instance of its own: home if that has no giant, else the
  least loaded one without.
- **Pinned** keys stay, because the caller says so.
- **Split** keys stay as they are, unless the planner declares that it can split.
- **Evacuated** keys are on an instance that is given up. They go home first and are then free; their state
  moves wherever they end, so the problem says that moving them costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.planning.problem import F64, I32, I64, SLACK, Bool, Problem, Splits
from ckpt.rebalance.table import RoutingTable


@dataclass(frozen=True, eq=False)
class Situation:
    """All that is given, checked, before anything is decided. Arrays have one entry per key of the loads."""

    loads: Loads
    instances: int
    theta: float
    two_sided: bool
    table_limit: int | None
    """How many entries are left for keys of the loads; None: as many as there are keys."""
    home: I32
    rest: F64
    backups: I32 | None
    pinned: Bool | None
    splits: Splits
    """Keys of the loads that are split now."""
    idle: RoutingTable
    """The current table without the keys that the loads list. These entries stay, and count."""

    @property
    def mean(self) -> float:
        """The mean load of an instance."""
        return float(self.rest.sum() + self.loads.cost.sum()) / self.instances


@dataclass(frozen=True, eq=False)
class Reduced:
    """A situation without what cannot be planned, and the way back to all keys."""

    problem: Problem
    free: I64 | None
    """Positions of the problem's keys among all keys; None: all of them, in order."""
    start: I32
    """Where each of all keys is before the planner is asked, after giants and evacuated keys were placed."""
    fixed_splits: Splits
    giants: I64
    limits: F64
    """What each instance may come to, giants included."""
    floors: F64

    def widen(self, target: I32) -> I32:
        """The target of every key, from the targets of the free ones."""
        if self.free is None:
            return target
        everywhere = self.start.copy()
        everywhere[self.free] = target
        return everywhere

    def widen_splits(self, splits: Splits | None) -> Splits:
        """All keys that are split, from those of the planner and those that it was not asked about."""
        if splits is None or not len(splits):
            return self.fixed_splits
        keys = splits.key if self.free is None else self.free[splits.key]
        ours, theirs = self.fixed_splits, len(self.fixed_splits.shares)
        merged = np.concatenate([ours.key, keys])
        order = np.argsort(merged, kind="stable")
        pattern = np.concatenate([ours.pattern, splits.pattern + theirs]).astype(np.int32)
        return Splits(merged[order], pattern[order], np.concatenate([ours.shares, splits.shares]))


def reduce(situation: Situation, *, splitting: bool) -> Reduced:
    """The problem of the keys that a planner may place; `splitting`: giants and split keys are among them."""
    loads, n = situation.loads, situation.instances
    start = (
        np.where(loads.instance < n, loads.instance, situation.home)
        if _evacuates(situation)
        else loads.instance
    )
    fixed = np.zeros(len(loads), np.bool_)
    if situation.pinned is not None:
        fixed |= situation.pinned
    if not splitting:
        fixed[situation.splits.key] = True
    limits, giants = _limits(situation, splitting)
    if len(giants):
        start = _part_giants(situation, giants, start)
        limits = _raise_for_giants(situation, giants, start, limits)
        fixed[giants] = True
    floors = (1 - SLACK) * (2 * situation.mean - limits) if situation.two_sided else np.zeros(n)
    held = fixed[situation.splits.key]
    inner, outer = _take(situation.splits, ~held), _take(situation.splits, held)
    free = np.flatnonzero(~fixed) if fixed.any() else None
    base = situation.rest + outer.loads(loads.cost)
    if free is not None:
        weights = np.where(fixed, loads.cost, 0.0)
        weights[outer.key] = 0.0
        base = base + np.bincount(start, weights=weights, minlength=n)
    load = situation.rest + np.bincount(start, weights=_without(loads.cost, situation.splits), minlength=n)
    load += situation.splits.loads(loads.cost)
    problem = _problem(situation, start, free, load, base, limits, np.maximum(floors, 0.0), inner)
    return Reduced(problem, free, start, outer, giants, limits, np.maximum(floors, 0.0))


def _problem(
    situation: Situation,
    start: I32,
    free: I64 | None,
    load: F64,
    base: F64,
    limits: F64,
    floors: F64,
    splits: Splits,
) -> Problem:
    loads, home, backups = situation.loads, situation.home, situation.backups
    state = loads.state
    if _evacuates(situation):
        state = np.where(loads.instance < situation.instances, state, 0.0)
    limit = len(loads) if situation.table_limit is None else situation.table_limit
    problem = Problem(
        loads.keys, loads.cost, state, start, home, load, base, limits, floors, max(limit, 0), backups, splits
    )
    if free is None:
        return problem
    others = np.ones(len(loads), np.bool_)
    others[free] = False
    taken = int(np.count_nonzero(others & (start != home)))
    return replace(
        problem,
        key=loads.keys[free],
        cost=loads.cost[free],
        state=state[free],
        current=start[free],
        home=home[free],
        backups=None if backups is None else backups[free],
        table_limit=max(limit - taken, 0),
        splits=replace(splits, key=np.searchsorted(free, splits.key)),
    )


def _without(cost: F64, splits: Splits) -> F64:
    """The costs, with those of split keys at 0."""
    if not len(splits):
        return cost
    whole = cost.copy()
    whole[splits.key] = 0.0
    return whole


def _evacuates(situation: Situation) -> bool:
    return int(situation.loads.instance.max(initial=0)) >= situation.instances


def _take(splits: Splits, chosen: Bool) -> Splits:
    return Splits(splits.key[chosen], splits.pattern[chosen], splits.shares)


def _limits(situation: Situation, splitting: bool) -> tuple[F64, I64]:
    """The common limit, and the keys that are giants by it, heaviest first."""
    cost, n, room = situation.loads.cost, situation.instances, (1 + situation.theta) * (1 + SLACK)
    limit, giants = room * situation.mean, np.empty(0, np.int64)
    while not splitting:
        larger = np.flatnonzero(cost > limit)
        larger = larger[~np.isin(larger, situation.splits.key)]
        if len(larger) == len(giants) or len(larger) >= n:
            break
        giants = larger
        limit = room * max(situation.mean * n - float(cost[giants].sum()), 0.0) / (n - len(giants))
    order = np.lexsort((situation.loads.keys[giants], -situation.loads.state[giants], -cost[giants]))
    return np.full(n, limit), giants[order]


def _part_giants(situation: Situation, giants: I64, start: I32) -> I32:
    """Give each giant an instance of its own, as far as the table has room for it."""
    loads, home = situation.loads, situation.home
    entries = len(loads) if situation.table_limit is None else situation.table_limit
    by_state = giants[np.lexsort((loads.keys[giants], -loads.cost[giants], -loads.state[giants]))]
    hosts: set[int] = set()
    homeless = []
    for giant in by_state:
        place = int(start[giant])
        if place in hosts and not (situation.pinned is not None and situation.pinned[giant]):
            homeless.append(giant)
        else:
            hosts.add(place)
            entries -= int(place != home[giant])
    if not homeless:
        return start
    parted = start.copy()
    weights = loads.cost.copy()
    weights[giants] = 0.0
    light = np.bincount(start, weights=weights, minlength=situation.instances)
    for giant in homeless:
        places = [int(home[giant]), *(int(d) for d in np.argsort(light, kind="stable"))]
        for place in places:
            entry = int(place != home[giant])
            if place not in hosts and entries >= entry:
                parted[giant], entries = place, entries - entry
                hosts.add(place)
                break
    return parted


def _raise_for_giants(situation: Situation, giants: I64, start: I32, limits: F64) -> F64:
    """The limits, with those of the giants' instances at the giants' cost and θ·mean beside it."""
    held = np.bincount(start[giants], weights=situation.loads.cost[giants], minlength=situation.instances)
    beside = max(situation.theta, 0.0) * situation.mean
    return np.where(held > 0, (held + beside) * (1 + SLACK), limits)


def checked_backups(backups: I32 | None, loads: Loads, instances: int) -> I32 | None:
    """The backups as an int32 array with one row per key, or a ConfigError that says what is wrong."""
    if backups is None:
        return None
    table = np.asarray(backups)
    if table.ndim == 1:
        table = table[:, None]
    if table.dtype.kind not in "iu" or table.ndim != 2 or len(table) != len(loads):
        raise ConfigError(f"backups must be one row of instances for each of the {len(loads)} keys")
    if table.size and (int(table.min()) < -1 or int(table.max()) >= instances):
        raise ConfigError(f"backups must be instances from 0 to {instances - 1}, or -1 for none")
    both = (table == loads.instance[:, None]).any(axis=1)
    if both.any():
        raise ConfigError(f"backups: key {loads.name(int(both.argmax()))!r} has one where it is active")
    return table.astype(np.int32)
