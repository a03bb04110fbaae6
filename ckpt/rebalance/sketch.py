"""Heavy keys in bounded memory: every key of 0.1 % of the load is listed, and short of at most 0.03 % of it.

The counters are those of Misra and Gries, for weights, in the form that can be merged (Agarwal and others,
"Mergeable summaries", 2012). New keys join the listed ones exactly. When there are more than twice `capacity`
of them, the largest cost that has no place any more is taken off all of them, and those with nothing left are
dropped. Each time at least `capacity + 1` keys lose that much. So, in whatever order keys come,

    true cost - lost <= listed cost <= true cost,    lost <= (total - listed) / (capacity + 1).

With the default capacity that is 1/4097 = 0.0244 % of the total. The load of each instance is counted
exactly, and what is not listed is its `rest`, so listed and rest always add up to what came. A key that
changes its instance takes its listed cost along.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name
from ckpt.rebalance.loads import F64, I32, MAX_INSTANCES, U64, Loads, amounts, sums

CAPACITY = 4096


class LoadSketch:
    """Loads of any number of keys in the memory of `2 * capacity` of them.

    Examples
    --------
    >>> sketch = LoadSketch(capacity=2)
    >>> sketch.add(np.array([7, 1, 7, 2], np.uint64), [5, 1, 5, 1], instance=0)
    >>> sketch.add(np.array([3, 4, 5, 6], np.uint64), [1, 1, 1, 1], instance=1)
    >>> loads = sketch.loads()
    >>> loads.keys.tolist(), loads.cost.tolist(), loads.rest.tolist()
    ([7], [9.0], [3.0, 4.0])
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ConfigError(f"a sketch lists at least one key, not {capacity}")
        self.capacity = capacity
        self.lost = 0.0
        """By how much a listed cost may be short."""
        self.totals: F64 = np.zeros(0)
        """The load of each instance, exactly, with keys that moved counted where they are now."""
        self._keys: U64 = np.empty(0, np.uint64)
        self._cost: F64 = np.empty(0)
        self._rows: F64 = np.empty(0)
        self._state: F64 = np.empty(0)
        self._instance: I32 = np.empty(0, np.int32)

    def __len__(self) -> int:
        """How many keys are listed."""
        return len(self._keys)

    @property
    def total(self) -> float:
        """All the load that came."""
        return float(self.totals.sum())

    def add(
        self,
        keys: U64,
        cost: npt.ArrayLike,
        instance: I32 | int,
        state: npt.ArrayLike = 0.0,
        rows: npt.ArrayLike = 0.0,
    ) -> None:
        """Some rows or counts: costs and rows are added up, state and instance are the last that was said.

        Rows are counted from when a key is listed on. Each argument but the keys may be one value for all.
        """
        count = len(keys)
        columns = [
            amounts(name, np.broadcast_to(np.asarray(column, np.float64), (count,)), count)
            for name, column in (("cost", cost), ("state", state), ("rows", rows))
        ]
        places = np.broadcast_to(np.asarray(instance), (count,))
        if count and not (places.dtype.kind in "iu" and places.min() >= 0 and places.max() < MAX_INSTANCES):
            raise ConfigError(f"instance must be whole numbers from 0 to {MAX_INSTANCES - 1}")
        places = places.astype(np.int32)
        self._count(sums(places, columns[0], 0))
        self._join(keys, columns[0], columns[2], columns[1], places)

    def merge(self, other: LoadSketch) -> None:
        """What another sketch counted counts here too; where both list a key, its place is the other's."""
        self.lost += other.lost
        self._count(other.totals)
        self._join(other._keys, other._cost, other._rows, other._state, other._instance)

    def loads(self, names: Mapping[int, Name] | None = None) -> Loads:
        """The listed keys, heaviest first, and the rest of each instance.

        With names, the keys that have none are called by the number of their identity.
        """
        order = np.lexsort((self._keys, -self._cost))
        keys, instance, cost = self._keys[order], self._instance[order], self._cost[order]
        listed = sums(instance, cost, len(self.totals))
        called = None if names is None else [names.get(key, str(key)) for key in keys.tolist()]
        return Loads(
            keys,
            cost,
            self._state[order],
            instance,
            rows=self._rows[order],
            names=called,
            rest=np.maximum(self.totals - listed, 0),
        )

    def _count(self, per_instance: F64) -> None:
        wider = np.zeros(max(len(self.totals), len(per_instance)))
        wider[: len(self.totals)] = self.totals
        wider[: len(per_instance)] += per_instance
        self.totals = wider

    def _join(self, keys: U64, cost: F64, rows: F64, state: F64, instance: I32) -> None:
        every, owner = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        cost, instance = np.concatenate([self._cost, cost]), np.concatenate([self._instance, instance])
        last = np.empty(len(every), np.int64)
        last[owner] = np.arange(len(owner))  # the last of equal indices wins
        self._keys = every
        self._cost = sums(owner, cost, len(every))
        self._rows = sums(owner, np.concatenate([self._rows, rows]), len(every))
        self._state = np.concatenate([self._state, state])[last]
        self._instance = instance[last]
        count = len(self.totals)
        self.totals += sums(self._instance[owner], cost, count) - sums(instance, cost, count)
        if len(every) > 2 * self.capacity:
            self._shrink()

    def _shrink(self) -> None:
        first_without_place = len(self._cost) - self.capacity - 1
        taken = float(np.partition(self._cost, first_without_place)[first_without_place])
        kept = np.flatnonzero(self._cost > taken)
        self.lost += taken
        self._keys, self._cost = self._keys[kept], self._cost[kept] - taken
        self._rows, self._state = self._rows[kept], self._state[kept]
        self._instance = self._instance[kept]
