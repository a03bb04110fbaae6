"""LAG: our own. Overloaded instances give up the state-cheapest load, with a price on table entries.

The problem (mixed-2017 Eq. 3) couples two limits, on loads and on the table. A Lagrangian takes the second
one into the price: if an entry costs λ bytes, then moving key k away costs `state + λ·Δ`, where Δ is +1 for
a key at home (it needs an entry), -1 for one that returns home, else 0. For a given λ each overloaded
instance solves a covering knapsack of its own: lose the excess at the least price.

1. **Price.** Keys of overloaded instances are counted into bins of cost, state and Δ, a few thousand for a
   million keys. On the bins, a ladder of λ is tried; the table's size is not monotone in λ, so the ladder is
   scanned, not bisected. Prices whose table would fit come first, the least state first.
2. **Cover.** With that λ each overloaded instance chooses its keys (`covering`): exactly at the break item.
3. **Pack.** Chosen keys go, heaviest first, to an instance with a backup (free), home (no entry), or the
   instance with the most room. A key that fits nowhere stays, and its instance chooses again without it.
4. **Undo.** A move that no limit needs is taken back, most state first, until there is none.
5. **Search.** Small problems, where the coupling through rooms and entries matters most, get a tabu search
   (`local_search`) from there.

Weaknesses that its first version had, and what is done about them: it filled the table for nothing (prices
that are alike are now served heaviest first, and of two answers within 1 % of state the smaller table wins);
with replicas or several giants it broke the limit (a switch is priced as the entry that it is; giants are
parted before any planner is asked).

Cost: O(K) array passes, and Python only for the keys that move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance.planners.covering import cheapest_cover
from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planners.local_search import MOST_CELLS, improve
from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planners.mixed_bf import badness
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64, Bool

RUNGS = 24
"""Prices on the ladder, from the state of a light key to that of the heaviest, by equal factors."""
ATTEMPTS = 6
"""How many prices are carried out, if what the bins said does not come true."""
ROUNDS = 4
"""How often an instance chooses again, after keys that it gave up fit nowhere."""
ALIKE = 0.01
"""Answers whose state differs by less are equal; then the smaller table wins."""
_BIN_SHIFT = 20
"""Bits of a float32 below a bin: 8 bins in an octave."""
_FEW = 4096
"""So many keys are each a bin of their own."""


@planner("lag")
def lag(problem: Problem) -> I32:
    """Little state moves, with loads and table within their limits wherever a planner here can do it."""
    field = _Field(problem)
    answers = []
    for price in field.prices():
        place = _Attempt(field, price).place
        answers.append((badness(problem, place), place))
        if answers[-1][0][:2] == (0, 0) and not field.small:
            break
    least = min(answers, key=lambda answer: answer[0])
    if field.small and least[0] != (0, 0, 0):
        return take_back(problem, improve(problem, least[1]))
    return least[1]


@dataclass(frozen=True, eq=False)
class _Excess:
    """An overloaded instance: what it has to lose, and the keys that it may give up."""

    need: float
    keys: I64
    cost: F64
    state: F64
    entries: I64
    """Δ: by how much the table grows if the key goes."""


class _Field:
    """What all attempts share: the overloaded instances' keys, and the ladder of prices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.small = len(problem.cost) * problem.instances <= MOST_CELLS
        self.load = problem.load
        self.over = self.load > problem.limits
        self.overuse = problem.table_size(problem.current) - problem.table_limit
        room = np.max(problem.limits - self.load)
        self.excesses = {int(d): self._excess(int(d), room) for d in np.flatnonzero(self.over)}
        away = np.flatnonzero(problem.current != problem.home)
        away = away[~self.over[problem.current[away]] & ~self.over[problem.home[away]]]
        self.returning: I64 = away[np.argsort(problem.state[away], kind="stable")]
        """Keys that could go home, least state first, from instances that need not give up any."""

    def _excess(self, d: int, room: float) -> _Excess:
        problem = self.problem
        keys = np.flatnonzero(problem.current == d)
        cost = problem.cost[keys]
        movable = (cost > 0) & (cost <= room)
        if not movable.all():
            keys, cost = keys[movable], cost[movable]
        state, home = problem.state[keys], problem.home[keys]
        entries = np.where(home == d, 1, np.where(self.over[home], 0, -1))
        if problem.backups is not None:
            backups = problem.backups[keys]
            switches = ((backups >= 0) & ~self.over[backups]).any(axis=1)
            home_switches = (backups == home[:, None]).any(axis=1)
            entries = np.where((home != d) & switches & ~home_switches, 0, entries)
            state = np.where(switches, 0.0, state)
        return _Excess(float(self.load[d] - problem.limits[d]), keys, cost, state, entries)

    def prices(self) -> Iterator[float]:
        """Prices to try, the most promising first."""
        states = [excess.state for excess in self.excesses.values()]
        states.append(self.problem.state[self.returning])
        positive = np.concatenate([[s[s > 0].min(), s.max()] for s in states if (s > 0).any()] or [[]])
        rungs = np.geomspace(positive.min() / 2, positive.max() * 2, RUNGS).tolist() if len(positive) else []
        bins = [_Bins(excess) for excess in self.excesses.values()]
        returned = np.concatenate([[0.0], np.cumsum(states[-1])])
        forecasts = []
        for price in [0.0, *rungs]:
            at_home = int(np.searchsorted(states[-1], price))
            parts = [bin_.forecast(price) for bin_ in bins]
            entries = self.overuse - at_home + sum(entries for _, entries in parts)
            state = float(returned[at_home]) + sum(state for state, _ in parts)
            forecasts.append((max(entries, 0.0), state, entries, price))
        forecasts.sort()
        enough = forecasts[0][1] * (1 + ALIKE)
        alike = [f for f in forecasts if f[0] <= forecasts[0][0] and f[1] <= enough]
        alike.sort(key=lambda f: f[2])
        for *_, price in [*alike, *(f for f in forecasts if f not in alike)][:ATTEMPTS]:
            yield price


class _Bins:
    """The keys of one overloaded instance, counted into bins of cost, state and Δ."""

    def __init__(self, excess: _Excess) -> None:
        self._need = excess.need
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

    def forecast(self, price: float) -> tuple[float, float]:
        """The state that moves and the growth of the table, if bins could be cut."""
        paid = self._state + price * self._entries
        order = np.argsort(paid / self._cost, kind="stable")
        cost = self._cost[order]
        before = np.cumsum(cost) - cost
        part = np.where(paid[order] < 0, 1.0, np.clip((self._need - before) / cost, 0.0, 1.0))
        return float(part @ self._state[order]), float(part @ self._entries[order])


def _bin(values: F64) -> I64:
    codes = values.astype(np.float32).view(np.int32) >> _BIN_SHIFT
    return np.asarray(codes - codes.min(), np.int64)


class _Attempt:
    """One price carried out: cover, pack and undo."""

    def __init__(self, field: _Field, price: float) -> None:
        self._problem = problem = field.problem
        self._limits, self._floors = problem.limits.tolist(), problem.floors.tolist()
        self._price = price
        self.place = problem.current.copy()
        self.load = field.load.tolist()
        self._return_home(field.returning)
        stuck: dict[int, Bool] = {d: np.zeros(len(e.keys), np.bool_) for d, e in field.excesses.items()}
        for _ in range(ROUNDS):
            chosen = []
            for d, excess in field.excesses.items():
                need = self.load[d] - self._limits[d]
                here = ~stuck[d] & (self.place[excess.keys] == d)
                left = np.flatnonzero(here) if need > 0 else np.empty(0, np.int64)
                if len(left):
                    paid = excess.state[left] + price * excess.entries[left]
                    chosen.append(excess.keys[left[cheapest_cover(excess.cost[left], paid, need)]])
            if not chosen:
                break
            unplaced = self._pack(np.concatenate(chosen))
            if not len(unplaced):
                break
            for d, excess in field.excesses.items():
                stuck[d] |= np.isin(excess.keys, unplaced)
        if any(load > limit for load, limit in zip(self.load, self._limits, strict=True)):
            self._exchange()
        if any(self._floors):
            self._fill()
        self.place = take_back(problem, self.place)

    def _move(self, k: int, d: int) -> None:
        self.load[self.place[k]] -= self._problem.cost[k]
        self.load[d] += self._problem.cost[k]
        self.place[k] = d

    def _fits(self, k: int, d: int) -> bool:
        return bool(self.load[d] + self._problem.cost[k] <= self._limits[d])

    def _return_home(self, returning: I64) -> None:
        """Free entries that are dearer than the state behind them."""
        worth = returning[: int(np.searchsorted(self._problem.state[returning], self._price))]
        for k, home in zip(worth.tolist(), self._problem.home[worth].tolist(), strict=True):
            if self._fits(k, home):
                self._move(k, home)

    def _pack(self, chosen: I64) -> I64:
        """Move these keys, heaviest first; those that fit nowhere stay, and are returned."""
        problem = self._problem
        order = chosen[np.argsort(-problem.cost[chosen], kind="stable")]
        instances = range(problem.instances)
        unplaced = []
        for k, home in zip(order.tolist(), problem.home[order].tolist(), strict=True):
            source = int(self.place[k])
            targets = [] if home == source else [home]
            if problem.backups is not None:
                backups = [int(b) for b in problem.backups[k] if b >= 0]
                targets = [*targets, *backups] if self._price > problem.state[k] else [*backups, *targets]
            targets.append(max(instances, key=lambda d: self._limits[d] - self.load[d]))
            for d in targets:
                if d != source and self._fits(k, d):
                    self._move(k, d)
                    break
            else:
                unplaced.append(k)
        return np.array(unplaced, np.int64)

    def _exchange(self) -> None:
        """Where moves alone do not help, let LLFD exchange keys: overloaded instances give up γ's first."""
        psi = priority(self._problem, BETA)
        prepare(self._problem, self.place, psi)
        assign(self._problem, self.place, psi)
        self.load = self._problem.loads(self.place).tolist()

    def _fill(self) -> None:
        """Bring instances up to their floor, from the one with the most load above its own."""
        problem = self._problem
        for _ in range(4 * problem.instances):
            short = [floor - load for floor, load in zip(self._floors, self.load, strict=True)]
            d = max(range(problem.instances), key=short.__getitem__)
            giver = min(range(problem.instances), key=short.__getitem__)
            if short[d] <= 0 or short[giver] >= 0:
                return
            keys = np.flatnonzero(self.place == giver)
            cost = problem.cost[keys]
            keys = keys[(cost > 0) & (cost <= min(-short[giver], self._limits[d] - self.load[d]))]
            paid = problem.state[keys] + self._price * (problem.home[keys] != d)
            need = min(short[d], -short[giver])
            moved = False
            for k in keys[cheapest_cover(problem.cost[keys], paid, need)].tolist():
                if self._fits(k, d) and self.load[giver] - problem.cost[k] >= self._floors[giver]:
                    self._move(k, d)
                    moved = True
            if not moved:
                return


def take_back(problem: Problem, place: I32) -> I32:
    """The placement without moves that no limit needs, those of most state first."""
    load, entries = problem.loads(place), problem.table_size(place)
    place = place.copy()
    moved = np.flatnonzero(place != problem.current)
    moved = moved[np.lexsort((-problem.cost[moved], -problem.state[moved]))]
    while True:
        source, target, cost = problem.current[moved], place[moved], problem.cost[moved]
        fits = (load[source] + cost <= problem.limits[source]) & (
            load[target] - cost >= problem.floors[target]
        )
        grows = (source != problem.home[moved]).astype(np.int64) - (target != problem.home[moved])
        fits &= entries + grows <= problem.table_limit
        if not fits.any():
            return place
        at = int(fits.argmax())
        k = moved[at]
        load[place[k]] -= problem.cost[k]
        load[problem.current[k]] += problem.cost[k]
        entries += int(grows[at])
        place[k] = problem.current[k]
        moved = np.delete(moved, at)
