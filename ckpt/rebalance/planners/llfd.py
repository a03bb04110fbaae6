"""LLFD, least-load fit decreasing: mixed-2017 Algorithm 1, and the phases that its other planners share.

Names of the paper: C the candidate keys, ψ the order in which keys are chosen (here a number per key, highest
first), E the exchangeable set, L̂(d) the estimated load, L_max the limit, F(k) the instance of key k.

The planner `llfd` by itself cleans nothing (Phase I), takes the heaviest keys from overloaded instances
(Phase II, ψ = highest cost first) and assigns them (Phase III).

Deviations:
- Lines 4 and 12 use L_{i-1}, the loads before anything was assigned; then Line 8 has no effect. The live
  estimate L̂ is used.
- Line 12 has `<`, the text `≤`; `≤` it is, else θ = 0 could never be met.
- Line 3 iterates over a set that Line 17 extends. C is a heap: always the heaviest key. By condition (ii)
  disassociated keys are lighter than the one that displaced them, so no key is placed twice and it ends.
- Nothing is said of a key that Adjust refuses for every instance. It goes to the least loaded one; the plan's
  status then says that a limit is not kept.

Cost: O(K log K) once, and for each exchange a walk over the keys of one instance in the order of ψ.
"""

from __future__ import annotations

import heapq

import numpy as np

from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64

AWAY = -1
"""The place of a key in C."""


@planner("llfd", exempt={"minimal": "the paper does not take moves back"})
def llfd(problem: Problem) -> I32:
    """Assigns the heaviest keys of overloaded instances by least load; the table is not looked at."""
    place = problem.current.copy()
    psi = problem.cost
    prepare(problem, place, psi)
    assign(problem, place, psi)
    return place


def prepare(problem: Problem, place: I32, psi: F64) -> None:
    """Phase II: of each overloaded instance, the first keys by ψ go to C, until its load fits."""
    load = problem.loads(place)
    for d in np.flatnonzero(load > problem.limits):
        mine = np.flatnonzero(place == d)
        mine = mine[np.argsort(-psi[mine], kind="stable")]
        left = load[d] - np.cumsum(problem.cost[mine])
        place[mine[: int(np.searchsorted(-left, -problem.limits[d])) + 1]] = AWAY


def assign(problem: Problem, place: I32, psi: F64) -> None:
    """Phase III, LLFD: gives every key of C an instance."""
    cost, limits = problem.cost, problem.limits.tolist()
    here = place != AWAY
    load = (problem.base + np.bincount(place[here], cost[here], minlength=len(limits))).tolist()
    instances = [Instance(problem, place, d, psi) for d in range(len(limits))]
    candidates = [(-cost[k], k) for k in np.flatnonzero(~here).tolist()]
    heapq.heapify(candidates)
    while candidates:
        negative, k = heapq.heappop(candidates)
        c = -negative
        by_load = sorted(range(len(limits)), key=load.__getitem__)
        for d in by_load:
            # Adjust(k, d): it fits, or an exchangeable set makes it fit.
            if load[d] + c <= limits[d]:
                break
            exchanged = instances[d].exchangeable(c, load[d] + c - limits[d])
            if exchanged:
                for other in exchanged:
                    place[other] = AWAY
                    load[d] -= cost[other]
                    heapq.heappush(candidates, (-cost[other], other))
                break
        else:
            d = by_load[0]
        place[k] = d
        load[d] += c
        instances[d].take(k)


class Instance:
    """The keys of one instance in the order of ψ; sorted when the first exchange asks for it."""

    def __init__(self, problem: Problem, place: I32, d: int, psi: F64) -> None:
        self._cost, self._place, self._d, self._psi = problem.cost, place, d, psi
        self._ordered: I64 | None = None
        self._taken: list[int] = []
        """Keys that came since they were sorted."""
        self._available = np.inf
        """What all keys together weigh that an exchange may take; known after one was refused."""

    def take(self, k: int) -> None:
        """A key was assigned to this instance."""
        if self._ordered is not None:
            self._taken.append(k)
            self._available += self._cost[k]

    def exchangeable(self, c: float, need: float) -> list[int]:
        """E: the first keys by ψ, each lighter than `c`, that together weigh `need`; empty if none do."""
        if need > self._available:
            return []
        ordered = self._sorted()
        start, size, weight = 0, 64, 0.0
        chosen: list[int] = []
        while start < len(ordered):
            part = ordered[start : start + size]
            part = part[(self._place[part] == self._d) & (self._cost[part] < c)]
            shed = weight + np.cumsum(self._cost[part])
            enough = int(np.searchsorted(shed, need))
            chosen += part[: enough + 1].tolist()
            if enough < len(part):
                return chosen
            weight = float(shed[-1]) if len(shed) else weight
            start, size = start + size, 4 * size
        self._available = weight  # candidates only become lighter, so no later one finds more
        return []

    def _sorted(self) -> I64:
        if self._ordered is None:
            mine = np.flatnonzero(self._place == self._d)
            self._ordered = mine[np.argsort(-self._psi[mine], kind="stable")]
        elif self._taken:
            new = np.array(sorted(self._taken, key=lambda k: -self._psi[k]))
            at = np.searchsorted(-self._psi[self._ordered], -self._psi[new], side="right")
            self._ordered = np.insert(self._ordered, at, new)
            self._taken = []
        return self._ordered
