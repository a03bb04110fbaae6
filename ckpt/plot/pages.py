"""Pages of charts: one HTML file each, which fetches nothing and may fetch nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ckpt.plot.drawing import Chart, style

_MAY = "default-src 'none'; style-src 'unsafe-inline'"
_LONG = 32
_STYLE = """
:root { color-scheme: light dark; }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 48rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
.chart { display: block; width: 100%; margin: 1rem 0; }
.narrow { display: none; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
td.long { white-space: normal; overflow-wrap: normal; min-width: 9rem; }
th { color: var(--faint); font-weight: 600; vertical-align: bottom; white-space: normal;
  overflow-wrap: normal; }
@media (max-width: 640px) {
  body { margin: 1rem auto; } .narrow { display: block; } .wide { display: none; }
  .stacks table, .stacks tbody, .stacks tr, .stacks td { display: block; }
  .stacks thead, .stacks td:empty { display: none; }
  .stacks tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .stacks td { border: 0; padding: 0; white-space: normal; }
  .stacks td:first-child { font-weight: 600; }
  .stacks td:not(:first-child)::before { content: attr(data-of) ": "; color: var(--faint); }
}
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One chart of a page, with what it shows and the same as a table."""

    title: str
    about: str
    chart: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    stacks: bool = False
    """On a phone each row of the table is a list, so that long cells need no scrolling sideways."""


def page(title: str, about: str, sections: Sequence[Section]) -> str:
    """A whole HTML document with the sections one below the other; nothing is fetched from anywhere."""
    body = "".join(
        f"<section><h2>{escape(s.title)}</h2><p>{escape(s.about)}</p>{_figure(s.chart)}{_table(s)}</section>"
        for s in sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        # a page that is passed on cannot be made to fetch or run anything, whatever names its data contain
        f'<meta http-equiv="Content-Security-Policy" content="{_MAY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style(':root')}{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1><p>{escape(about)}</p>{body}</body></html>\n"
    )


def _figure(chart: str) -> str:
    if not isinstance(chart, Chart):
        return chart
    return f'<div class="wide">{chart}</div><div class="narrow">{chart.narrow}</div>'


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
    rows = "".join(
        f"<tr>{''.join(map(_cell, row, section.header if section.stacks else [''] * len(row)))}</tr>"
        for row in section.rows
    )
    kind = "table stacks" if section.stacks else "table"
    # a table that is too wide for a phone scrolls by itself, also by keyboard
    return (
        f'<div class="{kind}" role="region" aria-label="{escape(section.title)}: table" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(words: str, of: str) -> str:
    kind = " class=long" if len(words) > _LONG else ""
    name = f' data-of="{escape(of)}"' if of else ""
    return f"<td{kind}{name}>{escape(words)}</td>"
