"""A planner on a drifting stream: one plan for each interval, each on top of what was planned before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import ckpt.rebalance as rb
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.simulate.generators import DriftingZipf
from ckpt_bench.reproduce.experiments import Lab
from ckpt_bench.reproduce.spread import Rounds, ratios


@dataclass(frozen=True, slots=True)
class Setting:
    """Table II of the paper, whose defaults these are but for the number of keys."""

    keys: int = 20_000
    """K"""
    exponent: float = 0.85
    """z"""
    fluctuation: float = 1.0
    """f"""
    theta: float = 0.08
    """θ_max"""
    window: int = 5
    """w"""
    instances: int = 15
    """N_D"""
    table_limit: int | None = 3000
    """N_A"""
    beta: float = 1.5
    """β of the planners that have one."""
    plans: int = 10
    """How many plans are measured, after as many intervals as the window has."""

    def stream(self, seed: int) -> DriftingZipf:
        """The paper's condition is meant for every instance, so all of them are in a pair, but an odd one."""
        return DriftingZipf(
            keys=self.keys,
            exponent=self.exponent,
            fluctuation=self.fluctuation,
            pairs=self.instances // 2,
            instances=self.instances,
            intervals=self.window + self.plans,
            seed=seed,
        )


_WITH_BETA = ("minmig", "mixed", "mixed-bf")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a figure: a planner, what it is told, and what it alone has in its setting."""

    planner: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


def course(setting: Setting, line: Line, seed: int) -> Iterator[rb.Plan]:
    """The plan after each interval; load then moves between the instances as the plan has them."""
    setting = replace(setting, **line.own)
    options: dict[str, Any] = {"beta": setting.beta} if line.planner in _WITH_BETA else {}
    held: deque[np.ndarray[Any, np.dtype[np.float64]]] = deque(maxlen=setting.window)
    home = np.empty(0, np.int32)
    place = [home]
    for interval in setting.stream(seed).follow(lambda _: place[0]):
        if not held:
            home = place[0] = homes(interval.keys, setting.instances)
        held.append(interval.state)
        loads = rb.Loads(interval.keys, interval.cost, sum(held, np.zeros(len(home))), place[0], home=home)
        plan = rb.plan(
            loads,
            line.planner,
            instances=setting.instances,
            theta=setting.theta,
            table_limit=setting.table_limit,
            **options,
            **line.options,
        )
        yield plan
        place[0] = plan.place


@dataclass(frozen=True, slots=True)
class Averages:
    """One figure for each seed: the mean of its plans, of times the median."""

    migrated_percent: Rounds
    """Of the state of all instances."""
    plan_ms: Rounds
    table: Rounds
    skew_before: Rounds
    """The highest load over the mean."""
    skew_after: Rounds
    over_limit_percent: Rounds
    """How many of the plans break the limit of the table."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What planners do while one parameter varies."""

    parameter: str
    values: Sequence[float]
    setting: Setting
    """All other parameters."""
    seeds: int
    lines: Mapping[str, Sequence[Averages]]
    """Name → one entry for each value."""

    def at(self, name: str, value: float) -> Averages:
        """What was measured at that value."""
        return self.lines[name][self.values.index(value)]

    def ratio(self, over: str, under: str, measure: str, value: float) -> Rounds:
        """A figure of one line over that of another one, seed by seed."""
        return ratios(getattr(self.at(over, value), measure), getattr(self.at(under, value), measure))

    def worst(self, over: str, under: str, measure: str, values: Sequence[float] | None = None) -> Rounds:
        """The largest of these ratios that each seed has at any value."""
        each = [self.ratio(over, under, measure, value) for value in values or self.values]
        return [max(column) for column in zip(*each, strict=True)]

    def growth(
        self, name: str, measure: str, last: float | None = None, first: float | None = None
    ) -> Rounds:
        """A figure at one value, by default the last, over that at another, by default the first."""
        over = self.at(name, self.values[-1] if last is None else last)
        under = self.at(name, self.values[0] if first is None else first)
        return ratios(getattr(over, measure), getattr(under, measure))


def sweep(
    lab: Lab, setting: Setting, parameter: str, values: Sequence[float], lines: Mapping[str, Line], seeds: int
) -> Sweep:
    """For each value and seed the planners in turn, so that what slows one of them down slows all down."""
    found: dict[str, list[Averages]] = {name: [] for name in lines}
    for value in values:
        rounds: dict[str, list[list[float]]] = {name: [] for name in lines}
        for seed in range(seeds):
            lab.say(f"{parameter} {value:g}, seed {seed + 1} of {seeds}")
            for name, line in lines.items():
                varied: dict[str, Any] = {parameter: value}
                of = replace(setting, **varied)
                window = line.own.get("window", of.window)
                rounds[name].append(_averages(list(course(of, line, seed))[window:]))
        for name, rows in rounds.items():
            found[name].append(Averages(*(list(column) for column in zip(*rows, strict=True))))
    return Sweep(parameter, values, setting, seeds, found)


def _averages(plans: list[rb.Plan]) -> list[float]:
    def skew(loads: Any) -> float:
        return float(loads.max() / loads.mean())

    columns = (
        [100 * plan.migrated_bytes / float(plan.loads.state.sum()) for plan in plans],
        [float(len(plan.table)) for plan in plans],
        [skew(plan.loads_before) for plan in plans],
        [skew(plan.loads_after) for plan in plans],
        [100.0 * (plan.status is rb.Status.INFEASIBLE) for plan in plans],
    )
    migrated, *others = (float(np.mean(column)) for column in columns)
    return [migrated, float(np.median([1000 * plan.plan_s for plan in plans])), *others]
