"""Figure 7: how uneven the loads of instances are if the hash alone places the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance.hashing import homes
from ckpt.rebalance.simulate.generators import DriftingZipf
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, of_rounds, ratios, spread

_INTERVALS = 50


@dataclass(frozen=True, slots=True)
class Hashed:
    """The loads of instances, each over the mean, ascending: one list for each seed."""

    by_instances: Mapping[int, Sequence[Sequence[float]]]
    keys: int
    """With how many keys the number of instances varies."""
    by_keys: Mapping[int, Sequence[Sequence[float]]]
    instances: int
    """With how many instances the number of keys varies."""
    drifting: Mapping[int, Sequence[Sequence[float]]]
    """By the number of instances: means over intervals in which the hot keys change."""
    drifting_keys: int


def measure(lab: Lab) -> Hashed:
    """Loads by hash alone, with keys that stand still, and with keys that drift."""
    seeds = lab.pick(quick=2, small=10, full=10)
    counts = lab.pick(quick=(5, 10), small=(5, 10, 20, 40), full=(5, 10, 20, 40))
    keys = lab.pick(quick=1000, small=1_000_000, full=1_000_000)
    sizes = lab.pick(
        quick=(500, 1000), small=(5000, 10_000, 100_000, 1_000_000), full=(5000, 10**4, 10**5, 10**6)
    )
    drifting_keys = lab.pick(quick=500, small=20_000, full=1_000_000)
    usual = 15

    def still(keys: int, instances: int, seed: int) -> list[float]:
        lab.say(f"{keys:,} keys, {instances} instances, seed {seed + 1} of {seeds}")
        return _loads(DriftingZipf(keys=keys, instances=instances, fluctuation=0, intervals=1, seed=seed))

    def drifting(instances: int, seed: int) -> list[float]:
        lab.say(f"{_INTERVALS} intervals, {instances} instances, seed {seed + 1} of {seeds}")
        return _loads(
            DriftingZipf(
                keys=drifting_keys, instances=instances, pairs=instances // 2, intervals=_INTERVALS, seed=seed
            )
        )

    return Hashed(
        {n: [still(keys, n, seed) for seed in range(seeds)] for n in counts},
        keys,
        {size: [still(size, usual, seed) for seed in range(seeds)] for size in sizes},
        usual,
        {n: [drifting(n, seed) for seed in range(seeds)] for n in counts},
        drifting_keys,
    )


def _loads(stream: DriftingZipf) -> list[float]:
    load = np.zeros(stream.instances)
    for interval in stream:
        load += np.bincount(homes(interval.keys, stream.instances), interval.cost, minlength=stream.instances)
    return [float(each) for each in np.sort(load / load.mean())]


def _unevenness(seeds: Sequence[Sequence[float]]) -> Rounds:
    """The highest load over the lowest."""
    return [loads[-1] / loads[0] for loads in seeds]


def _check(found: Hashed) -> list[Claim]:
    fewest, most = min(found.by_instances), max(found.by_instances)
    few, many = min(found.by_keys), max(found.by_keys)
    by_instances = {n: _unevenness(seeds) for n, seeds in found.by_instances.items()}
    by_keys = {k: _unevenness(seeds) for k, seeds in found.by_keys.items()}
    drifting = {n: _unevenness(seeds) for n, seeds in found.drifting.items()}
    return [
        at_least(
            "loads are the more uneven the more instances there are",
            f"highest / lowest load, N_D = {most} / N_D = {fewest}",
            spread(ratios(by_instances[most], by_instances[fewest])),
            1.0,
            "the heaviest keys met on one instance already with few instances",
        ),
        between(
            "with 40 instances the highest load is almost 2.5 times the lowest",
            f"highest / lowest load, K = {found.keys:,}, N_D = {most}",
            spread(by_instances[most]),
            1.9,
            3.1,
            "another hash places the heaviest keys otherwise",
        ),
        at_least(
            "loads are the more uneven the fewer keys there are",
            f"highest / lowest load, K = {few:,} / K = {many:,}",
            spread(ratios(by_keys[few], by_keys[many])),
            1.0,
            "the heaviest keys met on one instance",
        ),
        between(
            "with 5,000 keys the highest load is around 4 times the lowest",
            f"highest / lowest load, K = {few:,}, N_D = {found.instances}",
            spread(by_keys[few]),
            3.0,
            5.0,
            "another hash places the heaviest keys otherwise; that of Spark is as uneven as chance is",
        ),
        at_least(
            "the same for the mean of 50 intervals in which the hot keys change (f = 1)",
            f"highest / lowest load, K = {found.drifting_keys:,}, N_D = {most} / N_D = {fewest}",
            spread(ratios(drifting[most], drifting[fewest])),
            1.0,
            "over many intervals the changes even out",
        ),
    ]


def _show(found: Hashed) -> Shown:
    cases = {
        **{f"N_D={n}": seeds for n, seeds in found.by_instances.items()},
        **{f"K={keys:,}": seeds for keys, seeds in found.by_keys.items()},
        **{f"N_D={n}, drifting": seeds for n, seeds in found.drifting.items()},
    }
    points = {}
    for name, seeds in cases.items():
        if name.startswith("N_D") and "drifting" not in name:
            of = np.median(np.array(seeds), axis=0)
            points[name] = [(100 * (at + 1) / len(of), float(load)) for at, load in enumerate(of)]
    chart = lines("Loads by hash alone", "% of the instances", "load / mean", points, x_log=False)
    rows = [
        [
            name,
            spread([loads[0] for loads in seeds]).text(),
            spread([loads[-1] for loads in seeds]).text(),
            spread(_unevenness(seeds)).text(),
        ]
        for name, seeds in cases.items()
    ]
    count = len(next(iter(cases.values())))
    notes = [
        f"Where nothing else is said, K = {found.keys:,} and N_D = {found.instances}; drifting: "
        f"K = {found.drifting_keys:,}. {of_rounds(count).capitalize()} with a seed each."
    ]
    return Shown(chart, ["", "lowest / mean", "highest / mean", "highest / lowest"], rows, notes)


FIG_7 = Experiment(
    "fig-7",
    "Loads by hash alone",
    "Loads are uneven if the hash places the keys: the more so, the more instances and the fewer keys there "
    "are; with 40 instances up to 2.5 to 1, with 5,000 keys around 4 to 1.",
    "Zipf's law that stands still, which gives the paper's figures; and the mean of 50 intervals that drift "
    "with f = 1 as the paper describes it.",
    lambda lab: lab.once("mixed fig-7", lambda: measure(lab)),
    _check,
    _show,
)
