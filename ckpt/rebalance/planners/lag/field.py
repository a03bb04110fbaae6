"""Which instances take part, and which price of a table entry promises most: forecasts from the bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from ckpt.rebalance.planners.lag.bins import Bins, Excess
from ckpt.rebalance.planners.lag.repair import SQUEEZE
from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import I64, Bool

RUNGS = 12
"""Prices on the ladder, from the state of a light key to that of the heaviest, by equal factors."""
REFINEMENTS = 6
"""How often the interval below the best rung is halved."""
ALIKE = 0.01
"""Answers whose state differs by less are equal; then the smaller table wins."""
DEAR = 0.1
"""If the table's limit makes a plan dearer by more than this fraction, full homes are looked at too."""
TINY = 1e-6
"""An instance with room is asked what it costs to give up this fraction of the mean load."""


class Promise(NamedTuple):
    """What a price would come to if keys could be cut; those that promise more come first."""

    over: float
    """Entries above the table's limit."""
    state: float
    grows: float
    """By how much the table grows."""
    price: float


def promising_field(problem: Problem) -> Field:
    """The overloaded instances alone; or, if that promises less state, also homes that have no room.

    A home without room takes keys back all the same, if it gives up others for them: fewer and heavier ones.
    """
    field = Field(problem, problem.load > problem.limits, {})
    if field.is_free_of_the_table():
        return field
    homes = np.zeros(problem.instances, np.bool_)
    homes[problem.home[problem.current != problem.home]] = True
    wide = Field(problem, field.takes_part | homes, field.excesses)
    return min((field, wide), key=lambda each: each.promise(0)[:2])


class Field:
    """What all attempts share: the keys of the instances that take part, and what prices promise."""

    def __init__(self, problem: Problem, takes_part: Bool, known: Mapping[int, Excess]) -> None:
        self.problem, self.takes_part = problem, takes_part
        self.overuse = problem.table_size(problem.current) - problem.table_limit
        instances = np.flatnonzero(takes_part).tolist()
        self.excesses = {d: known[d] if d in known else _excess(problem, d) for d in instances}
        self._bins = {d: Bins(excess) for d, excess in self.excesses.items()}
        self._away = _Away(problem)
        self._promises = {price: self._forecast(price) for price in self._ladder()}

    def is_free_of_the_table(self) -> bool:
        """True if the table's limit hardly costs state."""
        best = self.promise(0)
        return not best.over and best.state <= self._promises[0.0][0] * (1 + DEAR)

    def promise(self, margin: float, tried: Sequence[float] = ()) -> Promise:
        """The price that promises most if `margin` entries of the table stay free; a new one if possible."""

        def is_new(price: float) -> bool:
            return all(abs(price - other) > ALIKE * other for other in tried)

        def priced(price: float) -> Promise:
            state, grows = self._promises[price]
            return Promise(max(self.overuse + grows + margin, 0.0), state, grows, price)

        known = sorted(map(priced, self._promises))
        best = next((each for each in known if is_new(each.price)), known[0])
        too_low = max((each.price for each in known if 0 < each.price < best.price and each.over), default=0)
        for _ in range(REFINEMENTS if too_low else 0):
            price = sqrt(too_low * best.price)
            if price not in self._promises:
                self._promises[price] = self._forecast(price)
            if is_new(price) and priced(price) < best:
                best = priced(price)
            else:
                too_low = price
        alike = [
            each
            for each in (best, *known)
            if each.over <= best.over and each.state <= best.state * (1 + ALIKE) and is_new(each.price)
        ]
        return min(alike, key=lambda each: each.grows, default=best)

    def returning(self, price: float) -> I64:
        """The keys that go home at this price of an entry, the most worthwhile first.

        A return saves an entry, and the price of the key's load where that is overloaded. It costs the state,
        and the price of the key's load at home, if home has no room for it.
        """
        problem, away = self.problem, self._away
        relief, charge = np.zeros(problem.instances), np.full(problem.instances, np.inf)
        for d, bins in self._bins.items():
            charge[d] = bins.forecast(price, max(bins.need, TINY * problem.mean)).per_load
            relief[d] = charge[d] if bins.need > 0 else 0.0
        value = away.state - price - relief[away.current] * away.cost
        order = np.lexsort((value, away.home))
        value, home, cost = value[order], away.home[order], away.cost[order]
        filled = np.cumsum(cost)
        filled -= (filled - cost)[np.searchsorted(home, home)]
        paid = (filled > (problem.limits - problem.load)[home]) & (cost > 0)
        value[paid] += charge[home[paid]] * cost[paid]
        worth = np.flatnonzero(value < 0)
        return np.asarray(away.keys[order[worth[np.argsort(value[worth], kind="stable")]]])

    def _ladder(self) -> list[float]:
        states = [excess.state for excess in self.excesses.values()]
        states.append(self._away.state)
        positive = np.concatenate([[s[s > 0].min(), s.max()] for s in states if (s > 0).any()] or [[]])
        if not len(positive):
            return [0.0]
        return [0.0, *np.geomspace(positive.min() / 2, positive.max() * 4, RUNGS).tolist()]

    def _forecast(self, price: float) -> tuple[float, float]:
        """The state that moves and the growth of the table."""
        problem, home = self.problem, self.returning(price)
        n = problem.instances
        load = problem.load + np.bincount(problem.home[home], weights=problem.cost[home], minlength=n)
        load -= np.bincount(problem.current[home], weights=problem.cost[home], minlength=n)
        parts = [bins.forecast(price, float(load[d] - problem.limits[d])) for d, bins in self._bins.items()]
        state = float(problem.state[home].sum()) + sum(part.state for part in parts)
        return state, sum(part.entries for part in parts) - len(home)


class _Away:
    """The keys that have entries in the table, with what a return depends on."""

    def __init__(self, problem: Problem) -> None:
        self.keys = np.flatnonzero(problem.current != problem.home)
        self.cost, self.state = problem.cost[self.keys], problem.state[self.keys]
        self.current, self.home = problem.current[self.keys], problem.home[self.keys]


def _excess(problem: Problem, d: int) -> Excess:
    """What instance `d` has above its limit, and its keys that fit anywhere else."""
    room = np.max(problem.limits - problem.load) + SQUEEZE * problem.mean
    keys = np.flatnonzero(problem.current == d)
    cost = problem.cost[keys]
    movable = (cost > 0) & (cost <= room)
    if not movable.all():
        keys, cost = keys[movable], cost[movable]
    state, home = problem.state[keys], problem.home[keys]
    entries = np.where(home == d, 1, 0)
    if problem.backups is not None:
        backups = problem.backups[keys]
        switches = ((backups >= 0) & (problem.load <= problem.limits)[backups]).any(axis=1)
        state = np.where(switches, 0.0, state)
    return Excess(float(problem.load[d] - problem.limits[d]), keys, cost, state, entries)
