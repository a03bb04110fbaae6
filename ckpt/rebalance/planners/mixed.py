"""Mixed: mixed-2017 Algorithm 4. MinMig, with as many entries moved back first as the table had too many.

Names of the paper: η the order of cleaning (smallest S(k, w) first), n how many entries are moved back,
N_A the size of the table, A_max its limit, γ the priority of `minmig`.

Deviations:
- Line 10, `n ← N_A' - A_max`, can cycle for ever (232, 1, 232, 1, … was seen). Here n grows by that number,
  to at most N_A, so it ends after N_A rounds at the latest. If the table is too large even then, that is the
  answer, and the plan's status says so.
- Theorem 2 (never worse balanced than LLFD) does not hold in general and is not relied upon.

Cost: that of LLFD for each round.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planning import Placement, Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64


@planner("mixed", exempt={"minimal": "the paper does not take moves back"})
def mixed(problem: Problem, *, beta: float = BETA) -> Placement:
    """Little state moves, with a table within its limit in most cases."""
    psi = priority(problem, beta)
    entries = by_state(problem)
    n = 0
    while True:
        place = attempt(problem, psi, entries[:n])
        overuse = problem.table_size(place) - problem.table_limit
        if overuse <= 0:
            return Placement(place)
        if n == len(entries):
            return Placement(place, note="all entries were moved back and the table is still too large")
        n = min(n + overuse, len(entries))


def by_state(problem: Problem) -> I64:
    """The keys in the table A in the order η: smallest state first."""
    entries = np.flatnonzero(problem.current != problem.home)
    return entries[np.argsort(problem.state[entries], kind="stable")]


def attempt(problem: Problem, psi: F64, moved_back: I64) -> I32:
    """Lines 6 to 9: one plan with these entries moved back first."""
    place = problem.current.copy()
    place[moved_back] = problem.home[moved_back]
    prepare(problem, place, psi)
    assign(problem, place, psi)
    return place
