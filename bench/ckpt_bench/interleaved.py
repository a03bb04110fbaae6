"""Ratios that noise hardly touches: stores take turns, and each round is compared with its own.

Whatever else the machine does hits all stores alike. The median of the paired ratios counts, and the
quartiles say how far to trust it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

WorkT = TypeVar("WorkT")


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the best peer's throughput is reached: median and quartiles."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} [{self.low:.2f} {self.high:.2f}]"


def interleaved(
    calls: Mapping[str, Callable[[WorkT], object]], work: Iterable[WorkT]
) -> dict[str, list[float]]:
    """Give each piece of work to each call, in an order that changes; the seconds of each, by name.

    Examples
    --------
    >>> took = interleaved({"ours": len, "theirs": sorted}, [[3, 1, 2], [2, 1]])
    >>> {name: len(times) for name, times in took.items()}
    {'ours': 2, 'theirs': 2}
    """
    names = list(calls)
    took: dict[str, list[float]] = {name: [] for name in names}
    for number, piece in enumerate(work):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            started_s = time.perf_counter()
            calls[name](piece)
            took[name].append(time.perf_counter() - started_s)
    return took


def share(took: Mapping[str, Sequence[float]], ours: str) -> Share:
    """How much of the throughput of the best of the others ours reaches; the first tenth warms up.

    Examples
    --------
    >>> print(share({"ours": [2.0, 2.0, 2.0], "a": [1.0, 1.0, 1.0], "b": [9.0, 9.0, 9.0]}, "ours"))
    0.50 [0.50 0.50]
    """
    best = min((took[name] for name in took if name != ours), key=statistics.median)
    ratios = [theirs / own for theirs, own in zip(best, took[ours], strict=True)]
    return Share(*statistics.quantiles(ratios[len(ratios) // 10 :], n=4))
