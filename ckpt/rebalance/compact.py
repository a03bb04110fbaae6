"""Loads as a few thousand vectors: the compact representation and HLHE of mixed-2017 §IV.

Keys that a planner cannot tell apart become one record (d', d, d^h, v_c, v_S, #): where they will be, where
they are, where the hash puts them, what each costs, what each holds, and how many they are. To make keys
alike, the values of cost and state are replaced by representatives.

HLHE (half linear, half exponential), with a degree of discretisation R = 2^r. After division by the smallest
value, the representatives are y = 1, 2, 4 … R/2 and R, 2R … sR, where s is the largest value divided by R,
rounded down. A value may become the representative at or below it (y_j) or the next one above (y_{j-1});
from sR on there is only sR. Values are taken in descending order, and what was lost so far decides.

Deviations from the paper:

- "If the accumulated deviation is positive, take the larger" does not give the result of its Fig. 6, where
  6 becomes 4 and all ends at 0. Of the two representatives, the one that leaves the smaller accumulated
  deviation is taken, of equal ones the lower, which does.
- Values are discretised for each instance by itself: what instances have in sum is what planners compare.
- A value of 0 stays 0.
- Records that become equal when d' changes are merged at once, not only in the candidate set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, I32

I64 = npt.NDArray[np.int64]

NIL = -1
"""The d' of keys that were taken from their instance and have no new one yet."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """Records (d', d, d^h, v_c, v_S, #); no two agree in all but the last."""

    target: I32
    """d'"""
    current: I32
    """d"""
    home: I32
    """d^h"""
    cost: F64
    """v_c"""
    state: F64
    """v_S"""
    count: I64
    """#"""

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def of(cls, target: I32, current: I32, home: I32, cost: F64, state: F64, count: I64) -> Vectors:
        """The vectors of these records, of which those that agree in all but # are merged."""
        order = np.lexsort((state, cost, home, current, target))
        columns = [column[order] for column in (target, current, home, cost, state)]
        starts = np.ones(len(order), np.bool_)
        starts[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        first = np.flatnonzero(starts)
        summed = np.add.reduceat(count[order], first) if len(first) else count[:0]
        kept = order[first]
        return cls(target[kept], current[kept], home[kept], cost[kept], state[kept], summed)

    def loads(self, instances: int) -> F64:
        """The load of each instance by d': the sum of v_c times #."""
        here = self.target != NIL
        weights = (self.cost * self.count)[here]
        return np.bincount(self.target[here], weights=weights, minlength=instances).astype(np.float64)

    def move(self, record: int, target: int, count: int | None = None) -> Vectors:
        """So many keys of a record, or all, go to another d' or to `NIL`. Numbers of records change."""
        moved = int(self.count[record]) if count is None else count
        if not 0 < moved <= self.count[record]:
            raise ConfigError(
                f"record {record} has {self.count[record]} keys, so {moved} of them cannot move"
            )
        left = self.count.copy()
        left[record] -= moved
        kept = np.append(left > 0, True)
        columns = (self.current, self.home, self.cost, self.state)
        current, home, cost, state = (np.append(column, column[record])[kept] for column in columns)
        targets = np.append(self.target, np.int32(target))[kept]
        return Vectors.of(targets, current, home, cost, state, np.append(left, moved)[kept])

    def move_back(self, record: int) -> Vectors:
        """Cleaning (Phase I): the keys of a record go home, so the table needs no entry for them."""
        return self.move(record, int(self.home[record]))


@dataclass(frozen=True, eq=False)
class Compacted:
    """Keys as vectors, and the way back."""

    vectors: Vectors
    current: I32
    home: I32
    cost: F64
    """Per key, its representative."""
    state: F64

    @classmethod
    def of(cls, current: I32, home: I32, cost: F64, state: F64, degree: int) -> Compacted:
        """Each key with the representatives of its cost and state, R being `degree`."""
        costs, states = hlhe(cost, degree, current), hlhe(state, degree, current)
        ones = np.ones(len(current), np.int64)
        return cls(Vectors.of(current, current, home, costs, states, ones), current, home, costs, states)

    def targets(self, planned: Vectors, psi: F64) -> I32:
        """Where each key goes, if its vectors became these.

        Of keys that are alike, those with the largest `psi` (the paper's criterion ψ) leave their instance.
        """
        if (planned.target == NIL).any():
            raise ConfigError("some vectors have no target yet")
        staying = planned.target == planned.current
        order = np.lexsort((staying, planned.state, planned.cost, planned.home, planned.current))
        of_keys = np.lexsort((-psi, self.state, self.cost, self.home, self.current))
        if int(planned.count.sum()) != len(of_keys):
            raise ConfigError(f"the vectors have {int(planned.count.sum())} keys, not {len(of_keys)}")
        targets = np.empty(len(of_keys), np.int32)
        targets[of_keys] = np.repeat(planned.target[order], planned.count[order])
        return targets


def hlhe(values: F64, degree: int, groups: I32 | None = None) -> F64:
    """The representative of each value; those of a group have about the sum of its values.

    Examples
    --------
    >>> hlhe(np.array([8.0, 6, 3, 2, 2, 1, 1, 1, 1, 1]), 4).tolist()  # Fig. 6 (b)
    [8.0, 4.0, 4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    """
    if degree < 1 or degree & (degree - 1):
        raise ConfigError(f"the degree of discretisation must be a power of two, not {degree}")
    found = np.zeros(len(values))
    positive = np.flatnonzero(values > 0)
    if not len(positive):
        return found
    unit = float(values[positive].min())
    x = values[positive] / unit
    of = np.zeros(len(values), np.int32) if groups is None else groups
    order = np.lexsort((-x, of[positive]))
    x, group = x[order], of[positive][order]
    lower, upper = _candidates(x, degree)
    found[positive[order]] = np.array(_greedy(x, lower, upper, group)) * unit
    return found


def _candidates(x: F64, degree: int) -> tuple[F64, F64]:
    """y_j and y_{j-1} of each value; for those at or above y_1, y_1 twice."""
    largest = max(np.floor(x.max() / degree) * degree, degree / 2)
    power = np.exp2(np.floor(np.log2(x)))
    lower = np.where(x >= degree, np.floor(x / degree) * degree, power)
    upper = np.where(x >= degree, lower + degree, 2 * power)
    return np.minimum(lower, largest), np.minimum(upper, largest)


def _greedy(x: F64, lower: F64, upper: F64, group: I32) -> list[float]:
    """One representative after the other, by what was lost so far in the group."""
    chosen = []
    lost, of = 0.0, NIL
    rows = zip(x.tolist(), lower.tolist(), upper.tolist(), group.tolist(), strict=True)
    for value, below, above, number in rows:
        if number != of:
            lost, of = 0.0, number
        with_below, with_above = lost + value - below, lost + value - above
        if abs(with_above) < abs(with_below):
            lost = with_above
            chosen.append(above)
        else:
            lost = with_below
            chosen.append(below)
    return chosen
