"""The independent recount: from targets to a plan. No figure of a plan comes from a planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ckpt.errors import CkptError
from ckpt.rebalance.planning.bound import lower_bound
from ckpt.rebalance.planning.problem import F64, I32, I64, Placement, Splits
from ckpt.rebalance.planning.result import Kind, Moves, Plan, Status
from ckpt.rebalance.planning.situation import Reduced, Situation
from ckpt.rebalance.table import NO_BACKUP, RoutingTable, Split

_SHARE_SLACK = 1e-12
"""A share that changes by less than this did not change."""


class PlannerError(CkptError):
    """A planner's answer is not a placement of the keys that it was given; nothing was planned."""


def check(name: str, placement: Placement, reduced: Reduced) -> None:
    """Raise PlannerError if the answer does not have the promised shape."""
    problem, target, splits = reduced.problem, placement.target, placement.splits
    if (
        not isinstance(target, np.ndarray)
        or target.dtype.kind not in "iu"
        or target.shape != problem.cost.shape
    ):
        raise PlannerError(
            f"planner {name!r} must answer with {len(problem.cost)} whole numbers, one per key"
        )
    if len(target) and (int(target.min()) < 0 or int(target.max()) >= problem.instances):
        raise PlannerError(
            f"planner {name!r} named an instance that is not from 0 to {problem.instances - 1}"
        )
    if splits is not None and len(splits):
        sums = splits.shares.sum(axis=1)
        if splits.shares.shape[1] != problem.instances or not np.allclose(sums, 1) or splits.shares.min() < 0:
            raise PlannerError(f"planner {name!r} split keys by shares that do not add up to 1")
        if (np.diff(splits.key) <= 0).any():
            raise PlannerError(f"planner {name!r} must name split keys once, in ascending order")


def recount(name: str, situation: Situation, reduced: Reduced, placement: Placement) -> Plan:
    """The plan that this placement comes to; how long it took is for the caller to say."""
    loads, n = situation.loads, situation.instances
    splits = reduced.widen_splits(placement.splits)
    place = reduced.widen(placement.target.astype(np.int32, copy=False))
    place = _mains(place, loads.instance, splits)
    moves, backups = _moves(situation, place, splits)
    after = _loads(situation, place, splits)
    away = place != situation.home
    away[splits.key] = False
    if placement.routed:
        away[... if reduced.free is None else reduced.free] = False
        written = reduced.fixed_splits
    else:
        written = splits
    idle = situation.idle
    limit = None if situation.table_limit is None else situation.table_limit + len(idle)
    plan = Plan(
        planner=name,
        status=Status.OK,
        reason="",
        moves=moves,
        table=_table(situation, place, np.flatnonzero(away), backups, written),
        splits=splits,
        backups=backups,
        loads=loads,
        loads_before=_before(situation, reduced),
        loads_after=after[:n],
        limits=reduced.limits,
        table_limit=limit,
        migrated_bytes=float(moves.state_bytes.sum()),
        plan_s=0.0,
        bound=partial(_bound, situation, reduced),
        place=place,
    )
    status, reason = judge(plan, reduced)
    reason = "; ".join(filter(None, [reason, placement.note]))
    return replace(plan, status=status, reason=reason)


def _table(
    situation: Situation, place: I32, listed: I64, backups: I32 | None, splits: Splits
) -> RoutingTable:
    """The successor of the table that was given, with these entries and the idle ones."""
    loads, idle = situation.loads, situation.idle
    said = None
    if backups is not None or idle.backup_columns.size:
        ours = np.empty((len(listed), 0), np.int32) if backups is None else backups[listed]
        width = max(ours.shape[1], idle.backup_columns.shape[1])
        said = np.concatenate([_padded(ours, width), _padded(idle.backup_columns, width)])
    names = None
    if loads.names is not None:
        names = [*loads.names[listed].tolist(), *(idle.names or [None] * len(idle.keys))]
    parts = []
    for k, pattern in zip(splits.key.tolist(), splits.pattern.tolist(), strict=True):
        shares = splits.shares[pattern]
        others = [d for d in np.flatnonzero(shares).tolist() if d != place[k]]
        held = [int(place[k]), *others]
        parts.append(Split(int(loads.keys[k]), tuple(held), tuple(shares[held].tolist())))
    return RoutingTable(
        situation.instances,
        np.concatenate([loads.keys[listed], idle.keys]),
        np.concatenate([place[listed], idle.active]),
        said,
        (*parts, *idle.splits),
        idle.version + 1,
        idle.effective_from + 1 if idle.version else 0,
        names,
    )


def _padded(backups: I32, width: int) -> I32:
    return np.pad(backups, ((0, 0), (0, width - backups.shape[1])), constant_values=NO_BACKUP)


def judge(plan: Plan, reduced: Reduced) -> tuple[Status, str]:
    """The status of a plan by its figures, and the reason if some limit is not kept."""
    if plan.table_limit is not None and len(plan.table) > plan.table_limit:
        return (
            Status.INFEASIBLE,
            f"the table would have {len(plan.table)} entries, the limit is {plan.table_limit}",
        )
    over = plan.loads_after - plan.limits
    if (over > 0).any():
        d = int(over.argmax())
        return (
            Status.BEST_EFFORT,
            f"instance {d} has a load of {plan.loads_after[d]:.6g}, its limit is {plan.limits[d]:.6g}",
        )
    under = reduced.floors - plan.loads_after
    if (under > 0).any():
        d = int(under.argmax())
        return (
            Status.BEST_EFFORT,
            f"instance {d} has a load of {plan.loads_after[d]:.6g}, the least is {reduced.floors[d]:.6g}",
        )
    if len(reduced.giants):
        names = ", ".join(repr(plan.loads.name(int(k))) for k in reduced.giants[:3])
        more = ", …" if len(reduced.giants) > 3 else ""
        return Status.GIANT, f"{len(reduced.giants)} heavier than an instance may be: {names}{more}"
    return Status.OK, ""


def _before(situation: Situation, reduced: Reduced) -> F64:
    if reduced.start is situation.loads.instance:
        return reduced.problem.load
    return _loads(situation, situation.loads.instance, situation.splits)


def _loads(situation: Situation, place: I32, splits: Splits) -> F64:
    cost = situation.loads.cost
    if len(splits):
        cost = cost.copy()
        cost[splits.key] = 0.0
    load = np.bincount(place, weights=cost, minlength=situation.instances).astype(np.float64)
    load[: situation.instances] += situation.rest + splits.loads(situation.loads.cost)
    return load


def _mains(place: I32, current: I32, splits: Splits) -> I32:
    """The places, with a split key at its largest part; of equal parts, at the one where it is now."""
    if not len(splits):
        return place
    place = place.copy()
    n = splits.shares.shape[1]
    largest = splits.shares.max(axis=1)
    now = current[splits.key]
    there = np.where(now < n, splits.shares[splits.pattern, np.minimum(now, n - 1)], 0.0)
    place[splits.key] = np.where(
        there >= largest[splits.pattern], now, splits.shares.argmax(axis=1)[splits.pattern]
    )
    return place


def _moves(situation: Situation, place: I32, splits: Splits) -> tuple[Moves, I32 | None]:
    loads, backups = situation.loads, situation.backups
    parts = np.union1d(splits.key, situation.splits.key).astype(np.int64)
    at = np.flatnonzero(place != loads.instance)
    if len(parts):
        at = at[~np.isin(at, parts)]
    kind = np.where(place[at] == situation.home[at], Kind.MOVE_BACK.value, Kind.MOVE.value)
    state = loads.state[at]
    if backups is not None:
        slots = backups[at] == place[at, None]
        switched = slots.any(axis=1)
        kind[switched], state = Kind.SWITCH.value, np.where(switched, 0.0, state)
        backups = backups.copy()
        left = np.where(loads.instance[at] < situation.instances, loads.instance[at], NO_BACKUP)
        backups[at] = np.where(slots, left[:, None], backups[at])
    moves = Moves(at, loads.keys[at], loads.instance[at], place[at], kind, state)
    if backups is not None and len(splits):
        backups = backups.copy()
        active = splits.shares[splits.pattern[:, None], backups[splits.key]] > 0
        backups[splits.key] = np.where(active, NO_BACKUP, backups[splits.key])
    if len(parts):
        moves = Moves.joined([moves, *_part_moves(situation, place, splits, parts)])
    return moves, backups


def _part_moves(situation: Situation, place: I32, splits: Splits, parts: I64) -> Iterator[Moves]:
    """The moves of keys that are split before or after, by the shares before and after.

    Keys with the same shares before and after are worked out together.
    """
    loads = situation.loads
    width = max(situation.instances, int(loads.instance.max(initial=0)) + 1)
    rows_before, before = _patterns(loads.instance, situation.splits, parts, width)
    rows_after, after = _patterns(place, splits, parts, width)
    pairs, which = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
    for number, (b, a) in enumerate(pairs.T):
        grown = rows_after[a] - rows_before[b]
        merges = np.count_nonzero(rows_after[a]) < np.count_nonzero(rows_before[b])
        kind = Kind.MERGE if merges else Kind.SPLIT
        keys = parts[which.ravel() == number]
        source = np.full(len(keys), grown.argmin(), np.int32)
        for d in np.flatnonzero(grown > _SHARE_SLACK):
            target = np.full(len(keys), d, np.int32)
            kinds = np.full(len(keys), kind.value)
            yield Moves(keys, loads.keys[keys], source, target, kinds, loads.state[keys] * grown[d])


def _patterns(place: I32, splits: Splits, parts: I64, width: int) -> tuple[F64, I32]:
    """Rows of shares, and the row of each of these keys; a key that is not split has all in one place."""
    rows = np.zeros((width + len(splits.shares), width))
    rows[:width] = np.eye(width)
    rows[width:, : splits.shares.shape[1]] = splits.shares
    pattern = place[parts].astype(np.int32)
    pattern[np.searchsorted(parts, splits.key)] = width + splits.pattern
    return rows, pattern


def _bound(situation: Situation, reduced: Reduced) -> float:
    """The bound of the problem, and what has to move before it: parted giants and evacuated keys."""
    loads = situation.loads
    forced = np.flatnonzero(reduced.start != loads.instance)
    state = loads.state[forced]
    if situation.backups is not None:
        held = situation.backups[forced]
        gone = loads.instance[forced] >= situation.instances
        free = np.where(gone[:, None], held >= 0, held == reduced.start[forced, None]).any(axis=1)
        state = np.where(free, 0.0, state)
    return float(state.sum()) + lower_bound(reduced.problem)
