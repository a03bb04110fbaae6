"""LPTF, longest processing time first: all keys anew, heaviest first, each to the least loaded instance.

Source: the baseline of dlb-cep-2016 §3.2 and §4; Graham's rule for the job shop. It balances best of all and
moves almost everything. Cost: O(K log K).
"""

from __future__ import annotations

import heapq

import numpy as np

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("lptf", exempt={"minimal": "forgets where the keys are", "relabel": "equal loads go by number"})
def lptf(problem: Problem) -> I32:
    """Guarantees the balance of Graham's bound: at most 4/3 of the best possible maximum."""
    target = np.empty(len(problem.cost), np.int32)
    eng_load = [(load, d) for d, load in enumerate(problem.base.tolist())]
    heapq.heapify(eng_load)
    order = np.argsort(-problem.cost, kind="stable")
    placed = []
    for cost in problem.cost[order].tolist():
        load, d = eng_load[0]
        heapq.heapreplace(eng_load, (load + cost, d))
        placed.append(d)
    target[order] = placed
    return target
