"""Figures 3 and 4: throughput over time against LPTF and PKG, and against KG with more engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt.plot import over_time
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between
from ckpt_bench.reproduce.dlb.runs import DLB_H, DLB_L, KG, KG_6, LPTF, PKG, Compared, compared
from ckpt_bench.reproduce.dlb.streams import DEFAULT, ZIPF
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, ratios, spread

PAPER: Mapping[str, Mapping[str, Sequence[str]]] = {
    DEFAULT: {
        DLB_L: ("2,941,246", "7", "30 (most)", "380,000"),
        DLB_H: ("2,899,076", "7", "10 (most)", "70,400"),
        LPTF: ("2,042,201", "9", "76", "677,886"),
        PKG: ("2,926,853", "-", "-", "-"),
        KG: ("2,726,628", "-", "-", "-"),
        KG_6: ("2,790,362", "-", "-", "-"),
    },
    ZIPF: {
        DLB_L: ("-", "10", "47.5", "294,881"),
        DLB_H: ("2,795,336", "10", "5", "57,750"),
        LPTF: ("-", "12", "-", "600,000"),
        PKG: ("2,831,477", "-", "-", "-"),
        KG: ("2,586,169", "-", "-", "-"),
        KG_6: ("2,653,789", "-", "-", "-"),
    },
}
"""Stream → technique → tweets processed, rebalances, keys moved by one in percent, tweets moved by one."""


@dataclass(frozen=True, slots=True)
class Orders:
    """All techniques on both streams."""

    runs: Mapping[str, Compared]

    def over(self, order: str, figure: str, one: str, other: str) -> Rounds:
        """The ratio of one figure of two techniques, seed by seed."""
        return ratios(self.runs[order].of(one, figure), self.runs[order].of(other, figure))


def _run(lab: Lab) -> Orders:
    return Orders({order: compared(lab, order) for order in (DEFAULT, ZIPF)})


def _check_moves(found: Orders) -> list[Claim]:
    reads = "how long nothing can be planned after a rebalance depends on how much it moves"
    drift = "how much has to move depends on how much the stream has changed since the last rebalance"
    return [
        at_least(
            "DLB-L keeps its throughput, LPTF does not: 1.44 times the tweets (3a)",
            "default order: tweets, DLB-L / LPTF",
            spread(found.over(DEFAULT, "processed", DLB_L, LPTF)),
            1.02,
            drift,
        ),
        at_least(
            "LPTF is unstable, DLB-H is not (3a)",
            "default order: deviation of the throughput, LPTF / DLB-H",
            spread(found.over(DEFAULT, "unsteady", LPTF, DLB_H)),
            2.0,
            drift,
        ),
        at_least(
            "DLB stays steady when the distribution changes; LPTF has the worst performance (3b)",
            "periodic Zipf: tweets, DLB-H / LPTF",
            spread(found.over(ZIPF, "processed", DLB_H, LPTF)),
            1.05,
            "tweets that waited for a rebalance are processed after it, if there are fewer than 50,000",
        ),
        between(
            "PKG processes about as many as DLB-H: 2,831,477 and 2,795,336 (3b)",
            "periodic Zipf: tweets, PKG / DLB-H",
            spread(found.over(ZIPF, "processed", PKG, DLB_H)),
            0.97,
            1.05,
            "one key has 39 % of all tweets, which is what one engine can take",
        ),
        at_least(
            "while the stream is skewed, DLB-H processes more than PKG (3b)",
            "periodic Zipf, exponent 1.5: tweets per second, DLB-H / PKG",
            spread(found.over(ZIPF, "processed_skewed", DLB_H, PKG)),
            1.0,
            "PKG divides the heaviest key; merging what its engines found costs nothing here",
        ),
        between(
            "LPTF moves 76 % of the keys each time",
            "default order: keys moved by a rebalance of LPTF",
            spread(found.runs[DEFAULT].of(LPTF, "moved_keys")),
            0.7,
            0.82,
            "with five engines a key finds itself on another one four times in five",
        ),
        between(
            "DLB-L moves 30 % of the keys at most",
            "default order: most keys moved by a rebalance of DLB-L",
            spread(found.runs[DEFAULT].of(DLB_L, "moved_keys_most")),
            0.2,
            0.4,
            drift,
        ),
        between(
            "DLB-H moves 10 % of the keys at most",
            "default order: most keys moved by a rebalance of DLB-H",
            spread(found.runs[DEFAULT].of(DLB_H, "moved_keys_most")),
            0.05,
            0.15,
            drift,
        ),
        at_least(
            "a rebalance of DLB-H moves 5 times fewer tweets than one of DLB-L: 57,750 and 294,881 (3b)",
            "periodic Zipf: tweets moved by a rebalance, DLB-L / DLB-H",
            spread(found.over(ZIPF, "moved_tweets", DLB_L, DLB_H)),
            3.0,
            "at exponent 1.5 the score stays above 15 % whatever moves: DLB-H goes on to ever lighter keys",
        ),
        at_most(
            "DLB rebalances less often than LPTF: 7 and 9 times (3a)",
            "default order: rebalances, DLB-L / LPTF",
            spread(found.over(DEFAULT, "rebalances", DLB_L, LPTF)),
            1.0,
            reads + "; DLB stops at just the score above which it begins again",
        ),
    ]


def _check_engines(found: Orders) -> list[Claim]:
    by_chance = "in some streams the heaviest keys happen to be on different engines by hash"
    room = "at this score no engine is busy all the time, and both process all that comes"
    return [
        at_least(
            "DLB-L processes more than KG on as many engines, 1.079 times (4a)",
            "default order: tweets, DLB-L / KG",
            spread(found.over(DEFAULT, "processed", DLB_L, KG)),
            1.01,
            room,
        ),
        at_least(
            "DLB-L processes about as many as KG on 6 engines, 1.054 times (4a)",
            "default order: tweets, DLB-L / KG with 6",
            spread(found.over(DEFAULT, "processed", DLB_L, KG_6)),
            0.98,
            "",
        ),
        at_least(
            "DLB-H processes more than KG, 1.081 times (4b)",
            "periodic Zipf: tweets, DLB-H / KG",
            spread(found.over(ZIPF, "processed", DLB_H, KG)),
            1.01,
            by_chance,
        ),
        at_least(
            "DLB-H processes more than KG on 6 engines, 1.053 times (4b)",
            "periodic Zipf: tweets, DLB-H / KG with 6",
            spread(found.over(ZIPF, "processed", DLB_H, KG_6)),
            1.01,
            by_chance,
        ),
        at_least(
            "while the stream is skewed, DLB-H outperforms KG on 6 engines (4b)",
            "periodic Zipf, exponent 1.5: tweets per second, DLB-H / KG with 6",
            spread(found.over(ZIPF, "processed_skewed", DLB_H, KG_6)),
            1.02,
            by_chance,
        ),
        at_least(
            "while it is not, KG on 6 engines outperforms DLB-H (4b)",
            "periodic Zipf, exponent 0.2: tweets per second, KG with 6 / DLB-H",
            spread(found.over(ZIPF, "processed_even", KG_6, DLB_H)),
            1.0,
            "the source is the limit then; what KG processes beyond that was left over from before",
        ),
        between(
            "KG's score is about 77 to 80 % at exponent 1.5 (§4)",
            "periodic Zipf, exponent 1.5: score of KG",
            spread(found.runs[ZIPF].of(KG, "score_skewed")),
            70.0,
            90.0,
            "it depends on which engines the three heaviest keys have by hash",
        ),
        between(
            "DLB-H keeps the score at around 40 % then (4b)",
            "periodic Zipf, exponent 1.5: score of DLB-H",
            spread(found.runs[ZIPF].of(DLB_H, "score_skewed")),
            30.0,
            50.0,
            "one key has 39 % of all tweets: no placement of whole keys on 5 engines has a score below 47 %",
        ),
    ]


def _table(found: Orders, names: Sequence[str]) -> list[list[str]]:
    rows = []
    for order, runs in found.runs.items():
        for name in names:
            moves = "-" not in PAPER[order][name][1]
            ours = [spread(runs.of(name, "processed")).text(",.0f")]
            ours.append(spread(runs.of(name, "rebalances")).text(".3g") if moves else "-")
            percent = [
                100 * part for part in runs.of(name, "moved_keys_most" if order == DEFAULT else "moved_keys")
            ]
            ours.append(spread(percent).text(".3g") if moves else "-")
            ours.append(spread(runs.of(name, "moved_tweets")).text(",.0f") if moves else "-")
            cells = [cell for pair in zip(PAPER[order][name], ours, strict=True) for cell in pair]
            rows.append([order, name, *cells])
    return rows


_HEADER = ["stream", "technique", "tweets, paper", "here", "rebalances, paper", "here"]
_HEADER += ["keys moved %, paper", "here", "tweets moved, paper", "here"]


def _show(found: Orders, names: Sequence[str], order: str) -> Shown:
    courses = {name: found.runs[order].techniques[name].course for name in names}
    chart = over_time(f"Throughput, {order}", "tweets/s", courses)
    seeds = found.runs[order].seeds
    notes = [
        f"The chart shows the first of {seeds} streams; figures are medians [quartiles] of all.",
        "Keys moved: the most by one rebalance for DLB in the default order, else the mean.",
    ]
    return Shown(chart, _HEADER, _table(found, names), notes)


FIG_3 = Experiment(
    "fig-3",
    "Throughput against LPTF and PKG, and what is moved",
    "Both policies keep 1,200 tweets per second; LPTF moves 76 % of the keys each time and does not.",
    "Simulated: the Splitter of §3.3, one engine reading 1,000 tweets per second from the store.",
    _run,
    _check_moves,
    lambda found: _show(found, (DLB_L, DLB_H, LPTF, PKG), ZIPF),
)
FIG_4 = Experiment(
    "fig-4",
    "Throughput against key grouping with 5 and with 6 engines",
    "Balancing five engines is worth more than adding a sixth.",
    "Simulated, as figure 3.",
    _run,
    _check_engines,
    lambda found: _show(found, (DLB_L, DLB_H, KG, KG_6), ZIPF),
)
