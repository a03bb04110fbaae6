"""Figure 7: how unlike the loads of instances are under the base hash, without and with replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance import Importance, Router, RoutingTable
from ckpt.rebalance.loads import F64
from ckpt.rebalance.simulate.generators import DriftingZipf
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

WITHOUT, WITH = "active only", "with one replica"
REPLICAS: Mapping[str, int] = {WITHOUT: 0, WITH: 1}
EXPONENT = 0.85


@dataclass(frozen=True, slots=True)
class Skewed:
    """Instances in the order of their load, one figure for each seed."""

    instances: int
    keys: int
    loads: Sequence[Rounds]
    """Per instance, lightest first: its load over the mean."""

    @property
    def heaviest(self) -> Rounds:
        """The workload skewness of the paper: the highest load over the mean."""
        return self.loads[-1]


@dataclass(frozen=True, slots=True)
class Skews:
    """All of it."""

    seeds: int
    by_instances: Mapping[str, Sequence[Skewed]]
    by_keys: Mapping[str, Sequence[Skewed]]


def measure(lab: Lab) -> Skews:
    """The same streams, hashed to more and more instances, and with more and more keys."""
    seeds = lab.pick(quick=4, small=20, full=50)
    counts = lab.pick(quick=(5, 20), small=(5, 10, 20, 40), full=(5, 10, 15, 20, 40))
    keys = lab.pick(quick=(500, 5000), small=(5000, 20_000, 100_000), full=(5000, 10_000, 100_000, 1_000_000))
    lab.say("loads under the base hash")
    return Skews(
        seeds,
        {name: [_skewed(count, keys[1], name, seeds) for count in counts] for name in REPLICAS},
        {name: [_skewed(15, count, name, seeds) for count in keys] for name in REPLICAS},
    )


def _skewed(instances: int, keys: int, name: str, seeds: int) -> Skewed:
    rounds = [_loads(instances, keys, REPLICAS[name], seed) for seed in range(seeds)]
    return Skewed(instances, keys, np.array(rounds).T.tolist())


def _loads(instances: int, keys: int, replicas: int, seed: int) -> F64:
    """Sorted, over their mean; a backup has the load of its active key, whose tuples it applies as well."""
    stream = DriftingZipf(
        keys=keys, exponent=EXPONENT, instances=instances, fluctuation=0, intervals=1, seed=seed
    )
    interval = next(iter(stream))
    places = Router(RoutingTable(instances), Importance(default=replicas)).route(interval.keys)
    load = np.bincount(places.active, weights=interval.cost, minlength=instances)
    for backups in places.backups.T:
        load = load + np.bincount(backups, weights=interval.cost, minlength=instances)
    return np.asarray(np.sort(load) / load.mean())


def skews(lab: Lab) -> Skews:
    """Figure 7's."""
    return lab.once("skews", lambda: measure(lab))


def _heaviest(over: Skewed, under: Skewed) -> Spread:
    return spread(ratios(over.heaviest, under.heaviest))


def _check(found: Skews) -> list[Claim]:
    instances, keys = found.by_instances, found.by_keys
    claims = []
    for name in REPLICAS:
        few, many = instances[name][0], instances[name][-1]
        claims.append(
            at_least(
                "skew grows with the number of tasks",
                f"{name}: load of the fullest instance over the mean, {many.instances} / {few.instances}",
                _heaviest(many, few),
                1.1,
                "with as many keys the heaviest is light on any number of instances",
            )
        )
        fewest, most = keys[name][0], keys[name][-1]
        claims.append(
            at_most(
                "and shrinks with the number of keys",
                f"{name}: load of the fullest instance over the mean, {most.keys:,} keys / {fewest.keys:,}",
                _heaviest(most, fewest),
                1.0,
                "the heaviest key of Zipf's law gets lighter slowly as keys are added, and which keys share "
                "its instance is chance",
            )
        )
    relieved = [
        [with_one / without for with_one, without in zip(one.heaviest, other.heaviest, strict=True)]
        for one, other in zip(
            [*instances[WITH], *keys[WITH]], [*instances[WITHOUT], *keys[WITHOUT]], strict=True
        )
    ]
    claims.append(
        at_most(
            "replicas relieve the fullest task, whatever the number of tasks or keys",
            "load of the fullest instance over the mean, with one replica / without, at most",
            spread([max(values) for values in zip(*relieved, strict=True)]),
            1.0,
            "a backup can fall on the fullest instance; the heaviest key is then spread over two, but both "
            "are full",
        )
    )
    claims.append(
        at_most(
            "and do so clearly in the mean",
            "the same, in the mean of all numbers of tasks and keys",
            spread([float(np.mean(values)) for values in zip(*relieved, strict=True)]),
            0.95,
            "the heaviest key is no large part of its instance's load",
        )
    )
    return claims


def _show(found: Skews) -> Shown:
    rows = []
    for name in REPLICAS:
        for one in (*found.by_instances[name], *found.by_keys[name]):
            cells = [spread(one.loads[int(part * (one.instances - 1))]).text(".3g") for part in (0, 0.5, 1)]
            rows.append([name, str(one.instances), f"{one.keys:,}", *cells])
    series = {
        f"{name}, {one.instances} instances": [
            (100 * (at + 1) / one.instances, spread(rounds).median) for at, rounds in enumerate(one.loads)
        ]
        for name in REPLICAS
        for one in (found.by_instances[name][0], found.by_instances[name][-1])
    }
    notes = [f"Load over the mean, Zipf's law with z = {EXPONENT:g}; {of_rounds(found.seeds)}."]
    header = ["", "instances", "keys", "lightest", "middle", "fullest"]
    chart = lines("Load of instances in the order of their load", "% of the instances", "of the mean", series)
    return Shown(chart, header, rows, notes)


FIG_7 = Experiment(
    "fig-7",
    "Skew of loads under the base hash",
    "Skew grows with the number of tasks and depends on that of keys; replicas relieve the fullest task.",
    "Spark's hash in place of consistent hashing. The replica of a key is on an instance of its own order, "
    "not on the next one.",
    skews,
    _check,
    _show,
)
