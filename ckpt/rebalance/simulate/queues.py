"""Tuples that wait at one instance, first in, first out, as blocks of one mix of keys."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckpt.rebalance.simulate.flow import Flow, Hold

Arrivals = tuple[float, float, float]
"""So many tuples came evenly between two times."""


@dataclass(slots=True, eq=False)
class Block:
    """Tuples of one mix of keys; each of them is taken to cause the same work."""

    flow: Flow
    """Where they came from: the keys and their shares."""
    hold: Hold | None
    """Set if they had to wait for their keys to resume."""
    tuples: float = 0.0
    work: float = 0.0
    rate: float = 0.0
    """How many are completed in a second. Of a block that is almost done, tuples and work do not tell."""


@dataclass(slots=True)
class Queue:
    """Blocks for what has to be done, and apart from them when the tuples came, both in order."""

    blocks: deque[Block] = field(default_factory=deque)
    arrivals: deque[Arrivals] = field(default_factory=deque)

    @property
    def tuples(self) -> float:
        """How many wait."""
        return sum((block.tuples for block in self.blocks), 0.0)

    @property
    def work(self) -> float:
        """How many seconds one instance needs for them."""
        return sum((block.work for block in self.blocks), 0.0)

    @property
    def rate(self) -> float:
        """How many tuples of the first block are completed in a second."""
        return self.blocks[0].rate if self.blocks else 0.0

    def open_block(self, flow: Flow, instance: int) -> None:
        """The last block is one to which tuples of this flow can be added."""
        if not self.blocks or self.blocks[-1].flow is not flow or self.blocks[-1].hold is not None:
            work = flow.work[instance]
            self.blocks.append(Block(flow, None, rate=flow.tuples[instance] / work if work > 0 else 0.0))

    def add(self, tuples: float, work: float, start_s: float, end_s: float) -> None:
        """More of the last block's mix, which came evenly between two times."""
        self.blocks[-1].tuples += tuples
        self.blocks[-1].work += work
        came(self.arrivals, (tuples, start_s, end_s))

    def deliver(self, block: Block, arrivals: Sequence[Arrivals]) -> None:
        """Tuples that waited elsewhere before; of those that came then, the block has its share."""
        block.rate = block.tuples / block.work if block.work > 0 else 0.0
        self.blocks.append(block)
        self.arrivals.extend(share_of(arrivals, block.tuples))

    def leave(self, tuples: float, start_s: float, end_s: float) -> Iterator[Arrivals]:
        """The first tuples leave evenly between two times: how many took how long, from and to."""
        left, at_s = tuples, start_s
        for count, first_s, last_s in self._taken(tuples):
            left -= count
            done_s = end_s - (end_s - start_s) * max(0.0, left / tuples)
            yield count, at_s - first_s, done_s - last_s
            at_s = done_s

    def emptied(self) -> Iterator[tuple[Block, list[Arrivals]]]:
        """Each block, with when its tuples came; nothing is left."""
        while self.blocks:
            block = self.blocks.popleft()
            yield block, list(self._taken(block.tuples))
        self.arrivals.clear()

    def _taken(self, tuples: float) -> Iterator[Arrivals]:
        left = tuples
        while left > 0 and self.arrivals:
            count, first_s, last_s = self.arrivals[0]
            taken = min(count, left)
            cut_s = first_s + (last_s - first_s) * (taken / count)
            left -= taken
            yield taken, first_s, cut_s
            if taken < count:
                self.arrivals[0] = (count - taken, cut_s, last_s)
            else:
                self.arrivals.popleft()


def came(arrivals: MutableSequence[Arrivals], more: Arrivals) -> None:
    """More tuples came; where they go on as the last ones, they are added to them."""
    tuples, start_s, end_s = more
    if not tuples > 0:
        return
    if arrivals:
        before, from_s, until_s = arrivals[-1]
        if until_s == start_s and math.isclose(
            before * (end_s - start_s), tuples * (until_s - from_s), rel_tol=1e-12
        ):
            arrivals[-1] = (before + tuples, from_s, end_s)
            return
    arrivals.append(more)


def share_of(arrivals: Sequence[Arrivals], tuples: float) -> list[Arrivals]:
    """The times of so many tuples out of these, evenly."""
    total = sum(count for count, _, _ in arrivals)
    if not total > 0:
        return []
    return [(count * tuples / total, first_s, last_s) for count, first_s, last_s in arrivals]
