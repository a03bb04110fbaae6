"""What every chart is drawn with: a canvas of known width, colours for light and dark, markers and dashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Self

WIDE, NARROW = 720, 360
"""Widths of a chart on a screen and on a phone, in its own units, which are nearly pixels there."""

_COLOURS = ("#0b6e99", "#b3541e", "#5b5ea6", "#3d7a3d", "#8a6d00", "#a23b72")
_COLOURS_DARK = ("#58b6dc", "#f0955a", "#a9abf0", "#86c986", "#d9b93b", "#e58fbc")
_DASHES = ("none", "8 4", "2 3", "10 3 2 3", "5 2", "1 4 6 4")
_EVENT_DASHES = ("6 3", "2 3", "10 3 2 3", "none")
_MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.4h-9.2z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.8L4.6-3.4h-9.2z",
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
)
_VARIABLES = "--ink: #1d2733; --faint: #5b6773; --line: #d5dbe1; --paper: #ffffff; --event: #b00020;"
_VARIABLES_DARK = "--ink: #e6ebf0; --faint: #a3afba; --line: #3a4450; --paper: #14191f; --event: #ff8a80;"
_STYLE = """
.chart { font: 13px system-ui, sans-serif; max-width: 100%; height: auto; background: var(--paper); }
.chart text { fill: var(--ink); }
.chart .faint { fill: var(--faint); }
.chart .axis { stroke: var(--line); stroke-width: 1; fill: none; }
.chart .whisker { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.chart .curve, .chart .legend { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.chart .dense { stroke-width: 1.4; }
.chart .event { stroke: var(--event); stroke-width: 1.5; fill: none; }
.chart .lasting { stroke-width: 1; }
.chart .span { fill: var(--event); opacity: .14; }
.chart .happened { fill: var(--event); }
"""
_EM = 13.0
_NARROW_LETTERS = frozenset(" ,.;:'|!()[]fijlrtI-")
_BROAD_LETTERS = frozenset("mwMW@%µ…→")


class Chart(str):
    """An SVG for a screen, complete as a file of its own; `narrow` is the same chart laid out for a phone."""

    __slots__ = ("narrow",)

    narrow: str

    @classmethod
    def drawn(cls, title: str, about: str, draw: Callable[[int], tuple[float, Sequence[str]]]) -> Self:
        """The chart that `draw` makes of a width: its height and its marks."""
        chart = cls(_svg(title, about, WIDE, *draw(WIDE), f"<style>{style('.chart')}</style>"))
        chart.narrow = _svg(title, about, NARROW, *draw(NARROW), "")
        return chart


def _svg(title: str, about: str, width: int, height: float, marks: Sequence[str], styles: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
        f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}">'
        f"<title>{escape(title)}</title>"
        f"{f'<desc>{escape(about)}</desc>' if about else ''}{styles}{''.join(marks)}</svg>"
    )


def style(of: str) -> str:
    """The rules of charts, with colours for light and for dark as the reader's system asks for."""
    light, dark = (
        " ".join(
            f".fill{n} {{ fill: {colour}; }} .stroke{n} {{ stroke: {colour}; }}"
            for n, colour in enumerate(colours)
        )
        for colours in (_COLOURS, _COLOURS_DARK)
    )
    return (
        f"{of} {{ {_VARIABLES} }} {light} "
        f"@media (prefers-color-scheme: dark) {{ {of} {{ {_VARIABLES_DARK} }} {dark} }}{_STYLE}"
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "ink") -> str:
    """A line of text whose baseline is at y."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def colour(number: int) -> int:
    """Which colour the series of this number has."""
    return number % len(_COLOURS)


def curve(number: int, points: Sequence[tuple[float, float]], kind: str = "curve") -> str:
    """The line of a series, in its colour and dash."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = _DASHES[(number + number // len(_COLOURS)) % len(_DASHES)]
    return f'<path class="{kind} stroke{colour(number)}" stroke-dasharray="{dash}" d="M{path}"/>'


def marker(number: int, x: float, y: float, tip: str = "", kind: str = "marker") -> str:
    """The mark of a series at a place, in its colour and shape; `tip` is shown to who points at it."""
    shape = _MARKERS[(number + number // len(_COLOURS)) % len(_MARKERS)]
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<path class="{kind} fill{colour(number)}" transform="translate({x:.1f} {y:.1f})" d="{shape}">'
        f"{inside}</path>"
    )


def event_dash(number: int) -> str:
    """How the line of an event of this kind is dashed."""
    return _EVENT_DASHES[number % len(_EVENT_DASHES)]


def text_width(words: str) -> float:
    """About how wide a text is, rather too wide: fonts differ.

    Examples
    --------
    >>> text_width("ckpt") < text_width("rocksdb") < text_width("rocksdb, with its changelog")
    True
    """
    return _EM * sum(
        0.4 if letter in _NARROW_LETTERS else 0.95 if letter in _BROAD_LETTERS else 0.65 for letter in words
    )


def shortened(words: str, width: float) -> str:
    """As much of a text as fits, with an ellipsis if that is not all of it.

    Examples
    --------
    >>> shortened("state", 100), shortened("a state that is far too long", 100)
    ('state', 'a state that…')
    """
    if text_width(words) <= width:
        return words
    kept = words
    while kept and text_width(f"{kept}…") > width:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"
