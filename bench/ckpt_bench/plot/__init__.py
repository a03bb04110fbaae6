"""Charts as SVG and pages that hold them: self-contained, readable in light and dark, without a script.

A chart says its figures in text beside its marks or below them, and tells its series apart by marker and dash
as well as by colour, so that it is complete without colour or a pointer. Everything is a pure function.
"""

from __future__ import annotations

from ckpt_bench.plot.charts import Bar, bars, lines, over_time, percentiles, trade_off
from ckpt_bench.plot.drawing import Chart
from ckpt_bench.plot.pages import Section, page
from ckpt_bench.plot.plane import Event, Point
from ckpt_bench.plot.runs import Operation, run_page
from ckpt_bench.plot.scales import duration

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
