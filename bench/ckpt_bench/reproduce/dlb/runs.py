"""Every technique on the same streams: what the paper measured of each, one figure for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.simulate import Balancing, Result, Splitter, run
from ckpt_bench.reproduce.dlb.streams import (
    DURATION_S,
    KEYS,
    LOAD_INTERVALS,
    READ_BYTES_S,
    TWEET_BYTES,
    cluster,
    skewed,
    stream,
)
from ckpt_bench.reproduce.experiments import Lab
from ckpt_bench.reproduce.spread import Rounds, ratios

SCORE = 15.0
"""Percent: above it a technique plans; DLB stops at it."""
DLB_L, DLB_H, LPTF, PKG, KG, KG_6 = "DLB-L", "DLB-H", "LPTF", "PKG", "KG", "KG, 6 engines"
TECHNIQUES: Mapping[str, tuple[str, int]] = {
    DLB_L: ("dlb-l", 5),
    DLB_H: ("dlb-h", 5),
    LPTF: ("lptf", 5),
    PKG: ("pkg", 5),
    KG: ("kg", 5),
    KG_6: ("kg", 6),
}
"""Name → planner and engines."""


@dataclass(slots=True)
class Technique:
    """One technique on one stream; lists have an entry for each seed."""

    processed: list[float] = field(default_factory=list)
    """Tweets in 40 minutes."""
    processed_skewed: list[float] = field(default_factory=list)
    """Tweets per second in the intervals in which the periodic stream has the high exponent."""
    processed_even: list[float] = field(default_factory=list)
    """And in the others."""
    score: list[float] = field(default_factory=list)
    """Mean relative standard deviation of the engines' loads, in percent."""
    score_skewed: list[float] = field(default_factory=list)
    rebalances: list[float] = field(default_factory=list)
    moved_keys: list[float] = field(default_factory=list)
    """Part of the keys that a rebalance moves, in the mean."""
    moved_keys_most: list[float] = field(default_factory=list)
    moved_tweets: list[float] = field(default_factory=list)
    """Tweets that a rebalance moves, in the mean."""
    unsteady: list[float] = field(default_factory=list)
    """Standard deviation of the throughput over its mean."""
    course: list[tuple[float, float]] = field(default_factory=list)
    """Seconds and tweets per second, of the first seed."""

    def add(self, result: Result) -> None:
        """What one more seed found."""
        start_s, seconds = result.column("start_s"), result.column("seconds")
        done = result.column("processed").sum(axis=1)
        high = np.array([skewed(at_s) for at_s in start_s])
        score, moved = result.column("imb_score"), result.column("moved_keys") / KEYS
        planned = moved > 0
        self.processed.append(float(done.sum()))
        self.processed_skewed.append(_rate(done, seconds, high))
        self.processed_even.append(_rate(done, seconds, ~high))
        self.score.append(float(score.mean()))
        self.score_skewed.append(float(score[high].mean()))
        self.rebalances.append(float(planned.sum()))
        self.moved_keys.append(float(moved[planned].mean()) if planned.any() else 0.0)
        self.moved_keys_most.append(float(moved.max()))
        tweets = result.column("migrated_bytes") / TWEET_BYTES
        self.moved_tweets.append(float(tweets[planned].mean()) if planned.any() else 0.0)
        self.unsteady.append(float((done / seconds).std() / (done / seconds).mean()))
        if not self.course:
            self.course = list(zip(start_s.tolist(), (done / seconds).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Compared:
    """All techniques on one stream."""

    order: str
    seeds: int
    thinned: int
    """Each simulated tweet stands for so many."""
    techniques: Mapping[str, Technique]

    def of(self, name: str, figure: str) -> Sequence[float]:
        """One figure of one technique, seed by seed."""
        values: Sequence[float] = getattr(self.techniques[name], figure)
        return values

    def over(self, figure: str, one: str, other: str) -> Rounds:
        """The ratio of one figure of two techniques, seed by seed."""
        return ratios(self.of(one, figure), self.of(other, figure))


def seeds(lab: Lab) -> int:
    """How many streams each technique is run on."""
    return lab.pick(quick=1, small=10, full=30)


def thinned(lab: Lab) -> int:
    """How many tweets of the paper a simulated one stands for."""
    return lab.pick(quick=32, small=8, full=1)


def compared(lab: Lab, order: str) -> Compared:
    """Every technique on the streams of one order, simulated once for all experiments."""

    def simulate() -> Compared:
        found = {name: Technique() for name in TECHNIQUES}
        for seed in range(seeds(lab)):
            lab.say(f"{order}, seed {seed}")
            intervals = stream(order, seed, thinned(lab))
            for name, (planner, engines) in TECHNIQUES.items():
                result = run(intervals, cluster(engines), balancing(planner), until_s=DURATION_S)
                found[name].add(result)
        return Compared(order, seeds(lab), thinned(lab), found)

    return lab.once(f"dlb {order}", simulate)


def balancing(planner: str) -> Balancing:
    """How the paper's Splitter uses a planner."""
    return Balancing(
        planner,
        theta=0.0,
        window=None,
        load_intervals=LOAD_INTERVALS,
        options={"theta_percent": SCORE} if planner.startswith("dlb") else {},
        protocol=Splitter(READ_BYTES_S),
        above_score=SCORE,
    )


def _rate(
    done: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64], when: npt.NDArray[np.bool_]
) -> float:
    return float(done[when].sum() / seconds[when].sum()) if when.any() else 0.0
