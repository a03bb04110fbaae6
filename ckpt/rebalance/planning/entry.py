"""`rb.plan`: checks what is given, asks a planner, and has its answer recounted."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.planning.problem import I32, Placement, Splits
from ckpt.rebalance.planning.recount import check, judge, recount
from ckpt.rebalance.planning.registry import Function, Planner, find
from ckpt.rebalance.planning.result import Plan, Status
from ckpt.rebalance.planning.situation import Reduced, Situation, checked_backups, reduce
from ckpt.rebalance.table import NO_BACKUP, RoutingTable


def plan(
    loads: Loads,
    planner: str | Function = "lag",
    *,
    instances: int | None = None,
    theta: float = 0.08,
    table_limit: int | None = None,
    table: RoutingTable | None = None,
    two_sided: bool = False,
    backups: npt.ArrayLike | None = None,
    pinned: npt.ArrayLike | None = None,
    budget_s: float | None = None,
    **options: Any,
) -> Plan:
    """A plan whose every figure was recounted; the same arguments give the same plan.

    Parameters
    ----------
    loads
        The keys. Those on an instance that is not among `instances` are evacuated.
    planner
        A registered name, or a function that takes a `Problem` and returns targets.
    instances
        How many instances there are from now on; None: those that the loads name.
    theta
        A load may exceed the mean by this fraction.
    table_limit
        How many entries the table may have; None: any number.
    table
        The current table. Its entries for keys that the loads do not list stay, and count; it says which keys
        are split. Where a listed key is active, the loads say.
    two_sided
        If True, a load may not fall below the mean by more than `theta` either. Of the planners, `lag`,
        `portfolio` and `exact` see to that; the others say in the status where they fail.
    backups
        Instances that hold a backup, one row per key, -1 for none.
    pinned
        True for each key that must stay where it is.
    budget_s
        How long a planner with several answers may look for a better one.
    options
        What this planner calls its own, such as `beta` of `mixed`.
    """
    chosen = find(planner) if isinstance(planner, str) else Planner(planner.__name__, planner)
    situation = _situation(loads, instances, theta, table_limit, table, two_sided, backups, pinned)
    started = time.perf_counter()
    reduced = reduce(situation, splitting=chosen.splits)
    if budget_s is not None:
        reduced = replace(reduced, problem=replace(reduced.problem, budget_s=budget_s))
    nothing = _nothing_to_do(chosen.name, situation, reduced)
    if nothing is not None:
        return replace(nothing, plan_s=time.perf_counter() - started)
    placement = chosen.answer(reduced.problem, options)
    check(chosen.name, placement, reduced)
    made = recount(chosen.name, situation, reduced, placement)
    return replace(made, plan_s=time.perf_counter() - started)


def _nothing_to_do(name: str, situation: Situation, reduced: Reduced) -> Plan | None:
    """The empty plan, if all limits are kept as it is."""
    problem = reduced.problem
    if (problem.load > problem.limits).any() or (problem.load < problem.floors).any():
        return None
    if problem.table_size(problem.current) > problem.table_limit:
        return None
    if reduced.start is not situation.loads.instance and (reduced.start != situation.loads.instance).any():
        return None
    stay = recount(name, situation, reduced, Placement(problem.current, problem.splits))
    status, reason = judge(stay, reduced)
    if status is Status.OK:
        return replace(stay, status=Status.NOOP)
    return replace(stay, status=status, reason=reason) if status is Status.GIANT else None


def _situation(
    loads: Loads,
    instances: int | None,
    theta: float,
    table_limit: int | None,
    table: RoutingTable | None,
    two_sided: bool,
    backups: npt.ArrayLike | None,
    pinned: npt.ArrayLike | None,
) -> Situation:
    n = loads.instances if instances is None else instances
    if n < 1:
        raise ConfigError(f"instances must be at least 1, not {n}")
    if not (math.isfinite(theta) and theta >= 0):
        raise ConfigError(f"theta must be a number from 0, not {theta}")
    if table_limit is not None and table_limit < 0:
        raise ConfigError(f"table_limit must be from 0, not {table_limit}")
    home = loads.home_of(n)
    if len(home) and int(home.max()) >= n:
        raise ConfigError(
            f"home: a key has its home on instance {int(home.max())}, but there are {n} instances; say where "
            f"the hash puts it with {n}, or leave the column out"
        )
    rest = np.zeros(n)
    if loads.rest is not None:
        if len(loads.rest) > n and loads.rest[n:].any():
            raise ConfigError(
                f"rest: there is load on instance {len(loads.rest) - 1} that no plan can move away"
            )
        rest[: min(len(loads.rest), n)] = loads.rest[:n]
    fixed = None if pinned is None else np.asarray(pinned)
    if fixed is not None and (fixed.dtype != np.bool_ or fixed.shape != loads.cost.shape):
        raise ConfigError(f"pinned must be True or False for each of the {len(loads)} keys")
    idle, splits = _without_listed(loads, n, home, table)
    left = None if table_limit is None else table_limit - len(idle)
    checked = checked_backups(None if backups is None else np.asarray(backups), loads, n)
    return Situation(loads, n, theta, two_sided, left, home, rest, checked, fixed, splits, idle)


def _without_listed(
    loads: Loads, n: int, home: I32, table: RoutingTable | None
) -> tuple[RoutingTable, Splits]:
    """The table without the keys that the loads list, and which of these are split.

    Entries that name an instance that is given up, or what is home now, are not needed any more.
    """
    if table is None:
        return RoutingTable(n), Splits.none(n)
    known = np.isin(table.keys, loads.keys[loads.instance != home])
    if not known.all():
        known |= np.isin(table.keys, loads.keys)
    stays = ~known & (table.active < n) & (table.active != homes(table.keys, n))
    parts = [split for split in table.splits if max(split.instances) < n]
    at = np.flatnonzero(np.isin(loads.keys, np.array([split.key for split in parts], np.uint64)))
    by_key = {split.key: split for split in parts}
    shares = np.zeros((len(at), n))
    for row, k in enumerate(at.tolist()):
        split = by_key.pop(int(loads.keys[k]))
        shares[row, list(split.instances)] = split.shares
    backups = table.backup_columns[stays]
    idle = RoutingTable(
        n,
        table.keys[stays],
        table.active[stays],
        np.where(backups < n, backups, NO_BACKUP),
        tuple(by_key.values()),
        table.version,
        table.effective_from,
        None if table.names is None else [table.names[i] for i in np.flatnonzero(stays).tolist()],
    )
    return idle, Splits(at, np.arange(len(at), dtype=np.int32), shares)
