"""LAG: a tabu search for a placement with less migrated state, for problems with few keys.

The search begins where the keys are, which moves nothing and breaks a limit, and not at the answer to beat:
from below it finds cheaper answers. In each step all moves of one key and all swaps of two are evaluated at
once, and the best one that is not forbidden is carried out, also if it makes things worse; keys that took
part may then not move for a few steps, unless that gives the best answer so far. Load outside the limits
and entries above the table's limit are allowed on the way, each at a price that rises while there are any
and falls while there are none. If nothing better was found for a while, there is a kick: a tenth of
the keys are put back to where they are now, or home, and the search goes on from the best answer, or from
where it is while no answer is within the limits.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.mixed_bf import badness
from ckpt.rebalance.planning import Problem
from ckpt.rebalance.planning.problem import F64, I32, I64, SLACK, Bool

MOST_CELLS = 1000
"""Problems with more pairs of a key and an instance are not searched."""
STEPS_PER_KEY = 10
"""A step takes about 0.2 ms for 60 keys. Without an answer within the limits, up to five times that."""
TENURE = 5
"""For how many steps a key that moved stays."""
PATIENCE = 60
"""After how many steps without a better answer there is a kick."""
RISE, FALL = 1.1, 0.95
"""By what the price of what breaks a limit is multiplied in each step with it, and without it."""


def improve(problem: Problem, place: I32) -> I32:
    """A placement that is not worse than this one."""
    search = _Search(problem, place)
    steps = STEPS_PER_KEY * len(place)
    for step in range(5 * steps):
        if step >= steps and search.within_limits:
            break
        search.step(step)
    return search.best


class _Search:
    """`place` is where the search is, `best` the best placement that it has seen."""

    def __init__(self, problem: Problem, incumbent: I32) -> None:
        self._problem = problem
        self.best, self._best_badness, self._best_at = incumbent, badness(problem, incumbent), 0
        instances = np.arange(problem.instances)
        self._bytes: F64 = np.where(instances == problem.current[:, None], 0.0, problem.state[:, None])
        """What it costs to have each key on each instance."""
        if problem.backups is not None:
            for column in problem.backups.T:
                held = np.flatnonzero(column >= 0)
                self._bytes[held, column[held]] = 0.0
        self._entry = (instances != problem.home[:, None]).astype(np.float64)
        self._keys = np.arange(len(incumbent))
        self._by_weight = np.lexsort((problem.state, problem.cost))
        """Kicks choose from this order, so that the order in which keys were given does not matter."""
        self._random = np.random.default_rng(0)
        self._tolerance = SLACK * float(problem.limits.max())
        self._restart(problem.current)

    @property
    def within_limits(self) -> bool:
        """True if the best placement breaks no limit."""
        return self._best_badness[:2] == (0, 0)

    def step(self, step: int) -> None:
        """Carry out the best move or swap, and adjust the prices."""
        place, limit = self._place, self._problem.table_limit
        outside = self._outside(self._load)
        over_table = max(self._entries - limit, 0.0)

        def worth(paid: F64, grown: F64, strays: F64, forbidden: Bool) -> F64:
            """What each of these changes costs; infinite if it is forbidden."""
            table = np.maximum(self._entries + grown - limit, 0) - over_table
            cost = paid + self._load_price * strays + self._entry_price * table
            best_so_far = (outside.sum() + strays <= self._tolerance) & (self._entries + grown <= limit)
            if self.within_limits:
                best_so_far &= self._migrated + paid < self._best_badness[2] * (1 - SLACK)
            return np.where(forbidden & ~best_so_far, np.inf, cost)

        forbidden = self._free_at > step
        paid = self._bytes - self._bytes[self._keys, place][:, None]
        grown = self._entry - self._entry[self._keys, place][:, None]
        cost = self._problem.cost
        without = self._load[place] - cost
        leave = self._outside(without, place) - outside[place]
        join = self._outside(self._load + cost[:, None]) - outside
        moves = worth(paid, grown, leave[:, None] + join, forbidden[:, None])
        moves[self._keys, place] = np.inf
        replaced = self._outside(without[:, None] + cost, place[:, None]) - outside[place][:, None]
        swap_paid, swap_grown = paid[:, place], grown[:, place]
        swaps = worth(
            swap_paid + swap_paid.T,
            swap_grown + swap_grown.T,
            replaced + replaced.T,
            forbidden[:, None] | forbidden,
        )
        swaps[place[:, None] == place] = np.inf
        best_move, best_swap = float(moves.min(initial=np.inf)), float(swaps.min(initial=np.inf))
        if np.isfinite(min(best_move, best_swap)):
            if best_move <= best_swap:
                k, d = divmod(int(moves.argmin()), self._problem.instances)
                self._move(k, d, step)
            else:
                i, j = divmod(int(swaps.argmin()), len(place))
                to_i, to_j = int(place[j]), int(place[i])
                self._move(i, to_i, step)
                self._move(j, to_j, step)
            self._judge(step)
        if step - self._best_at >= PATIENCE:
            self._best_at = step
            self._restart(self._kicked())

    def _restart(self, place: I32) -> None:
        self._place = place.copy()
        self._load = self._problem.loads(place)
        self._entries = float(self._entry[self._keys, place].sum())
        self._migrated = float(self._bytes[self._keys, place].sum())
        self._free_at: I64 = np.zeros(len(place), np.int64)
        state, cost = float(self._problem.state.sum()), float(self._problem.cost.sum())
        self._load_price = (state or 1.0) / (cost or 1.0)
        self._entry_price = (state or 1.0) / max(len(place), 1)

    def _kicked(self) -> I32:
        place = (self.best if self.within_limits else self._place).copy()
        chosen = self._by_weight[self._random.permutation(len(place))[: max(2, len(place) // 10)]]
        back = self._random.random(len(chosen)) < 0.5
        place[chosen] = np.where(back, self._problem.current[chosen], self._problem.home[chosen])
        return place

    def _judge(self, step: int) -> None:
        strays = float(self._outside(self._load).sum())
        strays = strays if strays > self._tolerance else 0.0
        now = (max(self._entries - self._problem.table_limit, 0.0), strays, self._migrated)
        self._load_price *= RISE if now[1] > 0 else FALL
        self._entry_price *= RISE if now[0] > 0 else FALL
        if now < self._best_badness:
            exact = badness(self._problem, self._place)
            if exact < self._best_badness:
                self.best, self._best_badness, self._best_at = self._place.copy(), exact, step

    def _move(self, k: int, d: int, step: int) -> None:
        source = self._place[k]
        self._load[source] -= self._problem.cost[k]
        self._load[d] += self._problem.cost[k]
        self._entries += self._entry[k, d] - self._entry[k, source]
        self._migrated += self._bytes[k, d] - self._bytes[k, source]
        self._place[k] = d
        self._free_at[k] = step + 1 + TENURE

    def _outside(self, load: F64, instance: I32 | None = None) -> F64:
        """By how much each load is outside the limits of its instance."""
        limits, floors = self._problem.limits, self._problem.floors
        if instance is not None:
            limits, floors = limits[instance], floors[instance]
        wrong = np.maximum(load - limits, 0)
        return wrong + np.maximum(floors - load, 0) if floors.any() else np.asarray(wrong)
