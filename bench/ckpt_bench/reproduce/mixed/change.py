"""Figure 12: Mixed, Mixed-BF and Readj, by how much the distribution changes from interval to interval."""

from __future__ import annotations

from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mixed.courses import Line, Setting, Sweep, sweep
from ckpt_bench.reproduce.mixed.showing import MIGRATED, PLAN_MS, show
from ckpt_bench.reproduce.spread import Rounds, ratios, spread

MIXED, BRUTE, READJ, LAG = "Mixed", "Mixed-BF", "Readj", "LAG"


def measure(lab: Lab) -> Sweep:
    """Few keys, as Readj looks at every pair of them."""
    setting = lab.pick(
        quick=Setting(keys=200, plans=2, window=2),
        small=Setting(keys=10_000, plans=5),
        full=Setting(keys=10_000),
    )
    rounds = lab.pick(quick=4, small=16, full=None)
    lines = {
        MIXED: Line("mixed"),
        BRUTE: Line("mixed-bf", {"rounds": rounds}),
        READJ: Line("readj"),
        LAG: Line("lag"),
    }
    values = lab.pick(quick=(0.5, 2.0), small=(0.25, 1.0, 2.0), full=(0.25, 0.5, 1.0, 1.5, 2.0))
    return sweep(lab, setting, "fluctuation", values, lines, lab.pick(quick=2, small=10, full=10))


def _check(found: Sweep) -> list[Claim]:
    least, most = found.values[0], found.values[-1]
    return [
        at_least(
            "Readj takes longer to plan, the more changes",
            f"time of a plan of Readj, f = {most:g} / f = {least:g}",
            spread(found.growth(READJ, PLAN_MS)),
            1.0,
            "how many σ it tries before one is fine enough depends on chance",
        ),
        at_most(
            "Mixed plans faster than Readj by a large margin",
            "time of a plan, Mixed / Readj, largest of all f",
            spread(found.worst(MIXED, READJ, PLAN_MS)),
            0.1,
            "with so few keys Readj has few pairs to look at",
        ),
        at_most(
            "and than Mixed-BF",
            "time of a plan, Mixed / Mixed-BF, largest of all f",
            spread(found.worst(MIXED, BRUTE, PLAN_MS)),
            0.2,
            "only a few of the possible n are tried here",
        ),
        at_most(
            "its migrated state grows slower with the changes than that of Readj",
            f"what the migrated state grows by from f = {least:g} to f = {most:g}, Mixed / Readj",
            spread(ratios(_growth(found, MIXED), _growth(found, READJ))),
            1.0,
            "Readj migrates much already where little changes, as it moves light keys home in every plan; so "
            "its migrated state cannot grow as fast",
        ),
        at_most(
            "so that Mixed migrates less",
            "migrated state, Mixed / Readj, largest of all f",
            spread(found.worst(MIXED, READJ, MIGRATED)),
            1.0,
            "with few keys and a short window, state is nearly in proportion to load, so that moving few "
            "keys moves little state",
        ),
        between(
            "Mixed-BF migrates about as much as Mixed",
            f"migrated state, Mixed-BF / Mixed, at f = {most:g}",
            spread(found.ratio(BRUTE, MIXED, MIGRATED, most)),
            0.8,
            1.1,
            "of several n within all limits Mixed-BF takes the one with the least state, and Mixed the first",
        ),
    ]


def _growth(found: Sweep, name: str) -> Rounds:
    """By how many percent of all state the migrated state grows, from the first f to the last."""
    first, last = (found.at(name, found.values[at]).migrated_percent for at in (0, -1))
    return [after - before for before, after in zip(first, last, strict=True)]


def _show(found: Sweep) -> Shown:
    return show(found, MIGRATED)


FIG_12 = Experiment(
    "fig-12",
    "Plans by how much the distribution changes",
    "Readj takes the longer to plan the more changes, and far longer than Mixed; brute force is a poor "
    "option; the migrated state of Mixed grows slower than that of Readj and is about that of brute force.",
    "Readj tries σ from coarse to fine until one keeps the limits. Mixed-BF tries at most 16 values of n "
    "(with --full all of them). LAG is ours and stands beside them.",
    measure,
    _check,
    _show,
)
