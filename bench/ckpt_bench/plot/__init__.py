"""What benchmarks draw with: the charts and pages of `ckpt.plot`, and the page of one run."""

from __future__ import annotations

from ckpt.plot import (
    Bar,
    Chart,
    Event,
    Point,
    Section,
    bars,
    duration,
    lines,
    over_time,
    page,
    percentiles,
    trade_off,
)
from ckpt_bench.plot.runs import Operation, run_page

__all__ = [
    "Bar",
    "Chart",
    "Event",
    "Operation",
    "Point",
    "Section",
    "bars",
    "duration",
    "lines",
    "over_time",
    "page",
    "percentiles",
    "run_page",
    "trade_off",
]
