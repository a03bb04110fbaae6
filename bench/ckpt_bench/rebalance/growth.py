"""Time and memory of a plan as keys grow; each number of keys has a process of its own."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log

import numpy as np

from ckpt_bench.interrupts import Interrupts, kept_from_children
from ckpt_bench.rebalance.trajectory import Setting, Trajectory

PLANNERS = ("lag", "mixed")
PAIRS = (1, 7)


@dataclass(frozen=True, slots=True)
class Grown:
    """One planner at one number of keys."""

    planner: str
    keys: int
    pairs: int
    plan_s: Sequence[float]
    """Of each interval, the fastest of a few repetitions."""
    sort_s: Sequence[float]
    bytes_per_key: float
    """The most memory that a plan had beyond the loads it was given."""

    @property
    def series(self) -> str:
        """Such as `lag p7`."""
        return f"{self.planner} p{self.pairs}"


def grow(
    sizes: Sequence[int], intervals: int, repeats: int, seed: int, done: Callable[[Grown], object]
) -> None:
    """Each number of keys, p1 and p7, for each planner on its own way; the fewest keys first."""
    for keys in sizes:
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        with Interrupts() as interrupts:
            with kept_from_children():
                process = os.pidfd_open(pool.submit(os.getpid).result())
            try:
                with interrupts.heard():
                    for pairs, planner in itertools.product(PAIRS, PLANNERS):
                        done(pool.submit(measured, planner, keys, pairs, intervals, repeats, seed).result())
            except BaseException:
                signal.pidfd_send_signal(process, signal.SIGKILL)
                raise
            finally:
                pool.shutdown()
                os.close(process)


def measured(planner: str, keys: int, pairs: int, intervals: int, repeats: int, seed: int) -> Grown:
    """What plans for so many keys take, in this process."""
    way = Trajectory(Setting(keys, pairs), seed)
    way.apply(way.plan(way.advance(), planner))
    plan_s, sort_s, most = [], [], 0.0
    for _ in range(intervals):
        loads = way.advance()
        plans = [way.plan(loads, planner) for _ in range(repeats)]
        plan_s.append(min(plan.plan_s for plan in plans))
        started_s = time.perf_counter()
        np.argsort(loads.cost)
        sort_s.append(time.perf_counter() - started_s)
        del plans
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            plan = way.plan(loads, planner)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        most = max(most, (peak - before) / keys)
        way.apply(plan)
    return Grown(planner, keys, pairs, plan_s, sort_s, most)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line that fits these points best when both axes are logarithmic: 1 is linear growth.

    Examples
    --------
    >>> round(exponent([(10, 3), (100, 30), (1000, 300)]), 6)
    1.0
    """
    x, y = ([log(point[axis]) for point in points] for axis in (0, 1))
    return float(np.polyfit(x, y, 1)[0])
