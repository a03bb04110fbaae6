"""Figure 6: how many rows each instance receives while a join over a window goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.mnrt.growth import SCHEMES
from ckpt_bench.reproduce.mnrt.streams import (
    BI,
    BI6,
    BNCI,
    DYNAMIC,
    EQ5,
    MNRT,
    QMMP,
    QUERIES,
    measured,
    rows_of,
)
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

WINDOW_S = 180.0
WINDOWS = 3
"""How long the stream is; figures are of what comes after the first window."""
INTERVALS = 36
FILLED_INSTANCES = 7
"""How many instances the rows of a window fill if none is copied."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """One scheme with one query and one skew, one figure for each seed."""

    received_share: Rounds
    """What part of all rows an instance receives, in the mean of those in use."""
    copies: Rounds
    """To how many instances a row goes."""
    instances: Rounds
    stored_skew: Rounds
    """What the fullest instance stores over the mean."""


@dataclass(frozen=True, slots=True)
class Window:
    """All of it."""

    rows: int
    seeds: int
    skews: Sequence[float]
    found: Mapping[str, Mapping[str, Sequence[Windowed]]]


def measure(lab: Lab) -> Window:
    """Every scheme over the same rows."""
    rows = lab.pick(quick=900, small=12_000, full=90_000)
    seeds = lab.pick(quick=2, small=10, full=20)
    skews = lab.pick(quick=(0.0, 1.5), small=(0.0, 0.5, 1.0, 1.5), full=(0.0, 0.2, 0.5, 0.8, 1.0, 1.2, 1.5))
    found: dict[str, dict[str, list[Windowed]]] = {q: {name: [] for name in SCHEMES} for q in QUERIES}
    for query in QUERIES:
        for skew in skews:
            each: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in SCHEMES}
            for seed in range(seeds):
                lab.say(f"{query}, z = {skew:g}, seed {seed + 1} of {seeds}")
                stream = rows_of(query, rows, skew, seed, WINDOWS * WINDOW_S)
                capacity = int(len(stream) / WINDOWS / FILLED_INSTANCES)
                for name, run in measured(query, stream, capacity, INTERVALS, WINDOW_S).items():
                    steps = run.steps[INTERVALS // WINDOWS :]
                    each[name].append(
                        (
                            float(np.mean([step.received.mean() / step.rows for step in steps])),
                            float(np.mean([step.received.sum() / step.rows for step in steps])),
                            float(steps[-1].instances),
                            float(np.mean([step.stored.max() / step.stored.mean() for step in steps])),
                        )
                    )
            for name in SCHEMES:
                share, copies, instances, stored = (list(column) for column in zip(*each[name], strict=True))
                found[query][name].append(Windowed(share, copies, instances, stored))
    return Window(rows, seeds, skews, found)


def _received(found: Window, query: str, scheme: str, skew: int) -> Rounds:
    return found.found[query][scheme][skew].received_share


def _ratio(found: Window, query: str, over: str, under: str, skew: int) -> Spread:
    return spread(ratios(_received(found, query, over, skew), _received(found, query, under, skew)))


def _check(found: Window) -> list[Claim]:
    last = len(found.skews) - 1
    least, most = f"z = {found.skews[0]:g}", f"z = {found.skews[-1]:g}"
    claims = []
    for query in QUERIES:
        of_skews = [_received(found, query, DYNAMIC, skew) for skew in range(last + 1)]
        claims += [
            at_most(
                "Dynamic's instances receive the same at any skew",
                f"{query}: received by an instance of Dynamic, highest / lowest of all skews",
                spread([max(values) / min(values) for values in zip(*of_skews, strict=True)]),
                1.1,
                "few rows are drawn to rows and columns of the matrix unevenly",
            ),
            at_least(
                "but there are more of them",
                f"{query}, {least}: instances, Dynamic / MNRT",
                spread(
                    ratios(found.found[query][DYNAMIC][0].instances, found.found[query][MNRT][0].instances)
                ),
                1.5,
                "the rows happen to fill a matrix just before it would grow",
            ),
            at_least(
                "with strong skew QMMP, which splits more keys, makes an instance receive more than MNRT",
                f"{query}, {most}: received by an instance, QMMP / MNRT",
                _ratio(found, query, QMMP, MNRT, last),
                1.0,
                "the heaviest keys are split by both; MNRT cuts a key anew whenever its part is heavier than "
                "what an instance has too much, which leaves as many parts",
            ),
            at_least(
                "Bi6's subgroups send more as skew grows",
                f"{query}: received by an instance of Bi6, {most} / {least}",
                spread(ratios(_received(found, query, BI6, last), _received(found, query, BI6, 0))),
                1.05,
                "the subgroup of the heaviest key gets more instances, over which the mean is taken; a "
                "row does go to more of them, see its copies",
            ),
        ]
    claims += [
        at_most(
            "with little skew Bi6 sends an equal join to chosen subgroups only",
            f"{EQ5}, {least}: received by an instance, Bi6 / Bi",
            _ratio(found, EQ5, BI6, BI, 0),
            0.8,
            "the subgroups have fewer instances each, over which the mean is taken",
        ),
        at_most(
            "and MNRT sends each row to where its key is",
            f"{EQ5}, {least}: received by an instance, MNRT / Bi",
            _ratio(found, EQ5, MNRT, BI, 0),
            0.8,
            "keys are split although they are light",
        ),
        at_most(
            "MNRT also directs the rows of a band join",
            f"{BNCI}, {least}: received by an instance, MNRT / Bi",
            _ratio(found, BNCI, MNRT, BI, 0),
            1.0,
            "a row of a band joins three keys, which lie on three instances of eight by their hash",
        ),
        between(
            "Bi's instances receive the same with either join",
            f"{most}: received by an instance of Bi, {BNCI} / {EQ5}",
            spread(ratios(_received(found, BNCI, BI, last), _received(found, EQ5, BI, last))),
            0.9,
            1.1,
            "the sides of the two queries differ in their sizes",
        ),
    ]
    return claims


def _show(found: Window) -> Shown:
    header = [
        "",
        *(f"{query}, z = {skew:g}" for query in QUERIES for skew in found.skews),
        "copies",
        "instances",
    ]
    rows = []
    for name in SCHEMES:
        percent = [
            spread([100 * share for share in one.received_share]).text(".3g")
            for query in QUERIES
            for one in found.found[query][name]
        ]
        ends = [found.found[query][name][at] for query in QUERIES for at in (0, -1)]
        copies = [spread(one.copies).median for one in ends]
        used = [spread(one.instances).median for one in ends]
        rows.append(
            [name, *percent, f"{min(copies):.2g} to {max(copies):.2g}", f"{min(used):g} to {max(used):g}"]
        )
    series = {
        name: [
            (skew, 100 * spread(one.received_share).median)
            for skew, one in zip(found.skews, found.found[EQ5][name], strict=True)
        ]
        for name in SCHEMES
    }
    notes = [
        f"What part of all rows an instance receives; {of_rounds(found.seeds)}, {found.rows:,} rows in "
        f"{WINDOWS} windows of {WINDOW_S:g} s, after the first. Copies: to how many instances a row goes."
    ]
    chart = lines(f"Rows that an instance receives, {EQ5}", "z", "% of all rows", series)
    return Shown(chart, header, rows, notes)


FIG_6 = Experiment(
    "fig-6",
    "Rows that an instance receives in a join over a window",
    "With a window of 180 s Dynamic does not depend on skew or join, and uses more instances; MNRT controls "
    "where rows go; QMMP splits often and sends more; Bi6 is good with little skew only; Bi sends all rows.",
    "The simulator's row-by-row join on rows of a generated TPC-H subset. Mixed moves whole keys and is not "
    "in the paper's figure.",
    lambda lab: lab.once("window of joins", lambda: measure(lab)),
    _check,
    _show,
)
