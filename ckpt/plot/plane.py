"""Series between two axes: ticks, legend, lines, marks and events, and texts that cover nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from ckpt.plot.drawing import NARROW, Chart, curve, event_dash, marker, shortened, text, text_width
from ckpt.plot.scales import Scale, Show

_PLOT_HEIGHT, _NARROW_PLOT_HEIGHT = 240, 220
_LINE = 20
_LANES = 3
_APART = 80
_MARKED_POINTS = 40


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement of two figures; the text says which, for example how many threads."""

    x: float
    y: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a run, such as GC or a crash; with `until_s` it took a while."""

    at_s: float
    name: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis is called, where values lie on it, and how one of them is written."""

    label: str
    scale: Scale
    show: Show


@dataclass(frozen=True, slots=True)
class _Area:
    """Where the data lie on the canvas."""

    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale

    def across(self, value: float) -> float:
        return self.left + self.x.place(value) * (self.right - self.left)

    def up(self, value: float) -> float:
        return self.bottom - self.y.place(value) * (self.bottom - self.top)


def plane(
    title: str,
    x: Axis,
    y: Axis,
    series: Mapping[str, Sequence[Point]],
    events: Sequence[Event] = (),
) -> Chart:
    """Series in a plane, each with its line and marks, with a legend above and events across."""
    about = "; ".join(
        f"{name}: {', '.join(_tip(x, y, point) for point in _ends(points))}"
        for name, points in series.items()
        if points
    )

    def draw(width: int) -> tuple[float, list[str]]:
        legend, below_legend = _legend(list(series), width)
        right = width - max(text_width(x.scale.ticks[-1][1]) / 2, 10) - 2
        left = max(text_width(name) for _, name in y.scale.ticks) + 10
        top = below_legend + _LINE + 6 + (_LANES * _LINE if events else 0)
        bottom = top + (_NARROW_PLOT_HEIGHT if width == NARROW else _PLOT_HEIGHT)
        area = _Area(left, right, top, bottom, x.scale, y.scale)
        marks = [
            *legend,
            text(2, below_legend + 12, y.label, kind="faint"),
            *_y_ticks(area),
            *_x_ticks(area),
            text((left + right) / 2, bottom + 40, x.label, anchor="middle", kind="faint"),
            *_events(area, events),
        ]
        for at, (name, points) in enumerate(series.items()):
            marks += _one_series(area, at, points, [f"{name}: {_tip(x, y, point)}" for point in points])
        marks += _point_texts(area, series.values(), right_end=width, free_from=text_width(y.label))
        return bottom + 48, marks

    return Chart.drawn(title, about, draw)


def _tip(x: Axis, y: Axis, point: Point) -> str:
    return f"{f'{point.text}, ' if point.text else ''}{y.show(point.y)} at {x.show(point.x)}"


def _ends(points: Sequence[Point]) -> Sequence[Point]:
    return points if len(points) <= 2 else (points[0], points[-1])


def _legend(names: Sequence[str], width: int) -> tuple[list[str], float]:
    """The names of the series with their marks, in as many lines as they need, and where those end."""
    marks, x, y = [], 2.0, 0.0
    for at, name in enumerate(names):
        shown = shortened(name, width - 50)
        needs = 34 + text_width(shown) + 12
        if x > 2 and x + needs > width:
            x, y = 2.0, y + _LINE
        marks.append(curve(at, [(x, y + 10), (x + 28, y + 10)], "legend"))
        marks.append(marker(at, x + 14, y + 10, kind="sample"))
        marks.append(text(x + 34, y + 14, shown))
        x += needs
    return marks, y + _LINE + 4 if names else 0.0


def _y_ticks(area: _Area) -> Iterator[str]:
    for value, name in area.y.ticks:
        at = area.up(value)
        yield f'<path class="axis" d="M{area.left:.1f} {at:.1f}H{area.right:.1f}"/>'
        yield text(area.left - 8, at + 4, name, anchor="end", kind="faint")


def _x_ticks(area: _Area) -> Iterator[str]:
    """The last tick is always named, others where there is room."""
    free_until = math.inf
    for value, name in reversed(area.x.ticks):
        at, half = area.across(value), text_width(name) / 2
        if at + half + 6 > free_until:
            continue
        free_until = at - half
        yield f'<path class="axis" d="M{at:.1f} {area.bottom:.1f}v5"/>'
        yield text(at, area.bottom + 20, name, anchor="middle", kind="faint")


def _events(area: _Area, events: Sequence[Event]) -> Iterator[str]:
    """A line for each event and a shade while it lasts; names where there is room, the rarest first."""
    kinds = list(dict.fromkeys(event.name for event in events))
    named = _named(area, events)
    for number, event in enumerate(events):
        at = area.across(event.at_s)
        tip = f"<title>{escape(event.name)} at {event.at_s:,.4g} s</title>"
        if event.until_s is not None:
            width = max(area.across(event.until_s) - at, 1)
            yield (
                f'<rect class="span" x="{at:.1f}" y="{area.top:.1f}" width="{width:.1f}" '
                f'height="{area.bottom - area.top:.1f}">{tip}</rect>'
            )
        top = area.top
        if number in named:
            start, lane = named[number]
            top = area.top - 8 - lane * _LINE
            yield text(start, top - 2, event.name, kind="happened")
        yield (
            f'<path class="event{" lasting" if event.until_s is not None else ""}" '
            f'stroke-dasharray="{event_dash(kinds.index(event.name))}" '
            f'd="M{at:.1f} {top:.1f}V{area.bottom:.1f}">{tip}</path>'
        )


def _named(area: _Area, events: Sequence[Event]) -> dict[int, tuple[float, int]]:
    """Which events have their names above them: where the name begins, and in which lane it is."""
    often = Counter(event.name for event in events)
    last: dict[str, float] = {}
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_LANES)]
    found = {}
    for number, event in sorted(enumerate(events), key=lambda each: (often[each[1].name], each[1].at_s)):
        at, needs = area.across(event.at_s), text_width(event.name)
        # a name begins at its line, and ends there if it would leave the chart
        start = at if at + needs <= area.right + 8 else at - needs
        if at - last.get(event.name, -math.inf) < _APART:
            continue  # what happens all the time need not be named each time
        for lane, spans in enumerate(taken):
            if not any(start < right + 6 and left < start + needs + 6 for left, right in spans):
                spans.append((start, start + needs))
                found[number] = (start, lane)
                last[event.name] = at
                break
    return found


def _one_series(area: _Area, number: int, points: Sequence[Point], tips: Sequence[str]) -> Iterator[str]:
    placed = [(area.across(point.x), area.up(point.y)) for point in points]
    if len(placed) > 1:
        yield curve(number, placed, "curve" if len(placed) <= _MARKED_POINTS else "curve dense")
    if len(placed) <= _MARKED_POINTS:
        for (x, y), tip in zip(placed, tips, strict=True):
            yield marker(number, x, y, tip)


def _point_texts(
    area: _Area, series: Collection[Sequence[Point]], right_end: float, free_from: float
) -> Iterator[str]:
    """The text of each point beside it, where it covers nothing; those of the last points first."""
    taken = [
        (x - 5, y - 5, x + 5, y + 5)
        for points in series
        for x, y in _along([(area.across(point.x), area.up(point.y)) for point in points])
    ]
    backwards = (
        points[-1 - n]
        for n in range(max(map(len, series), default=0))
        for points in series
        if n < len(points)
    )
    for point in backwards:
        if not point.text:
            continue
        x, y, needs = area.across(point.x), area.up(point.y), text_width(point.text)
        for left, base in (
            (x + 10, y + 4),
            (x + 5, y + 19),
            (x + 5, y - 9),
            (x - 10 - needs, y + 4),
            (x - 5 - needs, y - 9),
            (x - 5 - needs, y + 19),
        ):
            box = (left, base - 11, left + needs, base + 3)
            above = area.top - (20 if left > free_from else 0)  # beside the name of the axis there is room
            inside = left >= area.left and box[2] <= right_end and box[1] >= above and base <= area.bottom
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield text(left, base, point.text)
                break


def _along(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The points, and places between them so close that a line through them covers little else."""
    for (x, y), (next_x, next_y) in pairwise(points):
        steps = max(int(math.hypot(next_x - x, next_y - y) / 8), 1)
        for n in range(steps):
            yield x + (next_x - x) * n / steps, y + (next_y - y) * n / steps
    yield from points[-1:]


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
