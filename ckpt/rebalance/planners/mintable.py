"""MinTable: mixed-2017 Algorithm 2. The smallest table: forget all entries, then move the heaviest keys.

Cost: that of LLFD, on the placement by hash.
"""

from __future__ import annotations

from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("mintable", exempt={"minimal": "the paper does not take moves back"})
def mintable(problem: Problem) -> I32:
    """Few entries, whatever state that moves."""
    place = problem.home.copy()  # Phase I: move back all keys in A
    psi = problem.cost  # highest computation cost c(k) first
    prepare(problem, place, psi)
    assign(problem, place, psi)
    return place
