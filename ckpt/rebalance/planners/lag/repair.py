"""What is done to a placement that breaks a limit, or does more than it has to."""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.lag.covering import cheapest_cover
from ckpt.rebalance.planners.lag.draft import Draft
from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import F64, I32

SQUEEZE = 0.05
"""A key that fits nowhere by less than this fraction of the mean load may push light keys out."""


def squeeze(draft: Draft, k: int, d: int, price: float) -> bool:
    """Move a key to an instance that has nearly room for it, and light keys from there to others."""
    problem, source = draft.problem, int(draft.place[k])
    need = draft.load[d] + float(problem.cost[k]) - draft.limits[d]
    if source == d or need > SQUEEZE * problem.mean:
        return False
    keys = np.flatnonzero((draft.place == d) & (problem.current == d) & (problem.cost > 0))
    keys = keys[problem.cost[keys] < problem.cost[k]]
    paid = problem.state[keys] + price * (problem.home[keys] == d)
    pushed = keys[cheapest_cover(problem.cost[keys], paid, need)]
    if problem.cost[pushed].sum() < need:
        return False
    draft.move(k, d)
    done: list[int] = []
    for other in pushed.tolist():
        to = draft.roomiest()
        if to in (d, source) or not draft.fits(other, to):
            break
        draft.move(other, to)
        done.append(other)
    if draft.load[d] <= draft.limits[d]:
        return True
    for other in (*done, k):
        draft.move(other, int(problem.current[other]))
    return False


def exchange(draft: Draft) -> None:
    """Where moves alone do not help, let LLFD exchange keys: overloaded instances give up γ's first."""
    psi = priority(draft.problem, BETA)
    prepare(draft.problem, draft.place, psi)
    assign(draft.problem, draft.place, psi)
    draft.replace(draft.place)


def fill(draft: Draft, price: float) -> None:
    """Bring instances up to their floor, from the one with the most load above its own."""
    problem = draft.problem
    for _ in range(4 * problem.instances):
        short = [floor - load for floor, load in zip(draft.floors, draft.load, strict=True)]
        d = max(range(problem.instances), key=short.__getitem__)
        giver = min(range(problem.instances), key=short.__getitem__)
        if short[d] <= 0 or short[giver] >= 0:
            return
        keys = np.flatnonzero(draft.place == giver)
        cost = problem.cost[keys]
        keys = keys[(cost > 0) & (cost <= min(-short[giver], draft.limits[d] - draft.load[d]))]
        paid = problem.state[keys] + price * (problem.home[keys] != d)
        need = min(short[d], -short[giver])
        moved = False
        for k in keys[cheapest_cover(problem.cost[keys], paid, need)].tolist():
            if draft.fits(k, d) and draft.load[giver] - problem.cost[k] >= draft.floors[giver]:
                draft.move(k, d)
                moved = True
        if not moved:
            return


def take_back(problem: Problem, place: I32, load: F64 | None = None) -> I32:
    """The placement without moves that no limit needs, those of most state first."""
    load, entries = problem.loads(place) if load is None else load, problem.table_size(place)
    place = place.copy()
    limits, floors = problem.limits, problem.floors
    moved = np.flatnonzero(place != problem.current)
    moved = moved[np.lexsort((-problem.cost[moved], -problem.state[moved]))]
    while True:
        source, target, cost = problem.current[moved], place[moved], problem.cost[moved]
        home = problem.home[moved]
        grows = (source != home).astype(np.int64) - (target != home)
        fits = (load[source] + cost <= limits[source]) & (load[target] - cost >= floors[target])
        fits &= entries + grows <= problem.table_limit
        candidates = np.flatnonzero(fits).tolist()
        if not candidates:
            return place
        for at in candidates:
            s, t, c = source[at], target[at], cost[at]
            if (
                load[s] + c <= limits[s]
                and load[t] - c >= floors[t]
                and entries + grows[at] <= problem.table_limit
            ):
                load[t] -= c
                load[s] += c
                entries += int(grows[at])
                place[moved[at]] = s
        moved = moved[place[moved] != source]


def keep_table(problem: Problem, place: I32) -> I32:
    """The placement with the lightest keys sent home for which the table has no room, whatever their load.

    A plan that balances less can be applied, one whose table is too large cannot.
    """
    away = np.flatnonzero(place != problem.home)
    lightest = away[np.lexsort((problem.state[away], problem.cost[away]))]
    home = lightest[: max(len(away) - problem.table_limit, 0)]
    place = place.copy()
    place[home] = problem.home[home]
    return place
