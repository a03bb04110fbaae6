"""MNRT: mnrt-2017 Algorithm 4. Migration, splits, network and routing table weighed together.

Names of the paper: γ1, γ2, γ3 (rows of Table 2) a key is merged, left whole, or split by the move; δ1, δ2, δ3
(columns) it moves home, from one foreign instance to another, or away from home; UL the most that an instance
may carry, χ what an overloaded one has too much, C the parts under way, MC the state that a part takes along.

An overloaded instance gives up, in this order: parts that could rejoin another part of their key on a low
instance, at home (γ1, δ1) or elsewhere (γ1, δ2); whole keys whose home is low (γ2, δ1); whole keys that are
away from home anyway (γ2, δ2); then keys with the least MC per load. A part heavier than χ is cut to χ.
Then the heaviest part in C goes to the best instance for it, in the same order of preference; if that is
overloaded by it, the instance gives up lighter keys.

Deviations:
- Line 15 tests L(k) ≥ UL; it has to be L(d), the load of the instance.
- UNLOAD after Line 15 could give up the part that was just placed, and never end. Only lighter keys may
  leave; if they are not enough, the part that came is cut.
- Line 12 chooses a part and an instance together by priority. Parts are taken heaviest first, and the
  priority chooses the instance: the order in which LLFD has a bound, and no search over all pairs.
- Line 6 reads MC/MC in print. Read as MC / L(k), state per load, as the text says.

Cost: O(K log K), and O(N) for each part that moves.
"""

from __future__ import annotations

import heapq

import numpy as np

from ckpt.rebalance.planners.qmmp import collected, parts_of
from ckpt.rebalance.planning import Placement, Problem, planner
from ckpt.rebalance.planning.problem import F64, SLACK


@planner(
    "mnrt",
    splits=True,
    exempt={"minimal": "the paper does not take moves back"},
)
def mnrt(problem: Problem) -> Placement:
    """Loads within their limits, by few splits."""
    return _Mnrt(problem).placement()


class _Mnrt:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.key, self.instance, self.share = parts_of(problem)
        self.part = problem.cost[self.key] * self.share
        self.load = problem.load.tolist()
        self.limits = (problem.limits * (1 - SLACK / 2)).tolist()  # shares are rounded
        self.parts: dict[int, dict[int, float]] = {}
        """Of each key that was touched or is split: its share on each instance."""
        self.candidates: list[tuple[float, int, float]] = []
        for k, d, q in zip(self.key, self.instance, self.share, strict=True):
            if q < 1:
                self.parts.setdefault(int(k), {})[int(d)] = float(q)

    def placement(self) -> Placement:
        overloaded = [d for d, load in enumerate(self.load) if load > self.limits[d]]
        low = [d for d in range(len(self.load)) if d not in overloaded]
        for d in overloaded:
            self._unload(d, self._by_priority(d, low), np.inf)
        while self.candidates:
            negative, k, q = heapq.heappop(self.candidates)
            weight = -negative
            d = self._target(k, weight)
            self._add(k, d, q)
            if self.load[d] > self.limits[d]:
                self._unload(d, self._lightest_state(d), weight)
                over = self.load[d] - self.limits[d]
                if over > 0 and self._somewhere_else(d):
                    self._give(k, d, min(over / self.problem.cost[k], q))
        touched = [(k, d, q) for k, held in self.parts.items() for d, q in held.items() if q > 0]
        none = np.zeros(len(self.share))
        none[~np.isin(self.key, list(self.parts))] = 1.0
        return collected(self.problem, self.key, self.instance, none, touched)

    def _unload(self, d: int, order: list[int], lighter_than: float) -> None:
        for k in order:
            chi = self.load[d] - self.limits[d]
            if chi <= 0:
                return
            held = self._held(k).get(d, 0.0)
            weight = held * self.problem.cost[k]
            if 0 < weight < lighter_than:
                self._give(k, d, held if weight <= chi else held * chi / weight)

    def _by_priority(self, d: int, low: list[int]) -> list[int]:
        """InThePriority, then the least state per load."""
        home = self.problem.home
        rest = self._lightest_state(d)

        def rank(k: int) -> int:
            rejoins = [other for other in low if self.parts.get(k, {}).get(other, 0.0) > 0]
            if rejoins:
                return 0 if int(home[k]) in rejoins else 1
            if int(home[k]) != d and k not in self.parts:
                return 2 if int(home[k]) in low else 3
            return 4

        return sorted(rest, key=rank)  # stable: by state per load within a rank

    def _lightest_state(self, d: int) -> list[int]:
        """The keys with a part on d, least state per load first."""
        here = self.key[(self.instance == d) & (self.part > 0)]
        came = [k for k, held in self.parts.items() if held.get(d, 0.0) > 0]
        keys = np.union1d(here, np.array(came, np.int64))
        ratio: F64 = self.problem.state[keys] / self.problem.cost[keys]
        return [int(k) for k in keys[np.lexsort((-self.problem.cost[keys], ratio))]]

    def _target(self, k: int, weight: float) -> int:
        """The first in the order of priority; of equal ones, the least loaded."""
        held, home, source = self._held(k), int(self.problem.home[k]), int(self.problem.current[k])

        def rank(d: int) -> tuple[bool, int, float]:
            fits = self.load[d] + weight <= self.limits[d]
            if held.get(d, 0.0) > 0:
                preference = 0 if d == home else 1
            else:
                preference = 2 if d == home else 3 if source != home else 4
            return not fits, preference if fits else 0, self.load[d] - self.limits[d]

        return min(range(len(self.load)), key=rank)

    def _somewhere_else(self, d: int) -> bool:
        return any(load < self.limits[e] for e, load in enumerate(self.load) if e != d)

    def _held(self, k: int) -> dict[int, float]:
        return self.parts.setdefault(k, {int(self.problem.current[k]): 1.0})

    def _give(self, k: int, d: int, share: float) -> None:
        held = self._held(k)
        weight = share * float(self.problem.cost[k])
        held[d] -= share
        if held[d] < 1e-12:
            del held[d]
        self.load[d] -= weight
        heapq.heappush(self.candidates, (-weight, k, share))

    def _add(self, k: int, d: int, share: float) -> None:
        held = self._held(k)
        held[d] = held.get(d, 0.0) + share
        self.load[d] += share * float(self.problem.cost[k])
