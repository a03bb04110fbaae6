"""What an overloaded instance has to lose, its keys counted into bins, and what losing it would come to.

A million keys are a few thousand bins of cost, state and Δ. A forecast for a price of an entry sorts the bins
and cuts the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ckpt.rebalance.planning.problem import F64, I64

_BIN_SHIFT = 21
"""Bits of a float32 below a bin: 4 bins in an octave."""
_FEW = 4096
"""So many keys are each a bin of their own."""


@dataclass(frozen=True, eq=False)
class Excess:
    """An overloaded instance: what it has to lose, and the keys that it may give up."""

    need: float
    keys: I64
    cost: F64
    state: F64
    entries: I64
    """Δ: by how much the table grows if the key goes."""


class Forecast(NamedTuple):
    state: float
    entries: float
    per_load: float
    """What the last unit of load costs that is given up."""


class Bins:
    """The keys of one overloaded instance, counted into bins of cost, state and Δ."""

    def __init__(self, excess: Excess) -> None:
        self.need = excess.need
        cost, state, entries = excess.cost, excess.state, excess.entries
        if len(cost) > _FEW:
            c, s = _bin(cost), _bin(state)
            cell = (c * (int(s.max()) + 1) + s) * 3 + entries + 1
            count = np.bincount(cell)
            used = np.flatnonzero(count)
            self._cost = np.asarray(np.bincount(cell, weights=cost)[used], np.float64)
            self._state = np.asarray(np.bincount(cell, weights=state)[used], np.float64)
            self._entries = np.asarray((used % 3 - 1) * count[used], np.float64)
        else:
            self._cost, self._state, self._entries = cost, state, entries.astype(np.float64)

        self._ordered: tuple[float, I64, F64] = (-1.0, np.empty(0, np.int64), np.empty(0))

    def forecast(self, price: float, need: float) -> Forecast:
        """What it comes to if the instance gives up this load, and bins could be cut."""
        if self._ordered[0] != price:
            paid = self._state + price * self._entries
            order = np.argsort(paid / self._cost, kind="stable")
            self._ordered = price, order, np.cumsum(self._cost[order])
        _, order, reached = self._ordered
        if need <= 0 or not len(order):
            return Forecast(0.0, 0.0, 0.0)
        at = min(int(np.searchsorted(reached, need)), len(order) - 1)
        last, cost = int(order[at]), self._cost
        part = min(1.0, (need - float(reached[at])) / cost[last] + 1)
        before = order[:at]
        return Forecast(
            float(self._state[before].sum() + part * self._state[last]),
            float(self._entries[before].sum() + part * self._entries[last]),
            float((self._state[last] + price * self._entries[last]) / cost[last]),
        )


def _bin(values: F64) -> I64:
    codes = values.astype(np.float32).view(np.int32) >> _BIN_SHIFT
    return np.asarray(codes - codes.min(), np.int64)
