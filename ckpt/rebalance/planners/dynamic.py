"""Dynamic: the matrix model. Every tuple goes to a random row or column of a matrix of instances.

Source: Elseidy et al., *Scalable and adaptive online joins* (VLDB 2014), the baseline `Dynamic` of mnrt-2017
§5.1.5. The matrix has 2^a rows and 2^b columns, so a power of two of the instances is used and the others are
idle; tuples of one stream take a row each, those of the other a column, and any two meet in one cell.

As a plan: every key is spread evenly over all instances that are used, whatever it weighs. Nothing needs an
entry. How many instances a tuple is sent to is the router's affair (`ckpt.rebalance` routers), not the
plan's.

Cost: O(K).
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning import Placement, Problem, Splits, planner
from ckpt.rebalance.planning.problem import F64, I32


@planner(
    "dynamic",
    splits=True,
    exempt={
        "balances": "leaves instances idle beyond a power of two",
        "minimal": "splits every key",
        "relabel": "the instances with the lowest numbers are used",
    },
)
def dynamic(problem: Problem) -> Placement:
    """The same load on each instance that is used, for any skew."""
    used = 1 << (problem.instances.bit_length() - 1)
    shares = np.zeros((1, problem.instances))
    shares[0, :used] = 1 / used
    return evenly(shares, np.zeros(len(problem.cost), np.int32))


def evenly(shares: F64, pattern: I32) -> Placement:
    """Every key spread by its row of shares, known to all senders."""
    target = shares.argmax(axis=1)[pattern].astype(np.int32)
    split = np.flatnonzero((np.count_nonzero(shares, axis=1) > 1)[pattern])
    return Placement(target, Splits(split, pattern[split], shares), routed=True)
