"""MinMig: mixed-2017 Algorithm 3. Little migration: no cleaning, keys with much load per state first.

γ(k, w) = c(k)^β / S(k, w) is the migration priority index; β weighs load against state (1.5 in the paper).
A key without state has γ = ∞: moving it is free.

Cost: that of LLFD.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import F64, I32

BETA = 1.5
"""β, as Appendix A of the paper settles it."""


@planner("minmig", exempt={"minimal": "the paper does not take moves back"})
def minmig(problem: Problem, *, beta: float = BETA) -> I32:
    """Little state moves; the table is not looked at."""
    place = problem.current.copy()  # Phase I: do nothing
    psi = priority(problem, beta)
    prepare(problem, place, psi)
    assign(problem, place, psi)
    return place


def priority(problem: Problem, beta: float) -> F64:
    """γ of each key."""
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.where(
                problem.state > 0, problem.cost**beta / np.where(problem.state > 0, problem.state, 1), np.inf
            )
        )
