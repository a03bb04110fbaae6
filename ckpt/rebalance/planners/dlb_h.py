"""DLB-H: dlb-cep-2016 Algorithm 1 with the policy *pick heavy loaded*.

One key at a time goes from a loaded engine to the least loaded one, if that lowers the imbalance score, the
population standard deviation of the engines' loads over their mean (Eq. 2). Names of the paper: e_min the
least loaded engine, e_loaded the one under examination, most loaded first, k* the selected key, θ the score
at which to stop.

DLB-H selects the heaviest key of e_loaded that lowers the score. Moving load x from an engine with load a to
one with load b changes the sum of squares by 2x(x - (a - b)), so that is the heaviest key lighter than a - b.

Deviations:
- Line 4 stops at a score of θ percent. All planners have one goal here: it goes on while an engine exceeds
  its limit. `theta_percent` gives the paper's rule.
- Line 7 copies the loads once, outside the loop, so a refused attempt would still count in the next one. Each
  attempt begins with the loads as they are.
- A move must be worth more than rounding: two engines whose loads differ by just one key's load, but for the
  last digits of floats, would pass that key to and fro for ever.

Cost: O(K log K) to sort, then O(N) for each move, in Python.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32, SLACK

SelectKey = Callable[[list[tuple[float, int]], float], int]
"""The policy: an engine's keys as (load, key), ascending, and a - b; the position of k*, or -1 for none."""


@planner("dlb-h", exempt={"minimal": "one key at a time, none is taken back"})
def dlb_h(problem: Problem, *, theta_percent: float | None = None) -> I32:
    """Few keys move; the table and the state are not looked at."""
    return balance(problem, heaviest, theta_percent)


def heaviest(keys: list[tuple[float, int]], gap: float) -> int:
    """The heaviest key that lowers the score, unless it is without load."""
    at = bisect_left(keys, (gap, -1)) - 1
    return at if at >= 0 and keys[at][0] > 0 else -1


def balance(problem: Problem, select_key: SelectKey, theta_percent: float | None) -> I32:
    """Algorithm 1 with a policy."""
    keys_map = problem.current.copy()
    eng_load = problem.load.copy()
    engines = _Engines(problem, keys_map)
    while _imbalanced(problem, eng_load, theta_percent):
        e_min = int(eng_load.argmin())
        for e_loaded in np.argsort(-eng_load, kind="stable").tolist():
            gap = float(eng_load[e_loaded] * (1 - SLACK) - eng_load[e_min])
            if e_loaded == e_min or gap <= 0:
                return keys_map
            at = select_key(engines.of(e_loaded), gap)
            if at < 0:
                continue
            keys_load, k = engines.of(e_loaded).pop(at)
            keys_map[k] = e_min
            eng_load[e_loaded] -= keys_load
            eng_load[e_min] += keys_load
            engines.add(e_min, keys_load, k)
            break
        else:
            return keys_map
    return keys_map


def _imbalanced(problem: Problem, eng_load: np.ndarray, theta_percent: float | None) -> bool:
    if theta_percent is None:
        return bool((eng_load > problem.limits).any())
    return bool(100 * eng_load.std() > theta_percent * eng_load.mean())


class _Engines:
    """The keys of each engine by load; an engine is sorted when a key is first selected from it."""

    def __init__(self, problem: Problem, keys_map: I32) -> None:
        self._cost, self._keys_map = problem.cost, keys_map
        self._sorted: dict[int, list[tuple[float, int]]] = {}

    def of(self, e: int) -> list[tuple[float, int]]:
        """Its keys as (load, key), ascending."""
        if e not in self._sorted:
            mine = np.flatnonzero(self._keys_map == e)
            mine = mine[np.argsort(self._cost[mine], kind="stable")]
            self._sorted[e] = list(zip(self._cost[mine].tolist(), mine.tolist(), strict=True))
        return self._sorted[e]

    def add(self, e: int, load: float, k: int) -> None:
        """A key has come."""
        if e in self._sorted:
            insort(self._sorted[e], (load, k))
