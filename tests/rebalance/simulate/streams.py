"""Small random streams for the tests of the simulator."""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.hashing import mixed
from ckpt.rebalance.simulate import Interval


def skewed(
    seed: int, intervals: int, *, keys: int = 40, tuples: float = 1000.0, work_s: float = 0.01
) -> list[Interval]:
    """Zipf loads whose heavy keys change from interval to interval; every tuple causes the same work."""
    draw = np.random.default_rng(seed)
    identities = np.sort(mixed(np.arange(1, keys + 1, dtype=np.uint64)))
    weights = 1 / np.arange(1, keys + 1)
    stream = []
    for _ in range(intervals):
        present = draw.random(keys) < 0.9
        present[0] = True
        count = draw.permutation(weights)[present]
        count *= tuples / count.sum()
        stream.append(Interval(identities[present], count, count * work_s, np.ceil(count * 50)))
    return stream


def constant(work_s: list[float], *, tuples: float = 100.0) -> Interval:
    """One key on each instance by hash, with so much work in all."""
    count = np.full(len(work_s), tuples)
    return Interval(np.arange(len(work_s), dtype=np.uint64), count, np.array(work_s), count)
