"""Readj: moves and swaps of heavy keys between pairs of instances, the best one first.

Source: Gedik, *Partitioning functions for stateful data parallelism* (VLDB Journal 2014), as mixed-2017 §V
and §VI and mnrt-2017 §1 describe it. Light keys are moved back home. Then pairs of instances are looked at:
all moves of a heavy key and all swaps of two, and the one is carried out that lowers the higher load of its
pair most. σ decides which keys are heavy: those of σ times the mean load or more.

Deviations:
- No paper gives pseudocode. The most loaded instance is paired with each of the others, which is where an
  improvement of the maximum has to begin.
- mixed-2017 runs it with several σ and reports the best; so does the planner: from coarse to fine, until one
  keeps the limits. `sigma` gives one.

Cost: for each step O(N · H log H) with H heavy keys on an instance; a fine σ makes H large.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64

SIGMAS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)
"""σ is halved about once a step; at 0 every key is heavy."""
STEPS = 2000
"""More moves and swaps than this are not tried with one σ."""


@planner("readj", exempt={"minimal": "moves light keys home, whatever that costs"})
def readj(problem: Problem, *, sigma: float | None = None) -> I32:
    """Small tables by few heavy keys; the state is not looked at."""
    answers: list[tuple[float, I32]] = []
    for tried in SIGMAS if sigma is None else (sigma,):
        place = _attempt(problem, tried * problem.mean)
        excess = float(np.maximum(problem.loads(place) - problem.limits, 0).max())
        if excess == 0:
            return place
        answers.append((excess, place))
    return min(answers, key=lambda answer: answer[0])[1]


def _attempt(problem: Problem, least: float) -> I32:
    heavy = problem.cost >= least
    place = np.where(heavy, problem.current, problem.home)
    load = problem.loads(place)
    keys = {d: _by_cost(problem, np.flatnonzero(heavy & (place == d))) for d in range(problem.instances)}
    for _ in range(STEPS):
        if (load <= problem.limits).all():
            break
        a = int((load - problem.limits).argmax())
        best: tuple[float, int, int, int] | None = None
        for b in np.argsort(load, kind="stable").tolist():  # of equal gains, the one to the least loaded
            gap = float(load[a] - load[b])
            if b == a or gap <= 0:
                continue
            found = _best_exchange(problem.cost, keys[a], keys[b], gap)
            if found is not None and (best is None or found[0] > best[0]):
                best = (found[0], found[1], found[2], b)
        if best is None:
            break
        _, out, back, b = best
        for k, source, target in ((out, a, b), (back, b, a)):
            if k < 0:
                continue
            place[k] = target
            load[source] -= problem.cost[k]
            load[target] += problem.cost[k]
        keys[a] = _by_cost(problem, np.flatnonzero(heavy & (place == a)))
        keys[b] = _by_cost(problem, np.flatnonzero(heavy & (place == b)))
    return place


def _by_cost(problem: Problem, keys: I64) -> I64:
    return keys[np.argsort(problem.cost[keys], kind="stable")]


def _best_exchange(cost: F64, ours: I64, theirs: I64, gap: float) -> tuple[float, int, int] | None:
    """How much the higher load of the pair falls, the key that goes and the one that comes back (-1: none).

    Shifting x lowers it by min(x, gap - x), so the best partner of a key of ours is the one that makes the
    shift the closest to half the gap; no partner counts as one without load.
    """
    if not len(ours):
        return None
    back = np.concatenate([[0.0], cost[theirs]])
    shift_wanted = cost[ours] - gap / 2
    at = np.searchsorted(back, shift_wanted)
    best: tuple[float, int, int] | None = None
    for candidate in (np.clip(at - 1, 0, len(back) - 1), np.clip(at, 0, len(back) - 1)):
        shift = cost[ours] - back[candidate]
        gain = np.minimum(shift, gap - shift)
        i = int(gain.argmax())
        if gain[i] > 1e-12 * gap and (best is None or gain[i] > best[0]):
            partner = int(candidate[i])
            best = (float(gain[i]), int(ours[i]), int(theirs[partner - 1]) if partner else -1)
    return best
