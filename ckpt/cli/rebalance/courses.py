"""How simulated runs look: a row of a table for each planner, and a page with their courses over time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ckpt.plot import Section, over_time, page
from ckpt.plot.scales import number
from ckpt.rebalance.loads import F64
from ckpt.rebalance.simulate import Result

HEADER = (
    *("planner", "skew", "most", "migrated", "keys moved", "table", "plan ms"),
    *("tuples/s", "ms", "p99 ms", "slowest ms"),
)
"""`skew` is the load of the fullest instance over the mean, in the mean of the intervals; `migrated` the part
of all state that moves after an interval; `slowest` the instance with the highest mean latency."""

_COURSES: Sequence[tuple[str, str, str, str, float]] = (
    ("Skew", "Load of the fullest instance over the mean.", "skew", "of the mean", 1.0),
    ("Migrated state", "Part of all state that moves after an interval.", "migrated_share", "%", 100.0),
    ("Throughput", "What all instances complete.", "throughput", "tuples/s", 1.0),
    ("Latency", "Mean from the source to the end of processing.", "latency_s", "ms", 1000.0),
    ("Latency of the slowest instance", "That with the highest mean.", "latency_slowest_s", "ms", 1000.0),
    ("Routing table", "Keys with a place of their own.", "table_size", "entries", 1.0),
    ("Tuples that wait", "In queues, or for their keys to resume.", "pending", "tuples", 1.0),
)
"""Title, what it is, column, unit, factor."""


def row(result: Result) -> Sequence[object]:
    """A run in figures."""
    skew, share = result.column("skew"), result.column("migrated_share")
    plans = result.column("plan_s")
    done = result.column("processed").sum(axis=1)
    mean_s = _mean(result.column("latency_s"), done)
    return (
        result.planner,
        f"{skew.mean():.3f}",
        f"{skew.max():.3f}",
        f"{share.mean():.2%}",
        f"{result.column('moved_keys').mean():.1f}",
        result.records[-1].table_size,
        f"{1000 * plans.mean():.1f}",
        f"{result.processed / result.seconds:,.0f}",
        f"{1000 * mean_s:,.1f}",
        f"{1000 * _mean(result.column('latency_p99_s'), done):,.1f}",
        f"{1000 * _mean(result.column('latency_slowest_s'), done):,.1f}",
    )


def html(results: Sequence[Result]) -> str:
    """A page with one chart for each figure, one line for each planner."""
    rows = [[str(cell) for cell in row(result)] for result in results]
    sections = [Section("Planners", "Means over all intervals.", "", HEADER, rows)]
    for title, about, column, unit, factor in _COURSES:
        courses = {result.planner: _course(result, column, factor) for result in results}
        rows = []
        for name, points in courses.items():
            values = [value for _, value in points]
            rows.append([name, *(number(v) for v in (min(values), fmean(values), max(values)))])
        header = ["planner", f"least, {unit}", "mean", "most"]
        sections.append(Section(title, about, over_time(title, unit, courses), header, rows))
    intervals, seconds = len(results[0].records), results[0].seconds
    return page(
        "ckpt rebalance simulate", f"{intervals} intervals, {seconds:,.0f} simulated seconds.", sections
    )


def _course(result: Result, column: str, factor: float) -> list[tuple[float, float]]:
    values = factor * result.column(column).astype(np.float64)
    return list(zip(result.column("start_s").tolist(), values.tolist(), strict=True))


def _mean(values: F64, weights: F64) -> float:
    """The mean over tuples, not over intervals; 0 if none was completed."""
    return float((values * weights).sum() / weights.sum()) if weights.sum() > 0 else 0.0
