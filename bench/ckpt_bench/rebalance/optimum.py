"""Small problems against the exact optimum by HiGHS, with a table of any size and with one that is tight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ckpt.rebalance as rb
from ckpt_bench.rebalance.trajectory import Setting, Trajectory

PLANNERS = ("lag", "portfolio", "mixed")
LEAST_KEYS, MOST_KEYS = 30, 60
_INSTANCES = 5
_SETTLED = 3
"""Intervals before the one that is judged, so that keys are away from home."""
_SPREAD = 5.0
"""If state were in proportion to load, most problems would have the same obvious answer."""


@dataclass
class Answers:
    """What the planners made of one problem that has a solution within its limits."""

    tight: bool
    keys: int
    ratios: dict[str, float | None] = field(default_factory=dict)
    """By planner, the state that moves over that of the optimum; None: some limit was not kept."""


def problems(count: int, seed: int, done: Callable[[Answers], object]) -> None:
    """So many problems of 30 to 60 keys, each with both tables; those without an optimum are passed over."""
    for number in range(count):
        keys = LEAST_KEYS + number * (MOST_KEYS - LEAST_KEYS) // max(count - 1, 1)
        setting = Setting(keys, pairs=1, instances=_INSTANCES, table_limit=None, spread=_SPREAD)
        way = Trajectory(setting, seed + number)
        for _ in range(_SETTLED):
            way.apply(way.plan(way.advance(), "lag"))
        loads = way.advance()
        entries = int((loads.instance != loads.home_of(_INSTANCES)).sum())
        for tight in (False, True):
            found = _judged(loads, setting.theta, entries if tight else None, tight)
            if found is not None:
                done(found)


def _judged(loads: rb.Loads, theta: float, limit: int | None, tight: bool) -> Answers | None:
    def planned(planner: str) -> rb.Plan:
        return rb.plan(loads, planner, instances=_INSTANCES, theta=theta, table_limit=limit)

    best = planned("exact")
    if best.status is not rb.Status.OK or not best.migrated_bytes:
        return None
    answers = Answers(tight, len(loads))
    for name in PLANNERS:
        plan = planned(name)
        kept = plan.status is rb.Status.OK
        answers.ratios[name] = plan.migrated_bytes / best.migrated_bytes if kept else None
    return answers
