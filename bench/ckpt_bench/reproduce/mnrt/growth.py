"""Figures 3, 4 and 5: a join over the full history, on as many instances as its stored rows need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_bench.plot import Bar, bars, lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mnrt.streams import (
    BI,
    BI6,
    BNCI,
    DYNAMIC,
    EQ5,
    MIXED,
    MNRT,
    QMMP,
    QUERIES,
    measured,
    rows_of,
)
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

SCHEMES = (MNRT, QMMP, MIXED, DYNAMIC, BI, BI6)
FILLED_INSTANCES = 7.5
"""How many instances the rows of a stream fill if none is copied."""
INTERVALS = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """One scheme with one query and one skew, one figure for each seed."""

    time_s: Rounds
    """Of the whole stream, as fast as the slowest instance takes it."""
    instances: Sequence[Rounds]
    """In use, at the end of each interval."""
    moved_share: Rounds
    """Copies that moved because instances were added, per row of the stream."""
    plan_s: Rounds
    transfer_s: Rounds


@dataclass(frozen=True, slots=True)
class Growth:
    """All of it."""

    rows: int
    seeds: int
    skews: Sequence[float]
    found: Mapping[str, Mapping[str, Sequence[Loaded]]]
    """Query → scheme → one for each skew."""

    def times(self, query: str, scheme: str, skew: int) -> Rounds:
        """The times of a scheme; `skew` is an index."""
        return self.found[query][scheme][skew].time_s


def measure(lab: Lab) -> Growth:
    """Every scheme over the same rows, from as few instances as it can begin with."""
    rows = lab.pick(quick=600, small=8000, full=60_000)
    seeds = lab.pick(quick=2, small=10, full=20)
    skews = lab.pick(quick=(0.0, 1.5), small=(0.0, 0.5, 1.0, 1.5), full=(0.0, 0.2, 0.5, 0.8, 1.0, 1.2, 1.5))
    found: dict[str, dict[str, list[Loaded]]] = {q: {name: [] for name in SCHEMES} for q in QUERIES}
    for query in QUERIES:
        for skew in skews:
            rounds = []
            for seed in range(seeds):
                lab.say(f"{query}, z = {skew:g}, seed {seed + 1} of {seeds}")
                stream = rows_of(query, rows, skew, seed, 1.0)
                runs = measured(query, stream, int(len(stream) / FILLED_INSTANCES), INTERVALS)
                rounds.append((len(stream), runs))
            for name in SCHEMES:
                runs_of = [(count, runs[name].steps, runs[name]) for count, runs in rounds]
                found[query][name].append(
                    Loaded(
                        [run.makespan_s for _, _, run in runs_of],
                        np.array([[step.instances for step in steps] for _, steps, _ in runs_of]).T.tolist(),
                        [sum(step.moved for step in steps) / count for count, steps, _ in runs_of],
                        [sum(step.plan_s for step in steps) for _, steps, _ in runs_of],
                        [sum(step.transfer_s for step in steps) for _, steps, _ in runs_of],
                    )
                )
    return Growth(rows, seeds, skews, found)


def growth(lab: Lab) -> Growth:
    """Figures 3, 4 and 5 are three views of one run."""
    return lab.once("growth of joins", lambda: measure(lab))


def _over(over: Sequence[Rounds], under: Sequence[Rounds]) -> Spread:
    """The least of several ratios, seed by seed."""
    each = [ratios(one, other) for one, other in zip(over, under, strict=True)]
    return spread([min(values) for values in zip(*each, strict=True)])


def _range(rounds: Sequence[Rounds]) -> Spread:
    """Highest over lowest, seed by seed."""
    return spread([max(values) / min(values) for values in zip(*rounds, strict=True)])


def _check_times(found: Growth) -> list[Claim]:
    last = len(found.skews) - 1
    least, most = f"z = {found.skews[0]:g}", f"z = {found.skews[-1]:g}"
    claims = []
    for query in QUERIES:
        slowest = [found.times(query, BI, skew) for skew in range(last + 1)]
        others = [
            found.times(query, name, skew)
            for skew in range(last + 1)
            for name in SCHEMES
            if name not in (BI, MIXED)
        ]
        repeated = [rounds for rounds in slowest for _ in range(len(SCHEMES) - 2)]
        claims += [
            at_least(
                "Bi, which sends every row to a whole side, takes the longest at any skew",
                f"{query}: time, Bi / the slowest other, at its least",
                _over(repeated, others),
                1.0,
                "at the highest skew the splits of QMMP and MNRT cost more than Bi's copies",
            ),
            at_most(
                "Dynamic does not depend on the skew",
                f"{query}: time of Dynamic, highest / lowest of all skews",
                _range([found.times(query, DYNAMIC, skew) for skew in range(last + 1)]),
                1.05,
                "few rows are drawn to rows and columns of the matrix unevenly",
            ),
            at_least(
                "Bi6's subgroups suffer from strong skew",
                f"{query}: time of Bi6, {most} / {least}",
                spread(ratios(found.times(query, BI6, last), found.times(query, BI6, 0))),
                1.25,
                "a subgroup that holds more gets more instances, which makes up for the skew",
            ),
            at_least(
                "QMMP, which splits more, is slower than MNRT when the skew is strong",
                f"{query}, {most}: time, QMMP / MNRT",
                spread(ratios(found.times(query, QMMP, last), found.times(query, MNRT, last))),
                1.0,
                "the heaviest keys have to be split by both, and cost both the same; QMMP cuts few others "
                "because it cuts one key for each instance",
            ),
        ]
    growths = [ratios(found.times(query, QMMP, last), found.times(query, QMMP, 0)) for query in (BNCI, EQ5)]
    claims += [
        at_least(
            "with strong skew QMMP splits more keys, and takes longer",
            f"{EQ5}: time of QMMP, {most} / {least}",
            spread(growths[1]),
            1.1,
            "the heaviest key is light enough to stay whole",
        ),
        at_least(
            "most of all with B_NCI",
            f"that growth, {BNCI} / {EQ5}",
            spread(ratios(growths[0], growths[1])),
            1.0,
            "in a band a row probes the splits of three keys instead of one, but at low skew it already goes "
            "to three instances for its three keys, which splits add little to",
        ),
        at_least(
            "with little skew MNRT sends rows only where their keys are, and is fast with few instances",
            f"{EQ5}, {least}: instances x time, Dynamic / MNRT",
            spread(ratios(_used(found, DYNAMIC, 0), _used(found, MNRT, 0))),
            1.0,
            "an instance that stores more compares each row with more",
        ),
        between(
            "nor on the predicate",
            f"{most}: time of Dynamic, {BNCI} / {EQ5}",
            spread(ratios(found.times(BNCI, DYNAMIC, last), found.times(EQ5, DYNAMIC, last))),
            0.8,
            1.25,
            "the sides of the two queries differ in their sizes",
        ),
    ]
    return claims


def _used(found: Growth, scheme: str, skew: int) -> Rounds:
    one = found.found[EQ5][scheme][skew]
    return [time_s * count for time_s, count in zip(one.time_s, one.instances[-1], strict=True)]


def _table(found: Growth, value: str, form: str) -> tuple[list[str], list[list[str]]]:
    header = ["", *(f"{query}, z = {skew:g}" for query in QUERIES for skew in found.skews)]
    rows = [
        [
            name,
            *(
                spread(getattr(one, value)).text(form)
                for query in QUERIES
                for one in found.found[query][name]
            ),
        ]
        for name in SCHEMES
    ]
    return header, rows


def _show_times(found: Growth) -> Shown:
    header, rows = _table(found, "time_s", ".2g")
    series = {
        name: [
            (skew, spread(one.time_s).median)
            for skew, one in zip(found.skews, found.found[EQ5][name], strict=True)
        ]
        for name in SCHEMES
    }
    notes = [
        f"Seconds for {found.rows:,} rows, {of_rounds(found.seeds)}: 10 µs to receive a row, 50 ns to "
        "compare it with one stored row."
    ]
    return Shown(lines(f"Time for {EQ5} by skew", "z", "s", series), header, rows, notes)


def _check_instances(found: Growth) -> list[Claim]:
    last = {name: found.found[EQ5][name][0].instances[-1] for name in SCHEMES}
    others = [max(values) for values in zip(last[MNRT], last[QMMP], last[BI], last[BI6], strict=True)]
    return [
        at_least(
            "Dynamic, which grows from n to 4n instances, uses the most",
            f"{EQ5}: instances at the end, Dynamic / the most of the others",
            spread(ratios(last[DYNAMIC], others)),
            1.5,
            "the rows happen to fill a matrix just before it would grow",
        ),
        at_most(
            "MNRT and QMMP use as many as the rows need",
            f"{EQ5}: instances at the end, the larger of both / {FILLED_INSTANCES:g} that the rows fill",
            spread([max(m, q) / FILLED_INSTANCES for m, q in zip(last[MNRT], last[QMMP], strict=True)]),
            1.1,
            "instances are added for what one interval brings at once",
        ),
        at_most(
            "Bi, made to save memory, uses few as well",
            f"{EQ5}: instances at the end, Bi / MNRT",
            spread(ratios(last[BI], last[MNRT])),
            1.25,
            "each side fills its instances by itself",
        ),
    ]


def _show_instances(found: Growth) -> Shown:
    count = INTERVALS
    steps = range(0, count, max(1, count // 5))
    header = ["loaded", *(f"{100 * (step + 1) / count:.0f} %" for step in [*steps, count - 1])]
    rows, series = [], {}
    for name in SCHEMES:
        each = [spread(rounds) for rounds in found.found[EQ5][name][0].instances]
        rows.append([name, *(each[step].text(".3g") for step in [*steps, count - 1])])
        series[name] = [(100 * (at + 1) / count, one.median) for at, one in enumerate(each)]
    notes = [f"{EQ5} without skew; {of_rounds(found.seeds)}. Mixed moves whole keys."]
    return Shown(lines("Instances by part of the rows loaded", "%", "instances", series), header, rows, notes)


def _check_adjusting(found: Growth) -> list[Claim]:
    claims = []
    for query in QUERIES:
        each = found.found[query]
        transfers = {name: [one.transfer_s for one in each[name]] for name in SCHEMES}
        claims += [
            at_least(
                "Dynamic copies the most rows when it grows, and takes the longest",
                f"{query}: transfer time, Dynamic / MNRT, least of all skews",
                _over(transfers[DYNAMIC], transfers[MNRT]),
                1.2,
                "its 64 instances send and receive side by side",
            ),
            at_least(
                "QMMP cuts keys where it is convenient, and is a little ahead of MNRT",
                f"{query}: planning and transfer, MNRT / QMMP, least of all skews",
                _over([_adjusting(one) for one in each[MNRT]], [_adjusting(one) for one in each[QMMP]]),
                1.0,
                "planning takes MNRT longer only where it has many keys to rank",
            ),
            at_most(
                "Bi stores rows at random, which makes growing easy",
                f"{query}: rows moved, Bi / MNRT, over all skews at most",
                spread(
                    [
                        max(values)
                        for values in zip(
                            *(
                                ratios(bi.moved_share, mnrt.moved_share)
                                for bi, mnrt in zip(each[BI], each[MNRT], strict=True)
                            ),
                            strict=True,
                        )
                    ]
                ),
                1.1,
                "each group fills up by itself, so that some grow at more moments than the whole",
            ),
        ]
    return claims


def _adjusting(one: Loaded) -> Rounds:
    return [plan_s + transfer_s for plan_s, transfer_s in zip(one.plan_s, one.transfer_s, strict=True)]


def _show_adjusting(found: Growth) -> Shown:
    ends = [(query, at) for query in QUERIES for at in (0, -1)]
    names = [f"{query}, z = {found.skews[at]:g}" for query, at in ends]
    header = ["plan ms + transfer ms; copies moved per row", *names]
    rows = []
    for name in SCHEMES:
        cells = []
        for query, at in ends:
            one = found.found[query][name][at]
            plan_ms, transfer_ms = (1000 * spread(rounds).median for rounds in (one.plan_s, one.transfer_s))
            cells.append(f"{plan_ms:.3g} + {transfer_ms:.3g}; {spread(one.moved_share)}")
        rows.append([name, *cells])
    marks = []
    for name in SCHEMES:
        total = spread([1000 * value for value in _adjusting(found.found[EQ5][name][-1])])
        marks.append(Bar(name, total.median, f"{total.median:.3g} ms", total.q1, total.q3))
    notes = [
        f"All growth of a run together, {of_rounds(found.seeds)}; of times the medians. Plans are made on "
        "this machine; rows travel in the simulator, at 128 bytes each and 125 MB/s for each instance."
    ]
    return Shown(bars(f"Planning and transfer, {EQ5}, z = {found.skews[-1]:g}", marks), header, rows, notes)


_HERE = (
    "The simulator's row-by-row join without an index, on rows of a generated TPC-H subset; an instance is "
    "added when the stored rows fill those in use. Mixed moves whole keys and is not in the paper's figure."
)

FIG_3 = Experiment(
    "fig-3",
    "Time for a join over the full history",
    "12 GB of TPC-H as fast as possible. MNRT and QMMP are fast with little skew, QMMP splits more with "
    "strong skew, Bi6 suffers from it, Bi is the slowest, Dynamic does not depend on it.",
    _HERE,
    growth,
    _check_times,
    _show_times,
)
FIG_4 = Experiment(
    "fig-4",
    "Instances in use while rows are loaded",
    "Dynamic grows by a factor of four and wastes instances; MNRT and QMMP take as many as the rows need, "
    "the bicliques few as well.",
    _HERE,
    growth,
    _check_instances,
    _show_instances,
)
FIG_5 = Experiment(
    "fig-5",
    "What it takes to grow",
    "Dynamic moves the most and takes the longest; QMMP is a little ahead of MNRT; Bi grows easily.",
    _HERE,
    growth,
    _check_adjusting,
    _show_adjusting,
)
