"""KG, key grouping: every key is where its hash puts it.

Source: the default of every stream engine; the baseline of all four papers. Cost: none.
"""

from __future__ import annotations

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("kg", exempt={"balances": "places by hash, whatever the load", "minimal": "does not look at loads"})
def kg(problem: Problem) -> I32:
    """Guarantees an empty table."""
    return problem.home.copy()
