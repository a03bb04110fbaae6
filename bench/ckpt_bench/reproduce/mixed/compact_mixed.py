"""Mixed over compact representations: mixed-2017 §IV-A, Algorithm 4 on vectors instead of keys.

Names of the paper: d' where a vector's keys will be, d where they are, d^h where the hash puts them, # how
many they are. With each key as a vector of its own this is Mixed itself, by the same code: what the paper
calls the original key space.

Deviations, beside those of the planner `mixed`: of the keys of a vector, as many are assigned at once to the
least loaded instance as it takes until it is not the least loaded one any more.
"""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance.compact import NIL, Vectors
from ckpt.rebalance.loads import F64, I32
from ckpt.rebalance.planners.minmig import BETA


def mixed_over(vectors: Vectors, limits: F64, table_limit: int) -> Vectors:
    """The vectors with their new d'; n grows as in the planner `mixed`."""
    entries = np.flatnonzero(vectors.current != vectors.home)
    entries = entries[np.argsort(vectors.state[entries], kind="stable")]  # η
    in_table = int(vectors.count[entries].sum())
    n = 0
    while True:
        trial = _Trial(vectors, limits)
        trial.move_back(entries, n)
        trial.prepare()
        trial.assign()
        planned = trial.vectors()
        overuse = int(planned.count[planned.target != planned.home].sum()) - table_limit
        if overuse <= 0 or n == in_table:
            return planned
        n = min(n + overuse, in_table)


@dataclass
class _Part:
    """Some keys of a vector, with the d' that they have now."""

    vector: int
    target: int
    count: int


class _Trial:
    def __init__(self, vectors: Vectors, limits: F64) -> None:
        self._of, self._limits = vectors, limits.tolist()
        self._cost: list[float] = vectors.cost.tolist()
        state = np.where(vectors.state > 0, vectors.state, 1)
        psi = np.where(vectors.state > 0, vectors.cost**BETA / state, np.inf)  # γ
        self._psi: list[float] = psi.tolist()
        self._target: I32 = vectors.current.copy()
        self._count = vectors.count.copy()
        self._parts: list[_Part] = []
        """What was split off, and what got a new place."""
        self._candidates: list[tuple[float, int]] = []
        """C: (-v_c, number of the part)."""
        self._load: list[float] = []
        self._sorted: dict[int, list[tuple[float, int]]] = {}
        """Of instances that an exchange was asked of: (-ψ, number), whole vectors by ~number."""

    def move_back(self, entries: np.ndarray[tuple[int], np.dtype[np.int64]], n: int) -> None:
        """Phase I: the first n keys of the table go home."""
        ends = np.cumsum(self._count[entries])
        whole = entries[ends <= n]
        self._target[whole] = self._of.home[whole]
        left = n - int(self._count[whole].sum())
        if left:
            vector = int(entries[len(whole)])
            self._split(vector, int(self._of.home[vector]), left)

    def prepare(self) -> None:
        """Phase II: keys by ψ leave overloaded instances until their load fits."""
        self._load = self._loads()
        for d, limit in enumerate(self._limits):
            if self._load[d] <= limit:
                continue
            mine = np.flatnonzero((self._target == d) & (self._count > 0))
            mine = mine[np.argsort(-np.array(self._psi)[mine], kind="stable")]
            for vector in mine.tolist():
                over = self._load[d] - limit
                if over <= 0:
                    break
                cost = self._cost[vector]
                count = min(int(self._count[vector]), int(np.ceil(over / cost)) if cost else 0)
                if count:
                    self._split(vector, NIL, count)
                    self._load[d] -= count * cost

    def assign(self) -> None:
        """Phase III: LLFD over the parts without a d'."""
        self._candidates = [
            (-self._cost[p.vector], number) for number, p in enumerate(self._parts) if p.target == NIL
        ]
        heapq.heapify(self._candidates)
        instances = range(len(self._limits))
        while self._candidates:
            _, number = heapq.heappop(self._candidates)
            part = self._parts[number]
            cost, load = self._cost[part.vector], self._load
            by_load = sorted(instances, key=load.__getitem__)
            for d in by_load:
                room = self._limits[d] - load[d]
                if cost <= room:
                    gap = load[by_load[1]] - load[d] if d == by_load[0] and len(by_load) > 1 else 0.0
                    count = int(min(part.count, max(gap // cost, 1), room // cost)) if cost else part.count
                    break
                if self._exchange(d, cost, cost - room):
                    count = 1
                    break
            else:
                d, count = by_load[0], 1
            self._place(part, number, d, count)

    def vectors(self) -> Vectors:
        """All parts, with those that are alike merged."""
        of, here = self._of, np.flatnonzero(self._count > 0)
        rows = np.concatenate([here, np.array([p.vector for p in self._parts], np.int64)])
        target = np.concatenate([self._target[here], np.array([p.target for p in self._parts], np.int32)])
        count = np.concatenate([self._count[here], np.array([p.count for p in self._parts], np.int64)])
        kept = count > 0
        rows, target, count = rows[kept], target[kept], count[kept]
        return Vectors.of(
            target.astype(np.int32), of.current[rows], of.home[rows], of.cost[rows], of.state[rows], count
        )

    def _loads(self) -> list[float]:
        load = np.bincount(self._target, self._of.cost * self._count, minlength=len(self._limits))
        for part in self._parts:
            if part.target != NIL:
                load[part.target] += self._cost[part.vector] * part.count
        return [float(each) for each in load]

    def _split(self, vector: int, target: int, count: int) -> None:
        self._count[vector] -= count
        self._parts.append(_Part(vector, target, count))

    def _place(self, part: _Part, number: int, d: int, count: int) -> None:
        cost = self._cost[part.vector]
        self._load[d] += count * cost
        if count < part.count:
            part.count -= count
            heapq.heappush(self._candidates, (-cost, number))
            self._parts.append(_Part(part.vector, d, count))
            number = len(self._parts) - 1
        else:
            part.target = d
        if d in self._sorted:
            insort(self._sorted[d], (-self._psi[part.vector], number))

    def _exchange(self, d: int, cost: float, need: float) -> bool:
        """E: keys of d by ψ, lighter than `cost` each and `need` together, go to C; False without any."""
        chosen: list[tuple[int, int]] = []
        for _, number in self._of_instance(d):
            vector, count = self._held(number, d)
            lighter = self._cost[vector]
            if not count or lighter >= cost or not lighter:
                continue
            taken = min(count, int(np.ceil(need / lighter)))
            chosen.append((number, taken))
            need -= taken * lighter
            if need <= 0:
                break
        else:
            return False
        for number, taken in chosen:
            vector, _ = self._held(number, d)
            if number < 0:
                self._split(vector, NIL, taken)
            else:
                self._parts[number].count -= taken
                self._parts.append(_Part(vector, NIL, taken))
            self._load[d] -= taken * self._cost[vector]
            heapq.heappush(self._candidates, (-self._cost[vector], len(self._parts) - 1))
        return True

    def _of_instance(self, d: int) -> list[tuple[float, int]]:
        if d not in self._sorted:
            whole = [~v for v in np.flatnonzero((self._target == d) & (self._count > 0)).tolist()]
            split = [number for number, part in enumerate(self._parts) if part.target == d]
            self._sorted[d] = sorted((-self._psi[self._held(n, d)[0]], n) for n in whole + split)
        return self._sorted[d]

    def _held(self, number: int, d: int) -> tuple[int, int]:
        """The vector of a part or, if below 0, a whole vector; and how many of its keys are at d."""
        if number < 0:
            return ~number, int(self._count[~number])
        part = self._parts[number]
        return part.vector, part.count if part.target == d else 0
