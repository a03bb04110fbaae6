"""Figure 11: Mixed over compact representations, by the degree of discretisation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import ckpt.rebalance as rb
from ckpt.rebalance.compact import Compacted, Vectors
from ckpt.rebalance.planners.minmig import BETA
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mixed.compact_mixed import mixed_over
from ckpt_bench.reproduce.mixed.courses import Line, Setting, course
from ckpt_bench.reproduce.mixed.showing import described
from ckpt_bench.reproduce.spread import Rounds, ratios, spread

ORIGINAL = 0
"""In place of a degree: each key is a vector of its own."""
_EIGHT = 8


@dataclass(frozen=True, slots=True)
class Degree:
    """Plans at one degree of discretisation, one figure for each seed."""

    vectors: Rounds
    compact_ms: Rounds
    """From keys to vectors, which the paper's instances do before they report."""
    plan_ms: Rounds
    """From vectors to vectors."""
    find_ms: Rounds
    """From vectors to the keys that move; none, if each vector is a key."""
    error_percent: Rounds
    """By how much the load that the vectors say differs from that of the keys: the mean of all instances."""

    @property
    def total_ms(self) -> Rounds:
        """From vectors to keys."""
        return [plan + find for plan, find in zip(self.plan_ms, self.find_ms, strict=True)]


@dataclass(frozen=True, slots=True)
class Compactness:
    """From the finest degree to the coarsest."""

    setting: Setting
    seeds: int
    degrees: Mapping[int, Degree]
    numpy_ms: Rounds
    """What the planner `mixed` takes for the same plan."""


def measure(lab: Lab) -> Compactness:
    """One plan for each degree and seed, after a window of plans by Mixed."""
    setting = lab.pick(
        quick=Setting(keys=500, table_limit=100, plans=1),
        small=Setting(keys=100_000, plans=1),
        full=Setting(keys=1_000_000, plans=1),
    )
    degrees = (ORIGINAL, *lab.pick(quick=(1, 8), small=(1, 8, 64, 256), full=tuple(2**r for r in range(9))))
    seeds = lab.pick(quick=2, small=10, full=10)
    found: dict[int, list[Sequence[float]]] = {degree: [] for degree in degrees}
    numpy_ms = []
    for seed in range(seeds):
        lab.say(f"seed {seed + 1} of {seeds}")
        *_, last = course(setting, Line("mixed"), seed)
        numpy_ms.append(1000 * last.plan_s)
        for degree, rows in found.items():
            rows.append(_planned(last, degree))
    by_degree = {
        degree: Degree(*(list(column) for column in zip(*rows, strict=True)))
        for degree, rows in found.items()
    }
    return Compactness(setting, seeds, by_degree, numpy_ms)


def _planned(like: rb.Plan, degree: int) -> Sequence[float]:
    """The same plan over vectors of that degree."""
    loads, limit = like.loads, like.table_limit
    assert loads.home is not None
    started_s = time.perf_counter()
    if degree == ORIGINAL:
        ones = np.ones(len(loads), np.int64)
        vectors = Vectors(loads.instance, loads.instance, loads.home, loads.cost, loads.state, ones)
        compacted = Compacted(vectors, loads.instance, loads.home, loads.cost, loads.state)
    else:
        compacted = Compacted.of(loads.instance, loads.home, loads.cost, loads.state, degree)
    compact_s = time.perf_counter() - started_s
    psi = loads.cost**BETA / loads.state
    started_s = time.perf_counter()
    planned = mixed_over(compacted.vectors, like.limits, len(loads) if limit is None else limit)
    plan_s = time.perf_counter() - started_s
    started_s = time.perf_counter()
    targets = compacted.targets(planned, psi)
    find_s = 0.0 if degree == ORIGINAL else time.perf_counter() - started_s
    real = np.bincount(targets, loads.cost, minlength=len(like.limits))
    error = np.abs(planned.loads(len(real)) - real) / real
    times_ms = (1000 * compact_s, 1000 * plan_s, 1000 * find_s)
    return len(compacted.vectors), *times_ms, 100 * float(error.mean())


def _check(found: Compactness) -> list[Claim]:
    finest, *_, coarsest = (degree for degree in found.degrees if degree != ORIGINAL)
    errors = zip(*(each.error_percent for each in found.degrees.values()), strict=True)
    return [
        at_least(
            "with R = 8 a plan takes a tenth of the time that it takes with the original keys",
            "time of a plan and of finding its keys, original keys / R = 8",
            spread(ratios(found.degrees[ORIGINAL].total_ms, found.degrees[_EIGHT].total_ms)),
            10.0,
            "finding the keys that the planned vectors stand for takes time that grows with the keys",
        ),
        at_least(
            "a tenth without finding the keys",
            "time of a plan, original keys / R = 8",
            spread(ratios(found.degrees[ORIGINAL].plan_ms, found.degrees[_EIGHT].plan_ms)),
            10.0,
            "few of the keys have to be looked at for a plan, and only these cost time",
        ),
        at_least(
            "planning is the faster, the coarser the values are",
            f"time of a plan, R = {finest} / R = {coarsest}",
            spread(ratios(found.degrees[finest].plan_ms, found.degrees[coarsest].plan_ms)),
            1.0,
            "there are about as many vectors with any R, as most keys are light and alike with each",
        ),
        at_least(
            "the error of the loads grows with R",
            f"error, R = {coarsest} / R = {finest}",
            spread(ratios(found.degrees[coarsest].error_percent, found.degrees[finest].error_percent)),
            1.0,
            "errors of an instance's keys cancel each other out",
        ),
        at_most(
            "but is never more than 1 %",
            f"error in %, largest of all R up to {coarsest}",
            spread([max(each) for each in errors]),
            1.0,
            "with coarse values the keys that move decide how well the rest cancels out, and an instance has "
            "fewer keys here than with a million",
        ),
    ]


def _show(found: Compactness) -> Shown:
    points = {
        "plan": [(float(r), spread(each.plan_ms).median) for r, each in found.degrees.items() if r],
        "compaction": [(float(r), spread(each.compact_ms).median) for r, each in found.degrees.items() if r],
    }
    chart = lines("Time of a plan by R", "R", "ms", points)
    rows = [
        [
            f"R = {degree}" if degree else "original keys",
            spread(each.vectors).text(",.0f"),
            spread(each.compact_ms).text(),
            spread(each.plan_ms).text(),
            spread(each.find_ms).text(),
            spread(each.error_percent).text(),
        ]
        for degree, each in found.degrees.items()
    ]
    notes = [
        described(found.setting, found.seeds, without=""),
        f"The planner `mixed`, which has arrays of keys instead, takes {spread(found.numpy_ms)} ms.",
    ]
    return Shown(
        chart, ["", "vectors", "compaction, ms", "plan, ms", "finding keys, ms", "error, %"], rows, notes
    )


FIG_11 = Experiment(
    "fig-11",
    "Compact representations of keys",
    "Planning over vectors of alike keys takes 0.6 s at R = 8 instead of 6 s, and the loads that the vectors "
    "say are off by 1 % at most, up to R = 256.",
    "Vectors and HLHE are those of `ckpt.rebalance.compact`, in which values are discretised for each "
    "instance by itself. Compaction, which the paper leaves to the instances, stands beside the plan.",
    lambda lab: lab.once("mixed fig-11", lambda: measure(lab)),
    _check,
    _show,
)
