"""What every plan has to move at least: a Lagrangian bound on the migrated state.

Only two things are asked of a plan here, which each plan within the limits does: an overloaded instance gives
up load until it fits (keys may be cut, and what it takes in is forgotten), and the table keeps its limit. The
second is priced: an entry costs λ, and any λ from 0 gives a valid bound, so the best of a few is taken. With
λ = 0 the bound is the fractional knapsack, cheapest state per load first.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning.problem import F64, I32, Problem

_STEPS = 10
"""How often the price of an entry is refined; more changes the bound by less than a percent."""


def lower_bound(problem: Problem) -> float:
    """A number of bytes that no plan within the limits can go below."""
    state = problem.state
    if problem.backups is not None:
        state = np.where((problem.backups >= 0).any(axis=1), 0.0, state)
    load = problem.load
    leaving = np.flatnonzero((load > problem.limits)[problem.current])
    off_home = problem.current != problem.home
    entries = np.where(off_home[leaving], -1, 1)
    relaxed = _Relaxation(
        problem.cost[leaving],
        state[leaving],
        entries,
        problem.current[leaving],
        np.maximum(load - problem.limits, 0.0),
        state[np.flatnonzero(off_home & (load <= problem.limits)[problem.current])],
        int(np.count_nonzero(off_home)) - problem.table_limit,
    )
    return max(relaxed.best(), 0.0)


class _Relaxation:
    """The relaxed problem for any price of an entry; concave in the price."""

    def __init__(
        self, cost: F64, state: F64, entries: I32, owner: I32, excess: F64, idle: F64, over_table: int
    ) -> None:
        order = np.argsort(owner, kind="stable")
        self._cost, self._state, self._entries = cost[order], state[order], entries[order]
        self._ends = np.searchsorted(owner[order], np.arange(len(excess) + 1))
        self._excess = excess
        self._idle = idle
        self._over_table = over_table

    def best(self) -> float:
        """The largest bound among a few prices; the middle section of a concave function is searched."""
        best, entries = self.at(0.0)
        if entries <= 0:
            return best
        low, high = 0.0, max(float(self._state.max(initial=0.0)), float(self._idle.max(initial=0.0)))
        for _ in range(_STEPS):
            price = (low + high) / 2 if low else high / 16
            bound, entries = self.at(price)
            best = max(best, bound)
            low, high = (price, high) if entries > 0 else (low, price)
        return best

    def at(self, price: float) -> tuple[float, float]:
        """The bound at a price, and by how many entries the relaxed answer exceeds the table."""
        moved_home = self._idle < price
        total = float((self._idle[moved_home] - price).sum()) + price * self._over_table
        over = float(self._over_table - np.count_nonzero(moved_home))
        value = self._state + price * self._entries
        for d in np.flatnonzero(self._excess > 0):
            mine = slice(self._ends[d], self._ends[d + 1])
            cost, paid, entries = self._cost[mine], value[mine], self._entries[mine]
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(paid < 0, -np.inf, np.where(cost > 0, paid / cost, np.inf))
            order = np.argsort(ratio, kind="stable")
            order = order[(paid[order] < 0) | (cost[order] > 0)]
            shed = np.cumsum(cost[order])
            before = shed - cost[order]
            part = np.where(paid[order] < 0, 1.0, 0.0)
            needed = before < self._excess[d]
            safe = np.where(cost[order] > 0, cost[order], 1.0)
            part = np.where(
                needed, np.maximum(part, np.minimum(1.0, (self._excess[d] - before) / safe)), part
            )
            total += float((paid[order] * part).sum())
            over += float((entries[order] * part).sum())
        return total, over
