"""LAG: the covering knapsack, which keys an instance gives up to lose enough load at the least price.

`cheapest_cover` narrows many keys down to those about which there is a choice, and solves that exactly but
for the rounding of costs. Keys far cheaper per load than the break item (the one at which a greedy choice
ends) are taken, keys far dearer are not, and those around it go through a small dynamic program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.planning.problem import F64, I32, I64, Bool

UNITS = 2048
"""The dynamic program rounds each key's cost down to one of these parts of what is needed."""
ROUNDED = 6
"""Rounding down may lose so many units; answers for fewer come first, and one that covers is taken."""
BEFORE, AFTER = 24, 40
"""How many keys on each side of the break item are up for choice."""
_SORTED = 4096
"""So many keys are simply sorted; more are counted into bins first."""
_RATIO_SHIFT, _COST_SHIFT = 17, 20
"""Bits of a float32 below a bin: 64 bins of price per load in an octave, 8 bins of cost."""


def cheapest_cover(cost: F64, price: F64, need: float) -> I64:
    """Keys that together cost `need` or more, at nearly the least price; all there are, if that is less.

    Costs are above 0. A key with a negative price is always taken. Among prices per load that are alike
    (1.6 %), heavy keys are taken first if there are many: fewer keys move, and fewer need an entry.

    Examples
    --------
    >>> cheapest_cover(np.array([5.0, 4.0, 3.0]), np.array([5.0, 4.0, 3.5]), 7.0).tolist()
    [1, 2]
    """
    gift = price < 0
    sure = [np.flatnonzero(gift)]
    need -= float(cost[gift].sum())
    open_keys = np.flatnonzero(~gift) if len(sure[0]) else np.arange(len(cost))
    spare = np.empty(0, np.int64)
    if need > 0 and len(open_keys) > _SORTED:
        taken, open_keys, spare, need = _narrow(cost, price, open_keys, need)
        sure += taken
    if need > 0 and len(open_keys):
        order = open_keys[np.argsort(price[open_keys] / cost[open_keys], kind="stable")]
        reached = np.cumsum(cost[order])
        at = int(np.searchsorted(reached, need))
        first = max(at - BEFORE, 0)
        sure.append(order[:first])
        need -= float(reached[first - 1]) if first else 0.0
        window = np.concatenate([order[first : at + AFTER], spare])
        sure.append(window[_choose(cost[window], price[window], need)])
    return np.concatenate(sure)


def _narrow(cost: F64, price: F64, keys: I64, need: float) -> tuple[list[I64], I64, I64, float]:
    """What is taken in any case, what is at the break, some lighter keys, and what is then needed."""
    c = cost[keys]
    ratio = _bins(price[keys] / c, _RATIO_SHIFT)
    below, at, need = _break_bin(ratio, c, need)
    taken = [keys[below]]
    keys, c = keys[at], c[at]
    lighter = np.empty(0, np.int64)
    if len(keys) > _SORTED:
        weight = _bins(c, _COST_SHIFT)
        weight = weight.max() - weight
        below, at, need = _break_bin(weight, c, need)
        taken.append(keys[below])
        one_of_each = np.full(int(weight.max()) + 1, -1, np.int64)
        one_of_each[weight] = keys
        lighter = one_of_each[int(weight[at].max(initial=0)) + 1 :]
        lighter = lighter[lighter >= 0]
        keys = keys[at]
    return taken, keys, lighter, need


def _bins(values: F64, shift: int) -> I32:
    """Logarithmic bins: the leading bits of each number as a float32; they order as the numbers do."""
    codes = values.astype(np.float32).view(np.int32) >> shift
    return np.asarray(codes - codes.min())


def _break_bin(bins: I32, cost: F64, need: float) -> tuple[Bool, Bool, float]:
    """Which keys are in bins before the one where the sum of costs reaches `need`, which in it; the rest."""
    reached = np.cumsum(np.bincount(bins, weights=cost))
    at = min(int(np.searchsorted(reached, need)), len(reached) - 1)
    return bins < at, bins == at, need - (float(reached[at - 1]) if at else 0.0)


def _choose(cost: F64, price: F64, need: float) -> Bool:
    """The cheapest of a few keys that cover `need`; all of them, if they do not."""
    taken = np.zeros(len(cost), np.bool_)
    if float(cost.sum()) <= need:
        taken[:] = True
        return taken
    units = np.minimum(np.floor(cost * (UNITS / need)).astype(np.int64), UNITS)
    paid = np.full(UNITS + 1, np.inf)  # paid[w]: the least price of w units or more
    paid[0] = 0.0
    takes = np.zeros((len(cost), UNITS + 1), np.bool_)
    with_key = np.full(UNITS + 1, np.inf)
    for k, (u, p) in enumerate(zip(units.tolist(), price.tolist(), strict=True)):
        with_key[1 : u + 1] = p
        np.add(paid[1 : UNITS + 1 - u], p, out=with_key[u + 1 :])
        np.less(with_key, paid, out=takes[k])
        np.minimum(paid, with_key, out=paid)
    for units_wanted in range(UNITS - ROUNDED, UNITS + 1):
        taken = _taken(takes, units, units_wanted)
        if float(cost[taken].sum()) >= need:
            return taken
    return np.ones(len(cost), np.bool_)


def _taken(takes: npt.NDArray[np.bool_], units: I64, wanted: int) -> Bool:
    """The keys that the dynamic program takes for so many units."""
    taken = np.zeros(len(units), np.bool_)
    for k in range(len(units) - 1, -1, -1):
        if wanted > 0 and takes[k, wanted]:
            taken[k] = True
            wanted = max(wanted - int(units[k]), 0)
    return taken
