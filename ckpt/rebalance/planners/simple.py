"""Simple: what Mixed is compared with in Theorem 2 of mixed-2017: all keys anew by LLFD.

Source: mixed-2017 Appendix A (and ftlb-2019 Algorithm 2, where LLFD is given all keys). Every key is a
candidate, so each goes to the least loaded instance; the paper says why it is not practical: the table has an
entry for almost every key.

Deviation: ftlb-2019 Algorithm 2 adds a key's load only if it gets a table entry (Line 7 stands inside the
`if`); it is always added.

Cost: O(K log K), in Python for each key.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.llfd import AWAY, assign
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("simple", exempt={"minimal": "forgets where the keys are", "relabel": "equal loads go by number"})
def simple(problem: Problem) -> I32:
    """LLFD with every key as a candidate."""
    place = np.full(len(problem.cost), AWAY, np.int32)
    assign(problem, place, problem.cost)
    return place
