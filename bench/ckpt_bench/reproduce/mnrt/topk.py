"""Figures 7 and 8: the topics of posts counted, with keys that planners move or split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance import Plan, RoutingTable, plan
from ckpt.rebalance.simulate.generators import Posts
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, of_rounds, ratios, spread

MNRT, QMMP, READJ, PKG, STORM = "MNRT", "QMMP", "Readj", "PKG", "Storm"
PLANNERS: Mapping[str, str] = {QMMP: "qmmp", MNRT: "mnrt", READJ: "readj"}
INSTANCES = 15
EXPONENT = 1.5
"""Topics are followed by many or by few; words, whose exponent is 1, leave no key that has to be split."""
TICKS = 10
"""How often in an interval instances send what they have counted since to the one that ranks the topics."""
MERGE_S = 10e-6
"""To receive one part of a key that is split and add it to the others, as long as a row of a join takes."""
LINK_BYTES_PER_S = 125e6


@dataclass(frozen=True, slots=True)
class Planned:
    """One planner with one tolerance, one figure for each seed."""

    plan_ms: Rounds
    """Mean of a plan."""
    throughput: Rounds
    """Words per second."""
    parts: Rounds
    """Parts of split keys at the end."""


@dataclass(frozen=True, slots=True)
class TopK:
    """All of it."""

    words: int
    seeds: int
    thetas: Sequence[float]
    found: Mapping[str, Sequence[Planned]]
    """Planner → one for each tolerance."""


def measure(lab: Lab) -> TopK:
    """Every planner over the same posts."""
    words = lab.pick(quick=500, small=5000, full=180_000)
    posts = lab.pick(quick=200, small=2500, full=20_000)
    intervals = lab.pick(quick=3, small=8, full=20)
    seeds = lab.pick(quick=2, small=10, full=10)
    thetas = lab.pick(quick=(0.05, 0.2), small=(0.02, 0.05, 0.1, 0.2), full=(0.02, 0.05, 0.1, 0.15, 0.2, 0.3))
    found: dict[str, list[Planned]] = {name: [] for name in (*PLANNERS, PKG, STORM)}
    for theta in thetas:
        each: dict[str, list[tuple[float, float, float]]] = {name: [] for name in found}
        for seed in range(seeds):
            lab.say(f"θ = {theta:g}, seed {seed + 1} of {seeds}")
            stream = Posts(words=words, posts=posts, intervals=intervals, exponent=EXPONENT, seed=seed)
            for name in found:
                each[name].append(_run(name, stream, theta))
        for name, rounds in each.items():
            found[name].append(Planned(*(list(column) for column in zip(*rounds, strict=True))))
    return TopK(words, seeds, thetas, found)


def _run(name: str, stream: Posts, theta: float) -> tuple[float, float, float]:
    """Mean plan in ms, words per second, parts of split keys at the end.

    Words are counted as fast as the slowest instance takes them. Then come the parts of split keys, which one
    instance adds up at each tick, the plan, and the state that it moves.
    """
    table = RoutingTable(INSTANCES)
    words = seconds = 0.0
    plans: list[float] = []
    parts = 0
    for interval in stream:
        words += float(interval.tuples.sum())
        loads = interval.loads(table.place(interval.keys))
        if name == PKG:
            made = plan(loads, "pkg", instances=INSTANCES, theta=theta)
            parts, busy_s = _parts(made), float(made.loads_after.max())
            seconds += busy_s + TICKS * parts * MERGE_S
            continue
        busy_s = float(table.instance_loads(loads).max())
        seconds += busy_s + TICKS * parts * MERGE_S
        if name == STORM:
            continue
        made = plan(loads, PLANNERS[name], instances=INSTANCES, theta=theta, table=table)
        plans.append(1000 * made.plan_s)
        seconds += made.plan_s + made.migrated_bytes / LINK_BYTES_PER_S
        table, parts = made.table, _parts(made)
    return float(np.mean(plans or [0.0])), words / seconds, float(parts)


def _parts(made: Plan) -> int:
    return int(np.count_nonzero(made.splits.shares[made.splits.pattern]))


def _check_plans(found: TopK) -> list[Claim]:
    strict, loose = found.thetas[0], found.thetas[-1]
    times = {name: [one.plan_ms for one in found.found[name]] for name in PLANNERS}
    return [
        at_most(
            "QMMP plans fast whatever the tolerance",
            f"plan time of QMMP, θ = {strict:g} / {loose:g}",
            spread(ratios(times[QMMP][0], times[QMMP][-1])),
            2.0,
            "a wide tolerance leaves nothing to plan in most intervals",
        ),
        at_least(
            "MNRT, which weighs more, takes a little longer",
            f"plan time at θ = {strict:g}, MNRT / QMMP",
            spread(ratios(times[MNRT][0], times[QMMP][0])),
            1.0,
            "with few keys the ranking costs less than what QMMP cuts",
        ),
        at_least(
            "Readj, which tries pairs of instances and keys, takes the longest",
            f"plan time at θ = {strict:g}, Readj / MNRT",
            spread(ratios(times[READJ][0], times[MNRT][0])),
            1.0,
            "here it searches only from the fullest instance, by sorted keys",
        ),
        at_least(
            "and longer the stricter the tolerance",
            f"plan time of Readj, θ = {strict:g} / {loose:g}",
            spread(ratios(times[READJ][0], times[READJ][-1])),
            1.5,
            "one key is too heavy for an instance, so that no tolerance is ever reached",
        ),
    ]


def _check_throughput(found: TopK) -> list[Claim]:
    at = min(range(len(found.thetas)), key=lambda i: abs(found.thetas[i] - 0.05))
    theta = f"θ = {found.thetas[at]:g}"
    why = {
        QMMP: "QMMP cuts about one key for each instance, which are few to add up",
        READJ: "plans take milliseconds here, so that a slow one costs little",
        PKG: "adding up two parts of every key costs little for as many words",
        STORM: "no word is frequent enough to overload an instance",
    }
    says = {
        QMMP: "MNRT splits fewer keys than QMMP, whose parts have to be added up",
        PKG: "and than PKG, which splits every key",
        READJ: "and plans faster than Readj",
        STORM: "and balances what Storm's hash does not",
    }
    return [
        at_least(
            says[other],
            f"{theta}: throughput, MNRT / {other}",
            spread(ratios(found.found[MNRT][at].throughput, found.found[other][at].throughput)),
            1.0,
            why[other],
        )
        for other in (QMMP, PKG, READJ, STORM)
    ]


def _show_plans(found: TopK) -> Shown:
    header = ["plan ms", *(f"θ = {theta:g}" for theta in found.thetas)]
    rows = [[name, *(spread(one.plan_ms).text(".3g") for one in found.found[name])] for name in PLANNERS]
    series = {
        name: [
            (theta, spread(one.plan_ms).median)
            for theta, one in zip(found.thetas, found.found[name], strict=True)
        ]
        for name in PLANNERS
    }
    notes = [
        f"{found.words:,} different words, {INSTANCES} instances, {of_rounds(found.seeds)}. PKG and Storm "
        "make no plans."
    ]
    return Shown(lines("Plan time by tolerance", "θ", "ms", series), header, rows, notes)


def _show_throughput(found: TopK) -> Shown:
    header = ["words/s", *(f"θ = {theta:g}" for theta in found.thetas), "parts of split keys"]
    rows = [
        [
            name,
            *(spread(one.throughput).text(",.0f") for one in ones),
            spread(ones[0].parts).text(",.0f"),
        ]
        for name, ones in found.found.items()
    ]
    series = {
        name: [(theta, spread(one.throughput).median) for theta, one in zip(found.thetas, ones, strict=True)]
        for name, ones in found.found.items()
    }
    notes = [
        f"A word takes 1 ms, a part {1e6 * MERGE_S:g} µs at each of {TICKS} ticks of an interval; "
        f"{of_rounds(found.seeds)}. Parts at θ = {found.thetas[0]:g}."
    ]
    return Shown(lines("Words per second by tolerance", "θ", "words/s", series), header, rows, notes)


_HERE = (
    "Generated posts whose words drift and burst stand for 10 GB of Weibo posts. Each interval is planned by "
    "what the one before it was like."
)


def topk(lab: Lab) -> TopK:
    """Figures 7 and 8 are two views of one run."""
    return lab.once("topics", lambda: measure(lab))


FIG_7 = Experiment(
    "fig-7",
    "Plan time by tolerance, topics of posts",
    "QMMP plans fast at any tolerance, MNRT a little slower, Readj the slowest.",
    _HERE,
    topk,
    _check_plans,
    _show_plans,
)
FIG_8 = Experiment(
    "fig-8",
    "Throughput of counting topics",
    "Adding up the parts of split keys slows down those that split more; Readj pays for its plans at a "
    "strict tolerance; MNRT is ahead.",
    f"{_HERE} The parts of split keys are added up before the next words are taken.",
    topk,
    _check_throughput,
    _show_throughput,
)
