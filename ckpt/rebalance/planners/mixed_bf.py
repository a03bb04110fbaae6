"""Mixed-BF: mixed-2017 §III-C. Mixed with every number of entries moved back, and the best of them.

The best is the one within all limits that moves the least state; if none is, the one that breaks the table's
limit least, then the loads' limits least.

Deviation: the paper tries n = 1, 2, …, N_A; n = 0 is tried as well, since Mixed begins with it.

Cost: that of LLFD, N_A + 1 times. `rounds` bounds it: then n takes that many values, evenly spread.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planners.mixed import attempt, by_state
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("mixed-bf", exempt={"minimal": "the paper does not take moves back"})
def mixed_bf(problem: Problem, *, beta: float = BETA, rounds: int | None = None) -> I32:
    """Never more state than any single n of Mixed would move."""
    psi = priority(problem, beta)
    entries = by_state(problem)
    values = np.arange(len(entries) + 1)
    if rounds is not None and rounds < len(values):
        values = np.unique(np.linspace(0, len(entries), rounds).astype(np.int64))
    answers = (attempt(problem, psi, entries[:n]) for n in values)
    return min(answers, key=lambda place: badness(problem, place))


def badness(problem: Problem, place: I32) -> tuple[float, float, float]:
    """What is wrong with a placement, worst first: table, loads, migrated state."""
    load = problem.loads(place)
    outside = np.maximum(load - problem.limits, 0).sum() + np.maximum(problem.floors - load, 0).sum()
    return (
        max(problem.table_size(place) - problem.table_limit, 0),
        float(outside),
        problem.migrated_bytes(place),
    )
