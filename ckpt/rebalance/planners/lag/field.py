"""Prices of a table entry, the most promising first: what the bins forecast for a ladder of them."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np

from ckpt.rebalance.planners.lag.bins import Bins, Excess
from ckpt.rebalance.planners.lag.local_search import MOST_CELLS
from ckpt.rebalance.planners.lag.repair import SQUEEZE
from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import I64

RUNGS = 12
"""Prices on the ladder, from the state of a light key to that of the heaviest, by equal factors."""
REFINEMENTS = 6
"""How often the interval below the best rung is halved."""
ATTEMPTS = 6
"""How many prices are carried out, if what the bins said does not come true."""
ALIKE = 0.01
"""Answers whose state differs by less are equal; then the smaller table wins."""


class Field:
    """What all attempts share: the overloaded instances' keys, and the ladder of prices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.small = len(problem.cost) * problem.instances <= MOST_CELLS
        self.load = problem.load
        self.over = self.load > problem.limits
        self.overuse = problem.table_size(problem.current) - problem.table_limit
        room = np.max(problem.limits - self.load) + SQUEEZE * problem.mean
        self.excesses = {int(d): self._excess(int(d), room) for d in np.flatnonzero(self.over)}
        self.away = np.flatnonzero(problem.current != problem.home)
        self.bins = {d: Bins(excess) for d, excess in self.excesses.items()}

    def _excess(self, d: int, room: float) -> Excess:
        problem = self.problem
        keys = np.flatnonzero(problem.current == d)
        cost = problem.cost[keys]
        movable = (cost > 0) & (cost <= room)
        if not movable.all():
            keys, cost = keys[movable], cost[movable]
        state, home = problem.state[keys], problem.home[keys]
        entries = np.where(home == d, 1, 0)
        if problem.backups is not None:
            backups = problem.backups[keys]
            switches = ((backups >= 0) & ~self.over[backups]).any(axis=1)
            state = np.where(switches, 0.0, state)
        return Excess(float(self.load[d] - problem.limits[d]), keys, cost, state, entries)

    def prices(self) -> Iterator[float]:
        """Prices to try, the most promising first."""
        states = [excess.state for excess in self.excesses.values()]
        states.append(self.problem.state[self.away])
        positive = np.concatenate([[s[s > 0].min(), s.max()] for s in states if (s > 0).any()] or [[]])
        rungs = np.geomspace(positive.min() / 2, positive.max() * 4, RUNGS).tolist() if len(positive) else []
        forecasts = sorted((*self._forecast(price), price) for price in [0.0, *rungs])
        best = forecasts[0]
        too_low = max((price for over, _, _, price in forecasts if 0 < price < best[3] and over), default=0)
        for _ in range(REFINEMENTS if too_low else 0):
            price = sqrt(too_low * best[3])
            between = (*self._forecast(price), price)
            if between < best:
                best = between
            else:
                too_low = price
        alike = [f for f in (best, *forecasts) if f[0] <= best[0] and f[1] <= best[1] * (1 + ALIKE)]
        alike.sort(key=lambda f: f[2])
        for *_, price in [*alike[:2], *(f for f in forecasts if f not in alike)][:ATTEMPTS]:
            yield price

    def returning(self, price: float) -> I64:
        """The keys that go home at this price of an entry, the most worthwhile first.

        A key's return saves an entry, and the price of its load where that is overloaded; it costs its state,
        and the price of its load where home is overloaded.
        """
        problem, away = self.problem, self.away
        per_load = np.zeros(problem.instances)
        for d, bins in self.bins.items():
            per_load[d] = bins.forecast(price, bins.need).per_load
        change = per_load[problem.home[away]] - per_load[problem.current[away]]
        value = problem.state[away] - price + change * problem.cost[away]
        keys = away[np.argsort(value, kind="stable")][: np.count_nonzero(value < 0)]
        by_home = keys[np.argsort(problem.home[keys], kind="stable")]
        home, cost = problem.home[by_home], problem.cost[by_home]
        filled = np.cumsum(cost)
        filled -= (filled - cost)[np.searchsorted(home, home)]
        fits = self.over[home] | (filled <= (problem.limits - self.load)[home])
        return np.asarray(keys[np.isin(keys, by_home[fits])])

    def _forecast(self, price: float) -> tuple[float, float, float]:
        """Entries above the limit, state that moves, and the growth of the table, if keys could be cut."""
        problem, home = self.problem, self.returning(price)
        n = problem.instances
        load = self.load + np.bincount(problem.home[home], weights=problem.cost[home], minlength=n)
        load -= np.bincount(problem.current[home], weights=problem.cost[home], minlength=n)
        parts = [bins.forecast(price, float(load[d] - problem.limits[d])) for d, bins in self.bins.items()]
        entries = self.overuse - len(home) + sum(part.entries for part in parts)
        state = float(problem.state[home].sum()) + sum(part.state for part in parts)
        return max(entries, 0.0), state, entries
