"""A placement in the making: where the keys are, and what each instance carries."""

from __future__ import annotations

from operator import sub

import numpy as np

from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import I32


class Draft:
    """Places and loads that always belong together. Lists, since keys are moved one by one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.place: I32 = problem.current.copy()
        self.load: list[float] = problem.load.tolist()
        self.limits: list[float] = problem.limits.tolist()
        self.floors: list[float] = problem.floors.tolist()

    def move(self, k: int, d: int) -> None:
        """Key `k` goes to instance `d`."""
        cost = self.problem.cost[k]
        self.load[self.place[k]] -= cost
        self.load[d] += cost
        self.place[k] = d

    def fits(self, k: int, d: int) -> bool:
        """True if instance `d` keeps its limit with this key."""
        return bool(self.load[d] + self.problem.cost[k] <= self.limits[d])

    def roomiest(self) -> int:
        """The instance with the most room below its limit."""
        room = list(map(sub, self.limits, self.load))
        return room.index(max(room))

    def replace(self, place: I32) -> None:
        """Another placement of all keys."""
        self.place, self.load = place, self.problem.loads(place).tolist()

    def badness(self, overuse: int) -> tuple[float, float, float]:
        """What is wrong with the placement, as everywhere, but counted from the few keys that moved.

        `overuse`: by how many entries the table exceeds its limit before anything moves.
        """
        problem, moved = self.problem, np.flatnonzero(self.place != self.problem.current)
        source, target, home = problem.current[moved], self.place[moved], problem.home[moved]
        load, n = problem.load.copy(), problem.instances
        load -= np.bincount(source, weights=problem.cost[moved], minlength=n)
        load += np.bincount(target, weights=problem.cost[moved], minlength=n)
        overuse += int(np.count_nonzero(target != home)) - int(np.count_nonzero(source != home))
        outside = np.maximum(load - problem.limits, 0) + np.maximum(problem.floors - load, 0)
        return max(float(overuse), 0.0), float(outside.sum()), problem.migrated_bytes(self.place)
