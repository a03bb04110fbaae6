"""Charts as SVG and pages that hold them: self-contained, readable in light and dark, without a script.

A chart says its figures in text beside its marks or below them, and tells its series apart by marker and dash
as well as by colour, so that it is complete without colour or a pointer. Everything is a pure function; what
the figures mean is for the caller to know.
"""

from __future__ import annotations

from ckpt.plot.charts import Bar, Pair, bars, lines, over_time, pairs, percentiles, trade_off
from ckpt.plot.drawing import Chart
from ckpt.plot.pages import Section, page
from ckpt.plot.plane import Event, Point
from ckpt.plot.scales import duration

__all__ = [
    "Bar",
    "Chart",
    "Event",
    "Pair",
    "Point",
    "Section",
    "bars",
    "duration",
    "lines",
    "over_time",
    "page",
    "pairs",
    "percentiles",
    "trade_off",
]
