"""Bi6: the biclique model with six subgroups on each side, as mnrt-2017 §5.1.5 runs it.

Source: as `bi`. A key's hash chooses its subgroup on either side, so a tuple is compared on a sixth of the
other side only, and a heavy key overloads its subgroups: skew is felt again.

Cost: O(K).
"""

from __future__ import annotations

from ckpt.rebalance.planners.bi import biclique
from ckpt.rebalance.planning import Placement, Problem, planner

SUBGROUPS = 6
"""Fewer where a side has fewer instances."""


@planner(
    "bi6",
    splits=True,
    exempt={
        "balances": "a subgroup is as heavy as the keys that hash to it",
        "minimal": "splits every key",
        "relabel": "the instances with the lowest numbers are one side",
    },
)
def bi6(problem: Problem) -> Placement:
    """Every key is on one subgroup of each side, and needs no entry."""
    return biclique(problem, SUBGROUPS)
