"""TaskB: whole tasks move, never single keys.

Source: the baseline of ftlb-2019 §5 (*copy whole task*), and how engines without a routing table rebalance:
the hash space of each instance is cut into tasks, and a task moves with all its keys. Which one is not said
by the paper: here the least state that brings an overloaded instance into its limit, to the least loaded
instance where it fits; else the heaviest that fits somewhere.

`tasks` is how many an instance has; the task of a key is a slice of its identity, so it is the same in every
plan. Cost: O(K), and O(N) for each task that moves.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32

TASKS = 8
"""Tasks of an instance; Flink's default is 128 key groups for all instances together."""


@planner(
    "taskb",
    exempt={"balances": "a task may be too coarse", "minimal": "takes no task back"},
)
def taskb(problem: Problem, *, tasks: int = TASKS) -> I32:
    """Keys of one task stay together."""
    slices = tasks * problem.instances
    piece = (problem.key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)).astype(np.int64) % slices
    group = problem.current.astype(np.int64) * slices + piece
    size = slices * problem.instances
    cost = np.bincount(group, weights=problem.cost, minlength=size).reshape(-1, slices)
    state = np.bincount(group, weights=problem.state, minlength=size).reshape(-1, slices)
    load, target = problem.load.copy(), np.repeat(np.arange(problem.instances), slices).reshape(-1, slices)
    for source in np.argsort(problem.limits - load, kind="stable").tolist():
        while load[source] > problem.limits[source]:
            d = int((problem.limits - load).argmax())
            mine = cost[source] * (target[source] == source)
            fits = (mine > 0) & (mine <= problem.limits[d] - load[d])
            if not fits.any() or d == source:
                break
            enough = fits & (mine >= load[source] - problem.limits[source])
            chosen = (
                np.where(enough, state[source], np.inf).argmin() if enough.any() else (mine * fits).argmax()
            )
            target[source, chosen] = d
            load[source] -= mine[chosen]
            load[d] += mine[chosen]
    return np.asarray(target.ravel()[group], np.int32)
