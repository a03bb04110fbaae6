"""DLB-L: dlb-cep-2016 Algorithm 1 with the policy *pick lightly loaded*.

It selects the least loaded key of e_loaded. See `dlb_h` for the algorithm and what was corrected there.

Deviations:
- A key without load lowers no score, so the literal policy would select it again and again. Such keys are
  passed over.
- One sentence of §4 swaps the labels of the two policies; the definitions of §3.2 are followed.

Cost: that of DLB-H, but for many more moves.
"""

from __future__ import annotations

from bisect import bisect_right

from ckpt.rebalance.planners.dlb_h import balance
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("dlb-l", exempt={"minimal": "one key at a time, none is taken back"})
def dlb_l(problem: Problem, *, theta_percent: float | None = None) -> I32:
    """Close balance by many small keys; the table and the state are not looked at."""
    return balance(problem, lightest, theta_percent)


def lightest(keys: list[tuple[float, int]], gap: float) -> int:
    """The lightest key with a load, if it lowers the score."""
    at = bisect_right(keys, (0.0, 1 << 62))
    return at if at < len(keys) and keys[at][0] < gap else -1
