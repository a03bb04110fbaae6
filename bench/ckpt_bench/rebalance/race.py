"""LAG and Mixed in turn, interval by interval: time to plan, state that moves, tables that break their limit.

Each planner goes its own way, so that a plan that is cheap now and dear later is paid for. In each interval
Mixed is also asked about the problem that LAG has: only there it can be said whether LAG moves more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import ckpt.rebalance as rb
from ckpt_bench.rebalance.trajectory import Setting, Trajectory

PLANNERS = ("lag", "mixed")


@dataclass(frozen=True, slots=True)
class Turn:
    """One plan."""

    plan_s: float
    """The fastest of a few repetitions, which is the one that other work on the machine disturbed least."""
    moved: float
    """Share of all state."""
    bound: float
    """Share of all state that has to move, of the lower bound; 0 if no plan can keep the limits."""
    table: int
    status: rb.Status

    @property
    def keeps_the_table(self) -> bool:
        """True if the plan may be carried out."""
        return self.status is not rb.Status.INFEASIBLE


@dataclass
class Round:
    """What one interval of one setting brought."""

    setting: Setting
    turns: dict[str, Turn] = field(default_factory=dict)
    """By planner, each on its own way."""
    asked: Turn | None = None
    """Mixed on LAG's way."""
    sort_s: float = 0.0
    """One argsort of the costs."""


def race(setting: Setting, intervals: int, repeats: int, seed: int, done: Callable[[Round], object]) -> None:
    """So many intervals after the first, whose loads are those of the hash alone; `done` is told of each."""
    order = random.Random(seed)
    ways = {name: Trajectory(setting, seed) for name in PLANNERS}
    for number in range(intervals + 1):
        loads = {name: way.advance() for name, way in ways.items()}
        if number == 0:
            for name, way in ways.items():
                way.apply(way.plan(loads[name], name))
            continue
        found = Round(setting)
        questions = [*((name, name) for name in PLANNERS), ("mixed", "lag"), ("", "lag")]
        order.shuffle(questions)
        plans = {}
        for name, whose in questions:
            if not name:
                found.sort_s = _sorted_s(loads[whose].cost, repeats)
                continue
            plan, plan_s = _planned(ways[whose], loads[whose], name, repeats)
            turn = _turn(plan, plan_s)
            if name == whose:
                found.turns[name], plans[name] = turn, plan
            else:
                found.asked = turn
        for name, way in ways.items():
            way.apply(plans[name])
        done(found)


def _planned(way: Trajectory, loads: rb.Loads, planner: str, repeats: int) -> tuple[rb.Plan, float]:
    plans = [way.plan(loads, planner) for _ in range(repeats)]
    return plans[0], min(plan.plan_s for plan in plans)


def _turn(plan: rb.Plan, plan_s: float) -> Turn:
    state = float(plan.loads.state.sum())
    bound = plan.lower_bound / state
    return Turn(
        plan_s, plan.migrated_bytes / state, bound if bound < 1 else 0.0, len(plan.table), plan.status
    )


def _sorted_s(values: np.ndarray, repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        np.argsort(values)
        taken.append(time.perf_counter() - started_s)
    return min(taken)
