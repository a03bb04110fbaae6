"""Portfolio: several planners, and the best of their answers. Never worse than Mixed.

Mixed is always run, then LAG, then the others while `budget_s` lasts (all of them, if there is none). Answers
are compared by what is wrong with them: entries above the table's limit, then load outside the limits, then
migrated state; of equal ones the first wins.

With a budget, which planners are run depends on the clock, and so may the answer.
"""

from __future__ import annotations

import time

from ckpt.rebalance.planners.lag import lag
from ckpt.rebalance.planners.lag.repair import take_back
from ckpt.rebalance.planners.minmig import minmig
from ckpt.rebalance.planners.mintable import mintable
from ckpt.rebalance.planners.mixed import mixed
from ckpt.rebalance.planners.mixed_bf import badness
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32

IN_BUDGET = (minmig, mintable)
"""Run after Mixed and LAG."""


@planner("portfolio")
def portfolio(problem: Problem) -> I32:
    """Not worse than Mixed and LAG, by the table, the loads and the migrated state, in this order."""
    started = time.perf_counter()
    answers = [take_back(problem, place) for place in (mixed(problem).target, lag(problem))]
    for run in IN_BUDGET:
        if problem.budget_s is not None and time.perf_counter() - started > problem.budget_s:
            break
        answers.append(take_back(problem, run(problem)))
    return min(answers, key=lambda place: badness(problem, place))
