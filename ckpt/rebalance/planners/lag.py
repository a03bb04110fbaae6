"""LAG: our own. Overloaded instances give up the state-cheapest load, with a price on table entries.

The problem (mixed-2017 Eq. 3) couples two limits, on loads and on the table. A Lagrangian takes the second
one into the price: if an entry costs λ bytes, then moving key k away costs `state + λ·Δ`, where Δ is +1 for
a key at home (it needs an entry), -1 for one that returns home, else 0. For a given λ each overloaded
instance solves a covering knapsack of its own: lose the excess at the least price.

1. **Price.** Keys of overloaded instances are counted into bins of cost, state and Δ, a few thousand for a
   million keys. On the bins, a ladder of λ is tried; the table's size is not monotone in λ, so the whole
   ladder is scanned, and only the interval below its best rung is refined. Prices whose table would fit come
   first, the least state first.
2. **Return.** Keys away from home whose entry is dearer than what their return costs go home. A return to an
   overloaded home is paid for by what its load costs there: the price per load at the break item.
3. **Cover.** With that λ each overloaded instance chooses its keys (`covering`): exactly at the break item.
4. **Pack.** Chosen keys go, heaviest first, to an instance with a backup (free), home (no entry), or the
   instance with the most room. A key that fits nowhere stays, and its instance chooses again without it.
5. **Undo.** A move that no limit needs is taken back, most state first, until there is none.
6. **Search.** Small problems, where the coupling through rooms and entries matters most, get a tabu search
   (`local_search`).

Known weaknesses: loads end at their limits, so it may be needed again sooner than a planner that balances
more; and where the drift of each interval is large, cheap keys fill the table within a few intervals.
Against the second, of prices within 1 % of state the one with the smaller table is taken, and among keys
whose price per load is alike, the heaviest go first. A table that is too small is kept all the same
(`keep_table`).

Cost: O(K) array passes, and Python only for the keys that move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from operator import sub
from typing import NamedTuple

import numpy as np

from ckpt.rebalance.planners.covering import cheapest_cover
from ckpt.rebalance.planners.llfd import assign, prepare
from ckpt.rebalance.planners.local_search import MOST_CELLS, improve
from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64, Bool

RUNGS = 12
"""Prices on the ladder, from the state of a light key to that of the heaviest, by equal factors."""
REFINEMENTS = 6
"""How often the interval below the best rung is halved."""
ATTEMPTS = 6
"""How many prices are carried out, if what the bins said does not come true."""
ROUNDS = 4
"""How often an instance chooses again, after keys that it gave up fit nowhere."""
SQUEEZE = 0.05
"""A key that fits nowhere by less than this fraction of the mean load may push light keys out."""
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
        attempt = _Attempt(field, price)
        answers.append((attempt.badness(), attempt.place))
        if answers[-1][0][:2] == (0, 0) and not field.small:
            break
    wrong, place = min(answers, key=lambda answer: answer[0])
    if wrong[0]:
        place = keep_table(problem, place)
    if field.small and wrong != (0, 0, 0):
        return take_back(problem, improve(problem, place))
    return place


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
        room = np.max(problem.limits - self.load) + SQUEEZE * problem.mean
        self.excesses = {int(d): self._excess(int(d), room) for d in np.flatnonzero(self.over)}
        self.away = np.flatnonzero(problem.current != problem.home)
        self.bins = {d: _Bins(excess) for d, excess in self.excesses.items()}

    def _excess(self, d: int, room: float) -> _Excess:
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
        return _Excess(float(self.load[d] - problem.limits[d]), keys, cost, state, entries)

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


class _Forecast(NamedTuple):
    state: float
    entries: float
    per_load: float
    """What the last unit of load costs that is given up."""


class _Bins:
    """The keys of one overloaded instance, counted into bins of cost, state and Δ."""

    def __init__(self, excess: _Excess) -> None:
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

    def forecast(self, price: float, need: float) -> _Forecast:
        """What it comes to if the instance gives up this load, and bins could be cut."""
        if self._ordered[0] != price:
            paid = self._state + price * self._entries
            order = np.argsort(paid / self._cost, kind="stable")
            self._ordered = price, order, np.cumsum(self._cost[order])
        _, order, reached = self._ordered
        if need <= 0 or not len(order):
            return _Forecast(0.0, 0.0, 0.0)
        at = min(int(np.searchsorted(reached, need)), len(order) - 1)
        last, cost = int(order[at]), self._cost
        part = min(1.0, (need - float(reached[at])) / cost[last] + 1)
        before = order[:at]
        return _Forecast(
            float(self._state[before].sum() + part * self._state[last]),
            float(self._entries[before].sum() + part * self._entries[last]),
            float((self._state[last] + price * self._entries[last]) / cost[last]),
        )


def _bin(values: F64) -> I64:
    codes = values.astype(np.float32).view(np.int32) >> _BIN_SHIFT
    return np.asarray(codes - codes.min(), np.int64)


class _Attempt:
    """One price carried out: cover, pack and undo."""

    def __init__(self, field: _Field, price: float) -> None:
        self._problem = problem = field.problem
        self._limits, self._floors = problem.limits.tolist(), problem.floors.tolist()
        self._price = price
        self._overuse = field.overuse
        self.place = problem.current.copy()
        self.load = field.load.tolist()
        self._over = field.over
        self._return_home(field.returning(price))
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
        self.place = take_back(problem, self.place, np.array(self.load))

    def badness(self) -> tuple[float, float, float]:
        """What is wrong with the placement, as everywhere, but counted from the few keys that moved."""
        problem, moved = self._problem, np.flatnonzero(self.place != self._problem.current)
        source, target, home = problem.current[moved], self.place[moved], problem.home[moved]
        load, n = problem.load.copy(), problem.instances
        load -= np.bincount(source, weights=problem.cost[moved], minlength=n)
        load += np.bincount(target, weights=problem.cost[moved], minlength=n)
        overuse = self._overuse + np.count_nonzero(target != home) - np.count_nonzero(source != home)
        outside = np.maximum(load - problem.limits, 0) + np.maximum(problem.floors - load, 0)
        return max(float(overuse), 0.0), float(outside.sum()), problem.migrated_bytes(self.place)

    def _move(self, k: int, d: int) -> None:
        self.load[self.place[k]] -= self._problem.cost[k]
        self.load[d] += self._problem.cost[k]
        self.place[k] = d

    def _fits(self, k: int, d: int) -> bool:
        return bool(self.load[d] + self._problem.cost[k] <= self._limits[d])

    def _return_home(self, keys: I64) -> None:
        """Free entries that are dearer than what it costs to go home; overloaded homes give up more then."""
        for k, home in zip(keys.tolist(), self._problem.home[keys].tolist(), strict=True):
            if self._over[home] or self._fits(k, home):
                self._move(k, home)

    def _pack(self, chosen: I64) -> I64:
        """Move these keys, heaviest first; those that fit nowhere stay, and are returned."""
        problem = self._problem
        order = chosen[np.argsort(-problem.cost[chosen], kind="stable")]
        unplaced = []
        for k, home in zip(order.tolist(), problem.home[order].tolist(), strict=True):
            source = int(self.place[k])
            targets = [] if home == source else [home]
            if problem.backups is not None:
                backups = [int(b) for b in problem.backups[k] if b >= 0]
                targets = [*targets, *backups] if self._price > problem.state[k] else [*backups, *targets]
            targets.append(self._roomiest())
            for d in targets:
                if d != source and self._fits(k, d):
                    self._move(k, d)
                    break
            else:
                if not self._squeeze(k, targets[-1]):
                    unplaced.append(k)
        return np.array(unplaced, np.int64)

    def _squeeze(self, k: int, d: int) -> bool:
        """Move a key to an instance that has nearly room for it, and light keys from there to others."""
        problem, source = self._problem, int(self.place[k])
        need = self.load[d] + float(problem.cost[k]) - self._limits[d]
        if source == d or need > SQUEEZE * problem.mean:
            return False
        keys = np.flatnonzero((self.place == d) & (problem.current == d) & (problem.cost > 0))
        keys = keys[problem.cost[keys] < problem.cost[k]]
        paid = problem.state[keys] + self._price * (problem.home[keys] == d)
        pushed = keys[cheapest_cover(problem.cost[keys], paid, need)]
        if problem.cost[pushed].sum() < need:
            return False
        self._move(k, d)
        done: list[int] = []
        for other in pushed.tolist():
            to = self._roomiest()
            if to in (d, source) or not self._fits(other, to):
                break
            self._move(other, to)
            done.append(other)
        if self.load[d] <= self._limits[d]:
            return True
        for other in (*done, k):
            self._move(other, int(problem.current[other]))
        return False

    def _roomiest(self) -> int:
        room = list(map(sub, self._limits, self.load))
        return room.index(max(room))

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


def take_back(problem: Problem, place: I32, load: F64 | None = None) -> I32:
    """The placement without moves that no limit needs, those of most state first."""
    load, entries = problem.loads(place) if load is None else load, problem.table_size(place)
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


def keep_table(problem: Problem, place: I32) -> I32:
    """The placement with the lightest keys sent home for which the table has no room, whatever their load.

    A plan that balances less can be applied, one whose table is too large cannot.
    """
    away = np.flatnonzero(place != problem.home)
    lightest = away[np.lexsort((problem.state[away], problem.cost[away]))]
    home = lightest[: max(len(away) - problem.table_limit, 0)]
    place = place.copy()
    place[home] = problem.home[home]
    return place
