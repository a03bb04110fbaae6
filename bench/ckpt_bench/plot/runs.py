"""The page of one run of a benchmark: what came out, how latencies are distributed, how it went over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt.plot.charts import over_time, percentiles, trade_off
from ckpt.plot.pages import Section, page
from ckpt.plot.plane import Event, Point
from ckpt.plot.scales import duration

_SHOWN = (50.0, 90.0, 99.0, 99.9, 100.0)
_SHOWN_EVENTS = 12


@dataclass(frozen=True, slots=True)
class Operation:
    """The latencies of one operation."""

    name: str
    count: int
    errors: int
    mean_us: float
    percentiles: Sequence[tuple[float, float]]
    """(percentile, µs), ascending, the last one 100; the more of them, the finer the curve; may be empty."""


def run_page(
    title: str,
    about: str,
    *,
    summary: Sequence[tuple[str, str]],
    operations: Sequence[Operation],
    throughput: Mapping[str, Sequence[tuple[float, float]]],
    against: Mapping[str, Sequence[Point]] | None = None,
    events: Sequence[Event] = (),
    faults: Sequence[str] = (),
    interrupted: str = "",
    figures: Sequence[Sequence[str]] = (),
) -> str:
    """A whole HTML document on one run, from plain data.

    Parameters
    ----------
    summary
        What a reader wants to know first, as (what, value) in words: throughput, time, records, errors.
    operations
        Latencies by operation, in the order to show.
    throughput
        Operation, or a name for their sum, → (seconds since the start, operations per second). A second in
        which nothing ended is to be there with 0, or the line passes over it.
    against
        Operation → (operations per second, mean latency in µs) in parts of the run.
    events
        What happened meanwhile: GC, CRASH, RECOVER.
    faults
        What went wrong, in words; shown first.
    interrupted
        How far the run came, if it was ended early.
    figures
        Rows of (metric, measurement, value) as the command prints them, for a table at the end.

    Examples
    --------
    >>> html = run_page(
    ...     "run", "workload a on log:///var/ckpt",
    ...     summary=[("throughput", "1,234 operations/s")],
    ...     operations=[Operation("READ", 500, 0, 12.5, [(50.0, 10.0), (99.0, 40.0), (100.0, 900.0)])],
    ...     throughput={"all": [(0, 1200), (1, 1268)]},
    ...     events=[Event(0.5, "GC", 0.8)],
    ... )
    >>> html.count("<section>"), "40 µs" in html, "GC" in html
    (3, True, True)
    """
    sections = [Section("Summary", _said(faults, interrupted), "", ["", ""], [list(row) for row in summary])]
    curves = {each.name: _curve(each) for each in operations if each.percentiles}
    # an operation has the same colour and mark in all charts
    order = {each.name: number for number, each in enumerate(operations)}
    throughput = dict(sorted(throughput.items(), key=lambda item: order.get(item[0], len(order))))
    if operations:
        sections.append(
            Section(
                "Latency",
                "How long operations took, up to the slowest: so many per cent of them took at most so long.",
                percentiles("Latency by percentile", curves) if curves else "",
                ["operation", "count", "errors", "mean", *(_named(p) for p in _SHOWN)],
                [_latency_row(each) for each in operations],
            )
        )
    if throughput:
        sections.append(
            Section(
                "Throughput over time",
                f"Operations that ended in each second{'; marks say what else happened' if events else ''}.",
                over_time("Throughput over time", "operations/s", throughput, events),
                ["event", "times", "seconds since the start"],
                _event_rows(events),
            )
        )
    if against:
        in_order = sorted(against.items(), key=lambda item: order.get(item[0], len(order)))
        sections.append(
            Section(
                "Throughput against latency",
                "Mean latency by operations per second: one point for each part of the run.",
                trade_off("Throughput against latency", "operations/s", "mean latency", dict(in_order)),
                [],
                [],
            )
        )
    if figures:
        header = ["metric", "measurement", "value"]
        sections.append(Section("All figures", "As the command prints them.", "", header, figures))
    return page(title, about, sections)


def _said(faults: Sequence[str], interrupted: str) -> str:
    if interrupted:
        return f"Interrupted: {interrupted}. {_said(faults, '') if faults else 'Nothing failed until then.'}"
    if not faults:
        return "Nothing failed."
    said = "; ".join(faults)
    return f"Not everything went well: {said}{'' if said.endswith(('.', '?', '!')) else '.'}"


def _named(percentile: float) -> str:
    return "max" if percentile >= 100 else f"{percentile:g} %"


def _curve(operation: Operation) -> list[tuple[float, float]]:
    """Without percentiles that so few operations cannot tell from the greatest value."""
    finest = 100 - 100 / max(operation.count, 1)
    return [(at, us) for at, us in operation.percentiles if at <= finest or at >= 100]


def _latency_row(operation: Operation) -> list[str]:
    cells = [
        next((duration(us) for at, us in operation.percentiles if at >= percentile), "-")
        for percentile in _SHOWN
    ]
    mean = duration(operation.mean_us) if operation.count else "-"
    return [operation.name, f"{operation.count:,}", f"{operation.errors:,}", mean, *cells]


def _event_rows(events: Sequence[Event]) -> list[list[str]]:
    by_name: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.at_s):
        by_name.setdefault(event.name, []).append(event)
    rows = []
    for name, found in by_name.items():
        at = [
            f"{e.at_s:,.1f}" if e.until_s is None else f"{e.at_s:,.1f} to {e.until_s:,.1f}"
            for e in found[:_SHOWN_EVENTS]
        ]
        rows.append([name, f"{len(found):,}", ", ".join(at) + (", …" if len(found) > _SHOWN_EVENTS else "")])
    return rows
