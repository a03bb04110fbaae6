"""Figures 8 and 9: plan time and migrated state, by tolerance and by the number of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance import Importance, Router, RoutingTable, Window, plan
from ckpt.rebalance.simulate.generators import DriftingZipf
from ckpt_bench.plot import Chart, lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

MRT, MIXED, FTLB = "MRT", "Mixed", "FTLB"
PLANNERS: Mapping[str, str] = {MRT: "mintable", MIXED: "mixed", FTLB: "ftlb"}
INSTANCES, PAIRS, WINDOW, EXPONENT = 15, 7, 5, 0.85
THETA = 0.08
TABLE_PART = 0.03
"""Entries that the table may have, of all keys: 3,000 of 100,000. FTLB's Algorithm 3 knows no such limit."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One planner in one setting, one figure for each seed: means of its intervals."""

    plan_ms: Rounds
    migrated_percent: Rounds
    table: Rounds
    """Entries at the end."""


@dataclass(frozen=True, slots=True)
class Plans:
    """One figure: planners by a number."""

    seeds: int
    numbers: Sequence[float]
    keys: int
    """Where they do not vary."""
    found: Mapping[str, Sequence[Planned]]

    def ratio(self, value: str, over: str, under: str, at: int) -> Spread:
        """A figure of one planner over that of another, seed by seed."""
        return spread(ratios(getattr(self.found[over][at], value), getattr(self.found[under][at], value)))


def _measure(
    lab: Lab, numbers: Sequence[float], keys: int, setting: Callable[[float], tuple[int, float]]
) -> Plans:
    seeds = lab.pick(quick=2, small=10, full=10)
    intervals = lab.pick(quick=3, small=7, full=20)
    found: dict[str, list[Planned]] = {name: [] for name in PLANNERS}
    for number in numbers:
        count, theta = setting(number)
        each: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PLANNERS}
        for seed in range(seeds):
            lab.say(f"{count:,} keys, θ = {theta:g}, seed {seed + 1} of {seeds}")
            for name in PLANNERS:
                each[name].append(_run(name, count, theta, intervals, seed))
        for name in PLANNERS:
            found[name].append(Planned(*(list(column) for column in zip(*each[name], strict=True))))
    return Plans(seeds, numbers, keys, found)


def _run(name: str, keys: int, theta: float, intervals: int, seed: int) -> tuple[float, float, float]:
    """On its own trajectory: load drifts between the instances on which the planner has put the keys."""
    tables, window = [RoutingTable(INSTANCES)], Window(WINDOW, cost="last")
    importance = Importance(default=1)
    stream = DriftingZipf(
        keys=keys, exponent=EXPONENT, instances=INSTANCES, pairs=PAIRS, intervals=intervals, seed=seed
    )
    plan_ms, migrated = [], []
    for interval in stream.follow(lambda keys: tables[-1].place(keys)):
        places = Router(tables[-1], importance).route(interval.keys)
        window.add(interval.loads(places.active))
        loads = window.loads()
        made = plan(
            loads,
            PLANNERS[name],
            instances=INSTANCES,
            theta=theta,
            table=tables[-1],
            table_limit=None if name == FTLB else round(TABLE_PART * keys),
            backups=places.backups if name == FTLB else None,
        )
        plan_ms.append(1000 * made.plan_s)
        migrated.append(100 * made.migrated_bytes / float(loads.state.sum()))
        if made.applicable:
            tables.append(made.table)
    return float(np.mean(plan_ms)), float(np.mean(migrated)), float(len(tables[-1]))


def by_tolerance(lab: Lab) -> Plans:
    """Figure 8's."""
    thetas = lab.pick(quick=(0.02, 0.3), small=(0.02, 0.05, 0.1, 0.2, 0.3), full=(0.02, 0.05, 0.1, 0.2, 0.3))
    keys = lab.pick(quick=1000, small=20_000, full=100_000)
    return lab.once("plans by θ", lambda: _measure(lab, thetas, keys, lambda theta: (keys, theta)))


def by_keys(lab: Lab) -> Plans:
    """Figure 9's."""
    counts = lab.pick(
        quick=(500.0, 2000.0),
        small=(5000.0, 20_000.0, 100_000.0),
        full=(5000.0, 10_000.0, 100_000.0, 1_000_000.0),
    )
    return lab.once("plans by keys", lambda: _measure(lab, counts, 0, lambda count: (int(count), THETA)))


def _check_tolerance(found: Plans) -> list[Claim]:
    strict, loose = found.numbers[0], found.numbers[-1]
    ends = f"θ = {strict:g} / {loose:g}"
    last = len(found.numbers) - 1

    def own(value: str, name: str) -> Spread:
        first, end = (getattr(found.found[name][at], value) for at in (0, last))
        return spread([(one + 1e-9) / (other + 1e-9) for one, other in zip(first, end, strict=True)])

    claims = [
        at_least(
            "the more imbalance is tolerated, the faster a plan is made",
            f"{name}: plan time, {ends}",
            own("plan_ms", name),
            1.0,
            "both ends have plans of few milliseconds",
        )
        for name in PLANNERS
    ]
    claims += [
        at_least(
            "below θ = 0.2 Mixed, which tries again and again, plans longer than MRT",
            f"θ = {strict:g}: plan time, Mixed / MRT",
            found.ratio("plan_ms", MIXED, MRT, 0),
            1.0,
            "it tries again only if the table is full, and here its first answer fits",
        ),
        between(
            "from θ = 0.2 on they take as long",
            f"θ = {loose:g}: plan time, Mixed / MRT",
            found.ratio("plan_ms", MIXED, MRT, last),
            0.5,
            2.0,
            "plans of a millisecond differ by what else the machine does",
        ),
        at_least(
            "FTLB plans faster than Mixed, because more keys can be moved",
            f"θ = {strict:g}: plan time, Mixed / FTLB",
            found.ratio("plan_ms", MIXED, FTLB, 0),
            1.0,
            "it looks at the backups of every candidate one by one, and switches many light keys",
        ),
        at_most(
            "at θ = 0.02 FTLB still makes a plan within a second",
            f"θ = {strict:g}: plan time of FTLB in ms",
            spread(found.found[FTLB][0].plan_ms),
            1000.0,
            "the machine is busy",
        ),
    ]
    claims += [
        at_least(
            "a smaller θ moves more state",
            f"{name}: migrated state, {ends}",
            own("migrated_percent", name),
            1.0,
            "with as few keys one heavy key makes the difference",
        )
        for name in PLANNERS
    ]
    return [*claims, *_migration(found, "of all tolerances")]


def _migration(found: Plans, where: str) -> list[Claim]:
    def worst(over: str, under: str) -> Spread:
        pairs = zip(found.found[over], found.found[under], strict=True)
        each = [
            [
                (one + 1e-9) / (other + 1e-9)
                for one, other in zip(ours.migrated_percent, theirs.migrated_percent, strict=True)
            ]
            for ours, theirs in pairs
        ]
        return spread([min(values) for values in zip(*each, strict=True)])

    return [
        at_least(
            "MRT moves more state than Mixed",
            f"migrated state, MRT / Mixed, least {where}",
            worst(MRT, MIXED),
            1.0,
            "Mixed's first answers move the same keys while the table is empty",
        ),
        at_least(
            "FTLB, which lets roles switch, moves the least",
            f"migrated state, Mixed / FTLB, least {where}",
            worst(MIXED, FTLB),
            1.0,
            "a wide tolerance leaves Mixed little to move as well",
        ),
        at_most(
            "under the same size of the routing table",
            f"table entries at the end, FTLB / limit of the others, at {found.numbers[0]:g}",
            spread([entries / _limit(found, 0) for entries in found.found[FTLB][0].table]),
            1.0,
            "a switch costs no state, so FTLB switches many light keys, and Algorithm 3 never looks at the "
            "table; with the limit every plan is refused",
        ),
    ]


def _limit(found: Plans, at: int) -> float:
    return TABLE_PART * (found.keys or found.numbers[at])


def _check_keys(found: Plans) -> list[Claim]:
    last = len(found.numbers) - 1
    fewest, most = f"{found.numbers[0]:,.0f}", f"{found.numbers[-1]:,.0f}"
    claims = [
        at_least(
            "with more keys plans take longer",
            f"{name}: plan time, {most} / {fewest} keys",
            spread(ratios(found.found[name][last].plan_ms, found.found[name][0].plan_ms)),
            1.5,
            "a fixed part of a plan's time outweighs the keys",
        )
        for name in PLANNERS
    ]
    claims += [
        at_least(
            "Mixed takes the longest",
            f"{most} keys: plan time, Mixed / the longest of the others",
            spread(
                [
                    mixed / max(mrt, ftlb)
                    for mixed, mrt, ftlb in zip(
                        *(found.found[name][last].plan_ms for name in (MIXED, MRT, FTLB)), strict=True
                    )
                ]
            ),
            1.0,
            "FTLB looks at the backups of every candidate one by one, and has many candidates; of the others "
            "Mixed does take longer",
        ),
        at_most(
            "FTLB's time is close to MRT's",
            f"{most} keys: plan time, FTLB / MRT",
            found.ratio("plan_ms", FTLB, MRT, last),
            2.0,
            "it looks at the backups of every candidate one by one, and has many candidates",
        ),
    ]
    return [*claims, *_migration(found, "of all numbers of keys")]


def _tables(found: Plans, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    header = ["plan ms; migrated %; table", *names]
    rows = []
    for name, ones in found.found.items():
        cells = [
            f"{spread(one.plan_ms).text('.2g')}; {spread(one.migrated_percent).text('.2g')}; "
            f"{spread(one.table).median:,.0f}"
            for one in ones
        ]
        rows.append([name, *cells])
    return header, rows


def _chart(found: Plans, x: str) -> Chart:
    series = {
        name: [
            (number, spread(one.migrated_percent).median)
            for number, one in zip(found.numbers, ones, strict=True)
        ]
        for name, ones in found.found.items()
    }
    return lines(f"Migrated state by {x}", x, "% of all state", series)


def _show_tolerance(found: Plans) -> Shown:
    header, rows = _tables(found, [f"θ = {theta:g}" for theta in found.numbers])
    notes = [f"{found.keys:,} keys; {of_rounds(found.seeds)}, each the mean of its intervals."]
    return Shown(_chart(found, "θ"), header, rows, notes)


def _show_keys(found: Plans) -> Shown:
    header, rows = _tables(found, [f"{count:,.0f} keys" for count in found.numbers])
    notes = [f"θ = {THETA:g}; {of_rounds(found.seeds)}, each the mean of its intervals."]
    return Shown(_chart(found, "keys"), header, rows, notes)


_HERE = (
    f"Zipf's law with z = {EXPONENT:g}, {INSTANCES} instances, seven pairs of which exchange load in each "
    f"interval; every key has one replica; a window of {WINDOW} intervals. MRT is mintable. The table of MRT "
    "and Mixed has at most 3 % of the keys, FTLB's has no limit."
)

FIG_8 = Experiment(
    "fig-8",
    "Plan time and migrated state by tolerance",
    "Plans take longer and move more the stricter θ is. Mixed plans longer than MRT below 0.2 and moves "
    "less; FTLB plans faster than Mixed and moves the least, because roles switch.",
    _HERE,
    by_tolerance,
    _check_tolerance,
    _show_tolerance,
)
FIG_9 = Experiment(
    "fig-9",
    "Plan time and migrated state by the number of keys",
    "With 5,000 to a million keys plan time grows; Mixed takes the longest, FTLB about as long as MRT; FTLB "
    "moves the least.",
    _HERE,
    by_keys,
    _check_keys,
    _show_keys,
)
