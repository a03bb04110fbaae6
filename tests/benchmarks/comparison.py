"""Which benchmarks are slower than in the runs before, beyond their spread; nothing is measured here.

The spread has two parts: that of the rounds of one run, and how far runs of the same code lie apart, which on
a shared machine is more. So a run is compared with several, whose spread is from the lowest of their lower
quartiles to the highest of their upper ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ckpt_bench.interleaved import Share
from ckpt_bench.plot import duration

Run = Mapping[str, Any]
"""A stored run, as pytest-benchmark has it in a file."""
RUNS = 5
"""How many runs before this one count."""


@dataclass(frozen=True, slots=True)
class Change:
    """One benchmark before and now, in seconds for each call."""

    group: str
    name: str
    before: Share
    now: Share

    @property
    def mark(self) -> str:
        """`slower` or `faster` where the quartiles do not overlap, else nothing."""
        if self.now.low > self.before.high:
            return "slower"
        return "faster" if self.now.high < self.before.low else ""


def comparable(stored: Sequence[Run], machine: Mapping[str, Any]) -> list[Run]:
    """The last few of these runs, oldest first, that were on this machine."""
    return [run for run in stored if run["machine_info"] == machine][-RUNS:]


def changes(rows: Iterable[Mapping[str, Any]], runs: Sequence[Run]) -> list[Change]:
    """What is in the rows of this run and in a run before it."""
    before: dict[str, list[Share]] = {}
    for run in runs:
        for benchmark in run["benchmarks"]:
            before.setdefault(benchmark["fullname"], []).append(_share(benchmark["stats"]))
    return [
        Change(
            row["group"] or "",
            row["name"].removeprefix("test_"),
            _spread(before[row["fullname"]]),
            _share(row),
        )
        for row in rows
        if row["fullname"] in before
    ]


def report(found: Sequence[Change], runs: Sequence[Run]) -> list[str]:
    """Before and now beside each other, table by table, and at the end how many marks there are."""
    if not runs:
        return ["no run on this machine is stored yet; the next one will be compared with this one"]
    last = runs[-1]
    lines = [
        f"runs before: {len(runs)}, the last one of {last['datetime'][:19]}, commit "
        f"{last['commit_info']['id'][:10]}; median [lower quartile, upper quartile]"
    ]
    width = max((len(change.name) for change in found), default=0)
    for group in dict.fromkeys(change.group for change in found):
        lines.append(group)
        lines += [_line(change, width) for change in found if change.group == group]
    marks = [change.mark for change in found]
    lines.append(
        f"of {len(found)} benchmarks {marks.count('slower')} slower, {marks.count('faster')} faster; "
        "of the others the quartiles overlap"
    )
    return lines


def _line(change: Change, width: int) -> str:
    ratio = change.now.middle / change.before.middle
    before, now = _shown(change.before), _shown(change.now)
    return f"  {change.name:<{width}}  {before:>31} -> {now:<31} {ratio:6.2f}  {change.mark}".rstrip()


def _spread(shares: Sequence[Share]) -> Share:
    return Share(
        min(share.low for share in shares),
        median(share.middle for share in shares),
        max(share.high for share in shares),
    )


def _share(stats: Mapping[str, Any]) -> Share:
    return Share(stats["q1"], stats["median"], stats["q3"])


def _shown(share: Share) -> str:
    low, middle, high = (duration(seconds * 1e6) for seconds in (share.low, share.middle, share.high))
    return f"{middle} [{low}, {high}]"
