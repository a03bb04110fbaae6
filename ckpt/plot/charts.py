"""The kinds of chart: bars, pairs of them, lines, tails of distributions, courses over time, trade-offs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt.plot.drawing import NARROW, Chart, colour, shortened, text, text_width
from ckpt.plot.plane import Axis, Event, Point, plane
from ckpt.plot.scales import Show, duration, elapsed, from_zero, logarithmic, number, tail

_ROW, _BAR = 34, 16
_NARROW_ROW = 46
_HALF, _LEGEND = 9, 30
_MOST_LABEL = 290
_MOST_POINTS = 400

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Name → (x, y) of its points."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a bar chart; `low` and `high` are drawn as a whisker."""

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of a chart of two bars each; None is no bar. `limit` is drawn as a line across both."""

    label: str
    first: float | None
    second: float | None
    text: str
    limit: float | None = None


# -- bars ----------------------------------------------------------------------------------------


def bars(title: str, rows: Sequence[Bar]) -> Chart:
    """Horizontal bars from zero, one colour each; the title is for who cannot see them.

    Examples
    --------
    >>> chart = bars("batches", [Bar("ckpt", 2.0, "2 s"), Bar("default", 8.0, "8 s", 7.0, 9.0)])
    >>> chart.startswith("<svg"), chart.count("<rect"), chart.count('class="whisker"')
    (True, 2, 1)
    """
    most = max((max(row.value, row.high or 0) for row in rows), default=0) or 1
    labels = min(max((text_width(row.label) for row in rows), default=0), _MOST_LABEL) + 10
    values = max((text_width(row.text) for row in rows), default=0) + 10

    def draw(width: int) -> tuple[float, list[str]]:
        stacked = width == NARROW
        left = 1 if stacked else labels
        scale = (width - left - (4 if stacked else values)) / most
        height = _NARROW_ROW if stacked else _ROW
        marks = []
        for at, row in enumerate(rows):
            middle = at * height + (height - 12 if stacked else height / 2)
            if stacked:
                room = width - text_width(row.text) - 12
                marks.append(text(left, middle - 15, shortened(row.label, room)))
                marks.append(text(width - 2, middle - 15, row.text, anchor="end"))
            else:
                marks.append(text(left - 10, middle + 4, shortened(row.label, labels - 10), anchor="end"))
                end = left + max(row.value, row.high or 0) * scale
                marks.append(text(end + 8, middle + 4, row.text))
            marks += _bar(row, at, left, middle, scale)
        marks.append(f'<path class="axis" d="M{left:.1f} 0V{len(rows) * height}"/>')
        return len(rows) * height, marks

    return Chart.drawn(title, "; ".join(f"{row.label}: {row.text}" for row in rows), draw)


def _bar(row: Bar, number: int, left: float, middle: float, scale: float) -> Iterator[str]:
    yield (
        f'<rect x="{left:.1f}" y="{middle - _BAR / 2:.0f}" width="{max(row.value * scale, 1):.1f}" '
        f'height="{_BAR}" rx="2" class="fill{colour(number)}"/>'
    )
    if row.low is not None and row.high is not None:
        low, high = (left + max(value, 0) * scale for value in (row.low, row.high))
        yield (
            f'<path class="whisker" d="M{low:.1f} {middle:.0f}H{high:.1f}M{low:.1f} {middle - 4:.0f}v8'
            f'M{high:.1f} {middle - 4:.0f}v8"/>'
        )


def pairs(title: str, names: tuple[str, str], rows: Sequence[Pair], *, limit: str = "") -> Chart:
    """Two horizontal bars from zero for each row, the first above the second; a legend says which is which.

    Examples
    --------
    >>> chart = pairs("loads", ("before", "after"), [Pair("0", 9.0, 5.0, "9 to 5", 6.0)], limit="limit")
    >>> chart.count("<rect"), chart.count('class="event"'), "9 to 5" in chart
    (4, 2, True)
    """
    most = max((max(row.first or 0, row.second or 0, row.limit or 0) for row in rows), default=0) or 1
    labels = min(max((text_width(row.label) for row in rows), default=0), _MOST_LABEL) + 10
    values = max((text_width(row.text) for row in rows), default=0) + 10

    def draw(width: int) -> tuple[float, list[str]]:
        stacked = width == NARROW
        left = 1 if stacked else labels
        right = width - (4 if stacked else values)
        scale = (right - left) / most
        height = _NARROW_ROW if stacked else _ROW
        marks, top = _legend_of_pairs(names, limit), 0.0
        for at, row in enumerate(rows):
            top = _LEGEND + at * height
            middle = top + (height - 14 if stacked else height / 2)
            if stacked:
                room = width - text_width(row.text) - 12
                marks.append(text(left, middle - 15, shortened(row.label, room)))
                marks.append(text(width - 2, middle - 15, row.text, anchor="end"))
            else:
                marks.append(text(left - 10, middle + 4, shortened(row.label, labels - 10), anchor="end"))
                marks.append(text(width - 2, middle + 4, row.text, anchor="end"))
            for which, value in enumerate((row.first, row.second)):
                if value is not None:
                    marks.append(_half(which, left, middle - _HALF + which * _HALF, value * scale))
            if row.limit is not None:
                x = left + row.limit * scale
                marks.append(f'<path class="event" d="M{x:.1f} {middle - 10:.1f}v20"/>')
        bottom = _LEGEND + len(rows) * height
        marks.append(f'<path class="axis" d="M{left:.1f} {_LEGEND}V{bottom}"/>')
        return bottom, marks

    return Chart.drawn(title, "; ".join(f"{row.label}: {row.text}" for row in rows), draw)


def _legend_of_pairs(names: tuple[str, str], limit: str) -> list[str]:
    marks, x = [], 2.0
    for which, name in enumerate(names):
        marks.append(_half(which, x, 4 + which * _HALF, 22))
        marks.append(text(x + 28, 14, name))
        x += 28 + text_width(name) + 16
    if limit:
        marks += [f'<path class="event" d="M{x + 4:.1f} 2v16"/>', text(x + 12, 14, limit)]
    return marks


def _half(which: int, x: float, y: float, width: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{_HALF - 1}" '
        f'class="fill{colour(1 - which)}"/>'
    )


# -- what has two axes ---------------------------------------------------------------------------


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Series,
    *,
    x_log: bool = True,
    y_log: bool = False,
    x_text: Show = number,
    y_text: Show = number,
) -> Chart:
    """One line for each series. A linear axis begins at zero; a logarithmic one at the least value above it.

    Examples
    --------
    >>> chart = lines("growth", "keys", "ms", {"ckpt": [(1e5, 3.0), (1e6, 3.1)], "default": [(1e5, 40.0)]})
    >>> chart.count('class="curve'), chart.count('class="marker')
    (1, 3)
    """
    xs, ys = _values(series)
    return plane(
        title,
        Axis(x_label, logarithmic(xs, x_text, exact=True) if x_log else from_zero(max(xs), x_text), x_text),
        Axis(y_label, logarithmic(ys, y_text) if y_log else from_zero(max(ys), y_text), y_text),
        {name: [Point(x, y) for x, y in sorted(points)] for name, points in series.items()},
    )


def percentiles(title: str, series: Series, *, y_label: str = "latency", y_text: Show = duration) -> Chart:
    """How long the slowest took: (percentile, µs) of each series over 1/(1-p), both axes logarithmic.

    The percentile 100 is the greatest value, drawn at the end. So a tail that is ten times as rare has as
    much room as the one before it.

    Examples
    --------
    >>> chart = percentiles("latency", {"READ": [(50, 90.0), (99, 210.0), (100, 4000.0)]})
    >>> "99 %" in chart, "max" in chart, "READ" in chart
    (True, True, True)
    """
    xs, ys = _values(series)
    most = max((x for x in xs if x < 100), default=90.0)
    return plane(
        title,
        Axis(
            "percentile of the operations", tail(max(most, 90.0)), lambda x: "max" if x >= 100 else f"{x:g} %"
        ),
        Axis(y_label, logarithmic(ys, y_text), y_text),
        {name: [Point(x, y) for x, y in sorted(points)] for name, points in series.items()},
    )


def over_time(
    title: str, y_label: str, series: Series, events: Sequence[Event] = (), *, y_text: Show = number
) -> Chart:
    """(seconds since the start, figure) of each series from zero, with events as labelled vertical marks.

    Long series are averaged over equal spans, so that a chart of a day is not larger than one of an hour.

    Examples
    --------
    >>> chart = over_time("throughput", "ops/s", {"all": [(0, 90.0), (1, 20.0)]}, [Event(1.2, "GC")])
    >>> chart.count('class="event"'), "GC" in chart
    (1, True)
    """
    thinned = {name: _thinned(sorted(points)) for name, points in series.items()}
    xs, ys = _values(thinned)
    end_s = max([*xs, *(event.until_s or event.at_s for event in events)])
    scale, unit = elapsed(end_s)
    return plane(
        title,
        Axis(f"{unit} since the start", scale, lambda x: f"{x:,.4g} s"),
        Axis(y_label, from_zero(max(ys), y_text), y_text),
        {name: [Point(x, y) for x, y in points] for name, points in thinned.items()},
        events,
    )


def trade_off(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[Point]],
    *,
    y_log: bool = True,
    x_text: Show = number,
    y_text: Show = duration,
) -> Chart:
    """One figure against another, such as latency against throughput: points in the order in which they are
    given, joined where a series has several, each with its text.

    Examples
    --------
    >>> reads = [Point(900, 1100.0, "1 thread"), Point(3200, 2500.0, "8 threads")]
    >>> chart = trade_off("reads", "ops/s", "latency", {"log": reads, "redis": [Point(500, 2000.0)]})
    >>> chart.count('class="curve'), "8 threads" in chart
    (1, True)
    """
    xs, ys = _values({name: [(point.x, point.y) for point in points] for name, points in series.items()})
    return plane(
        title,
        Axis(x_label, from_zero(max(xs), x_text), x_text),
        Axis(y_label, logarithmic(ys, y_text) if y_log else from_zero(max(ys), y_text), y_text),
        series,
    )


def _values(series: Series) -> tuple[list[float], list[float]]:
    """All x and all y; never none, so that an empty chart has axes too."""
    points = [point for each in series.values() for point in each] or [(1.0, 1.0)]
    return [x for x, _ in points], [y for _, y in points]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = math.ceil(len(points) / _MOST_POINTS) or 1
    spans = [points[at : at + size] for at in range(0, len(points), size)]
    return [(span[0][0], sum(y for _, y in span) / len(span)) for span in spans]
