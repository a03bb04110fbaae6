"""What the source sends where during one interval and under one routing; and what is held for later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt.rebalance.loads import F64, U64, sums
from ckpt.rebalance.simulate.interval import Interval
from ckpt.rebalance.simulate.queues import Arrivals, Block, came, share_of
from ckpt.rebalance.simulate.routes import Parts
from ckpt.rebalance.table import I64, find


@dataclass(eq=False)
class Hold:
    """Keys whose tuples wait until a time, and those that do, by where they came from and where they go."""

    keys: U64
    """Ascending."""
    until_s: float
    waiting: dict[tuple[Parts, int], tuple[Block, list[Arrivals]]] = field(default_factory=dict)

    @property
    def tuples(self) -> float:
        """How many tuples wait."""
        return sum(block.tuples for block, _ in self.waiting.values())

    def emptied(self, instance: int) -> Iterator[tuple[Block, list[Arrivals]]]:
        """What waits to go to an instance; nothing of that is left."""
        for parts, d in list(self.waiting):
            if d == instance:
                yield self.waiting.pop((parts, d))

    def deliver(self, block: Block, instance: int, arrivals: Sequence[Arrivals]) -> None:
        """More tuples for one instance; of those that came then, the block has its share."""
        cell = self.waiting.setdefault((block.flow.parts, instance), (Block(block.flow, self), []))
        cell[0].tuples += block.tuples
        cell[0].work += block.work
        for more in share_of(arrivals, block.tuples):
            came(cell[1], more)


class Flow:
    """The mix of keys that comes, divided by instance and by whether it waits; per whole interval."""

    def __init__(self, interval: Interval, parts: Parts, holds: Sequence[Hold], instances: int) -> None:
        self._interval = interval
        self.parts = parts
        self._holds = holds
        self._hold_of = _hold_of(interval.keys, holds)
        cell = (self._hold_of[parts.key] + 1) * instances + parts.instance
        cells = (len(holds) + 1) * instances
        tuples = sums(cell, parts.tuples, cells).reshape(-1, instances).tolist()
        work = sums(cell, parts.work, cells).reshape(-1, instances).tolist()
        self.tuples: list[float] = tuples[0]
        """What goes to each instance at once; a list, since the engine reads single numbers."""
        self.work: list[float] = work[0]
        self.held: list[tuple[Hold, int, float, float]] = [
            (hold, d, tuples[number][d], work[number][d])
            for number, hold in enumerate(holds, start=1)
            for d in range(instances)
            if tuples[number][d] > 0 or work[number][d] > 0
        ]
        """What waits: where, the instance that it goes to, tuples and work."""
        self.held_tuples = sum(tuples for _, _, tuples, _ in self.held)
        self.all_tuples = sum(self.tuples) + self.held_tuples

    def sent_to(self, instance: int, hold: Hold | None) -> Interval:
        """What is sent to an instance at once, or waits in a hold to be sent there."""
        number = -1 if hold is None else self._holds.index(hold)
        parts = self.parts
        chosen = np.flatnonzero((parts.instance == instance) & (self._hold_of[parts.key] == number))
        chosen = chosen[np.argsort(parts.key[chosen], kind="stable")]
        keys = self._interval.keys[parts.key[chosen]]
        return Interval(keys, parts.tuples[chosen], parts.work[chosen], np.zeros(len(chosen)))

    def again(self, block: Block, instance: int) -> Interval:
        """The tuples of a block of this flow that waited at an instance, key by key."""
        whole = self.sent_to(instance, block.hold)
        tuples, work = whole.tuples.sum(), whole.cost.sum()
        return Interval(
            whole.keys,
            whole.tuples * (block.tuples / tuples if tuples > 0 else 0.0),
            whole.cost * (block.work / work if work > 0 else 0.0),
            whole.state,
        )


def _hold_of(keys: U64, holds: Sequence[Hold]) -> I64:
    """In which hold each key is, -1 for none."""
    if not holds:
        return np.full(len(keys), -1, np.int64)
    held = np.concatenate([hold.keys for hold in holds])
    number = np.repeat(np.arange(len(holds)), [len(hold.keys) for hold in holds])
    order = np.argsort(held, kind="stable")
    at = find(held[order], keys)
    return np.append(number[order], -1)[at]


def holds(keys: U64, until_s: F64) -> list[Hold]:
    """Keys that resume at one time wait together; a key that is there twice waits until its last time."""
    order = np.lexsort((until_s, keys))
    last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(keys)]
    kept, times_s = keys[order][last], until_s[order][last]
    return [Hold(kept[times_s == time_s], time_s) for time_s in np.unique(times_s).tolist()]
