"""Ratios that noise hardly touches: stores take turns, and each round is compared with its own.

Whatever else the machine does hits all stores alike. The median of the paired ratios counts, and the
quartiles say how far to trust it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Median and quartiles, for instance of the ratio of two throughputs, pair by pair."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} [{self.low:.2f} {self.high:.2f}]"


def paired(baseline: Mapping[int, float], other: Mapping[int, float]) -> Share:
    """The baseline's throughput over the other's, from the seconds of rounds that both took part in.

    The first tenth of these rounds warms up. Above 1, the baseline is faster.

    Examples
    --------
    >>> print(paired({0: 1.0, 1: 1.0, 2: 1.0}, {0: 2.0, 2: 4.0}))
    3.00 [2.50 3.50]
    """
    ratios = [other[number] / baseline[number] for number in measured(sorted(other.keys() & baseline.keys()))]
    return quartiles(ratios)


def quartiles(values: Sequence[float]) -> Share:
    """Median and quartiles of some figures, or of the only one.

    Examples
    --------
    >>> print(quartiles([1.0, 2.0, 3.0, 4.0, 5.0]))
    3.00 [2.00 4.00]
    """
    if len(values) == 1:
        return Share(values[0], values[0], values[0])
    return Share(*statistics.quantiles(values, n=4, method="inclusive"))


def measured(rounds: Sequence[int]) -> Sequence[int]:
    """The rounds that count, of those that a store took part in."""
    return rounds[len(rounds) // 10 :]
