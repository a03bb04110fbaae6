"""What was measured as figures, each beside its bar if it has one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ckpt_bench.interleaved import Share, quartiles
from ckpt_bench.rebalance import optimum, race
from ckpt_bench.rebalance.growth import Grown, exponent
from ckpt_bench.rebalance.optimum import Answers
from ckpt_bench.rebalance.race import Round


@dataclass(frozen=True, slots=True)
class Limit:
    """A bar: a ratio that has to be reached, or with `at_most` one that may not be exceeded."""

    bar: float
    stretch: float | None = None
    at_most: bool = False

    def kept(self, value: float) -> bool:
        """Whether the bar is kept."""
        return value <= self.bar if self.at_most else value >= self.bar

    def verdict(self, value: float) -> str:
        """For people."""
        if not self.kept(value):
            return "missed"
        if self.stretch is not None and Limit(self.stretch, None, self.at_most).kept(value):
            return f"met, and {self.stretch:g}"
        return "met"


FASTER = Limit(8.0, 20.0)
LESS_STATE = Limit(1.5, 2.0)
NEVER_MORE = Limit(1.0)
SORTS = Limit(150 / 45, at_most=True)
"""150 ms for a million keys, where one argsort of them takes 45 ms."""
NEAR_OPTIMUM, NEAR_OPTIMUM_P95 = Limit(1.02, 1.01, at_most=True), Limit(1.10, at_most=True)
TIGHT, TIGHT_FAILED = Limit(1.05, at_most=True), Limit(5.0, at_most=True)
BYTES = Limit(64.0, at_most=True)
LINEAR = Limit(1.1, at_most=True)
"""A growth exponent that counts as linear."""


@dataclass
class Found:
    """What was measured so far: also if that was interrupted."""

    rounds: list[Round] = field(default_factory=list)
    answers: list[Answers] = field(default_factory=list)
    grown: list[Grown] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `judged` says whether the sizes are those of the bar."""

    part: str
    where: str
    what: str
    value: float
    q1: float
    q3: float
    count: int
    limit: Limit | None
    judged: bool

    @property
    def met(self) -> bool | None:
        """None: it has no bar, or is not judged."""
        return self.limit.kept(self.value) if self.limit is not None and self.judged else None

    @property
    def verdict(self) -> str:
        """For people."""
        if self.limit is None:
            return "-"
        return self.limit.verdict(self.value) if self.judged else "not judged"

    def document(self) -> dict[str, object]:
        """As JSON can hold it."""
        limit = self.limit
        return {
            "part": self.part,
            "where": self.where,
            "what": self.what,
            "value": self.value,
            "q1": self.q1,
            "q3": self.q3,
            "count": self.count,
            "bar": None if limit is None else limit.bar,
            "stretch": None if limit is None else limit.stretch,
            "at_most": None if limit is None else limit.at_most,
            "met": self.met,
        }


class _Figures:
    """Collects the figures of one part."""

    def __init__(self, part: str, judged: bool) -> None:
        self.part, self.judged = part, judged
        self.found: list[Figure] = []

    def add(self, where: str, what: str, values: Sequence[float], limit: Limit | None = None) -> None:
        """The median of some values with its quartiles; nothing, if there are none."""
        if values:
            self.add_share(where, what, quartiles(values), len(values), limit)

    def add_share(self, where: str, what: str, share: Share, count: int, limit: Limit | None = None) -> None:
        """A figure whose spread is known."""
        value, q1, q3 = (float(f"{each:.4g}") for each in (share.middle, share.low, share.high))
        self.found.append(Figure(self.part, where, what, value, q1, q3, count, limit, self.judged))


def figures_of(found: Found, *, judged: bool) -> list[Figure]:
    """Everything that was measured; `judged`: the sizes are those of the bars."""
    parts = [_Figures(part, judged) for part in ("race", "optimum", "growth")]
    for where in dict.fromkeys(each.setting.name for each in found.rounds):
        _of_a_race(parts[0], where, [each for each in found.rounds if each.setting.name == where])
    for tight in (False, True):
        _of_problems(parts[1], tight, [each for each in found.answers if each.tight == tight])
    for series in dict.fromkeys(each.series for each in found.grown):
        _of_a_series(parts[2], series, [each for each in found.grown if each.series == series])
    return [figure for part in parts for figure in part.found]


def _of_a_race(to: _Figures, where: str, rounds: Sequence[Round]) -> None:
    for name in race.PLANNERS:
        turns = [each.turns[name] for each in rounds]
        to.add(where, f"{name}: plan, ms", [1000 * turn.plan_s for turn in turns])
        to.add(where, f"{name}: state that moves, %", [100 * turn.moved for turn in turns])
        to.add(where, f"{name}: entries of the table", [float(turn.table) for turn in turns])
        broken = _percent([not turn.keeps_the_table for turn in turns])
        outside = _percent([turn.status.value == "best effort" for turn in turns])
        to.add_share(where, f"{name}: tables that break their limit, %", broken, len(turns))
        to.add_share(where, f"{name}: plans with a load outside its limit, %", outside, len(turns))
    to.add(where, "one argsort, ms", [1000 * each.sort_s for each in rounds])
    pairs = [(each.turns["lag"], each.turns["mixed"]) for each in rounds]
    to.add(where, "lag: state over the lower bound", [our.moved / our.bound for our, _ in pairs if our.bound])
    over_sort = [each.turns["lag"].plan_s / each.sort_s for each in rounds]
    to.add(where, "lag: time over one argsort", over_sort, SORTS)
    to.add(where, "time of mixed over lag, own ways", [b.plan_s / a.plan_s for a, b in pairs], FASTER)
    kept = [b.moved / a.moved for a, b in pairs if a.moved and b.keeps_the_table]
    to.add(where, "state of mixed over lag, own ways", kept, LESS_STATE)
    same = [(each.turns["lag"], each.asked) for each in rounds if each.asked is not None]
    to.add(where, "time of mixed over lag, same problems", [b.plan_s / a.plan_s for a, b in same], FASTER)
    kept = [b.moved / a.moved for a, b in same if a.moved and b.keeps_the_table]
    to.add(where, "state of mixed over lag, same problems", kept, LESS_STATE)
    if kept:
        least = Share(min(kept), min(kept), min(kept))
        to.add_share(where, "the least of these: never more", least, len(kept), NEVER_MORE)
    broken = _percent([not b.keeps_the_table for _, b in same])
    to.add_share(where, "mixed: tables that break their limit, same problems, %", broken, len(same))


def _of_problems(to: _Figures, tight: bool, answers: Sequence[Answers]) -> None:
    where = f"30 to 60 keys, table {'tight' if tight else 'of any size'}"
    for name in optimum.PLANNERS:
        ratios = [ratio for each in answers if (ratio := each.ratios[name]) is not None]
        if not ratios:
            continue
        ours, share = name == "lag", quartiles(ratios)
        mean = Share(share.low, statistics.fmean(ratios), share.high)
        limit = TIGHT if tight else NEAR_OPTIMUM
        to.add_share(
            where, f"{name}: state over the optimum, mean", mean, len(ratios), limit if ours else None
        )
        p95 = ratios[0] if len(ratios) == 1 else statistics.quantiles(ratios, n=20, method="inclusive")[-1]
        limit95 = NEAR_OPTIMUM_P95 if ours and not tight else None
        to.add_share(
            where, f"{name}: state over the optimum, p95", Share(p95, p95, p95), len(ratios), limit95
        )
        failed = _percent([each.ratios[name] is None for each in answers])
        allowed = TIGHT_FAILED if ours and tight else None
        to.add_share(where, f"{name}: limits not kept, %", failed, len(answers), allowed)


def _of_a_series(to: _Figures, series: str, grown: Sequence[Grown]) -> None:
    ours = grown[0].planner == "lag"
    for each in grown:
        where = f"{each.keys:,} keys"
        to.add(where, f"{series}: plan, ms", [1000 * s for s in each.plan_s])
        weight = Share(each.bytes_per_key, each.bytes_per_key, each.bytes_per_key)
        what = f"{series}: bytes per key beyond the input"
        to.add_share(where, what, weight, len(each.plan_s), BYTES if ours else None)
    if len(grown) > 1:
        slope = exponent([(each.keys, statistics.median(each.plan_s)) for each in grown])
        where = f"{grown[0].keys:,} to {grown[-1].keys:,} keys"
        share, limit = Share(slope, slope, slope), LINEAR if ours else None
        to.add_share(where, f"{series}: growth exponent", share, len(grown), limit)


def _percent(which: Sequence[bool]) -> Share:
    share = 100 * sum(which) / len(which)
    return Share(share, share, share)
