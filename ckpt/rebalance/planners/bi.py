"""Bi: the biclique model. Each stream of a join is stored on its own half of the instances, at random.

Source: Lin et al., *Scalable distributed stream join processing* (SIGMOD 2015), the baseline `Bi` of
mnrt-2017 §5.1.5. A tuple is stored on one instance of its side and compared on all of the other side.

As a plan: loads do not say of which stream a key's tuples are, so half of each key is taken to be stored on
each side, evenly over the side. With one instance there is one side. Nothing needs an entry.

Cost: O(K).
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.dynamic import evenly
from ckpt.rebalance.planners.pkg import other_hash
from ckpt.rebalance.planning import Placement, Problem, planner
from ckpt.rebalance.planning.problem import F64, I32


@planner(
    "bi",
    splits=True,
    exempt={
        "balances": "with an odd number of instances one side has more of them",
        "minimal": "splits every key",
        "relabel": "the instances with the lowest numbers are one side",
    },
)
def bi(problem: Problem) -> Placement:
    """The same load on each instance of a side, for any skew."""
    return biclique(problem, 1)


def biclique(problem: Problem, subgroups: int) -> Placement:
    """Each side cut into subgroups, of which a hash of the key chooses one."""
    n = problem.instances
    sides = [side for side in np.array_split(np.arange(n), 2) if len(side)]
    groups = min(subgroups, *(len(side) for side in sides))
    shares: F64 = np.zeros((groups, n))
    for side in sides:
        for group, members in enumerate(np.array_split(side, groups)):
            shares[group, members] = 1 / len(sides) / len(members)
    pattern: I32 = other_hash(problem.key, groups)
    return evenly(shares, pattern)
