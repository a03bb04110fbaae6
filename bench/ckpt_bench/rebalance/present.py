"""The figures as tables, charts and a page; nothing is measured or judged here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ckpt.plot import Bar, Section, bars, duration, lines, page
from ckpt_bench.rebalance.figures import Figure, Found
from ckpt_bench.rebalance.growth import Grown


def sections(found: Found, figures: Sequence[Figure]) -> dict[str, Section]:
    """A chart and a table for each part that was measured."""
    charts: dict[str, tuple[str, str, Callable[[], str]]] = {
        "race": (
            "LAG and Mixed in turn",
            "A ratio above 1 is in LAG's favour. Medians of intervals with their quartiles; a time is the "
            "fastest of a few repetitions. Plans whose table breaks its limit are not carried out, and count "
            "in no ratio of state.",
            lambda: _race_chart(figures),
        ),
        "optimum": (
            "Against the exact optimum",
            "State that moves over what has to, by HiGHS, with quartiles.",
            lambda: _optimum_chart(figures),
        ),
        "growth": (
            "Time to plan by number of keys",
            "Medians of intervals with their quartiles, and the most memory of a plan beyond the loads.",
            lambda: _growth_chart(found.grown),
        ),
    }
    shown = {}
    for part, (title, about, chart) in charts.items():
        rows = [_row(each) for each in figures if each.part == part]
        if rows:
            header = ["where", "what", "figure", "quartiles", "of", "bar", ""]
            shown[part] = Section(title, about, chart(), header, rows, stacks=True)
    return shown


def as_page(found: Found, figures: Sequence[Figure], about: str) -> str:
    """A page with all charts and tables."""
    return page("ckpt bench plan", about, list(sections(found, figures).values()))


def _row(each: Figure) -> list[str]:
    spread = f"{_digits(each.q1)} {_digits(each.q3)}" if each.q1 != each.q3 else ""
    limit = each.limit
    bar = "-" if limit is None else f"{'≤' if limit.at_most else '≥'} {limit.bar:.3g}"
    return [each.where, each.what, _digits(each.value), spread, f"{each.count:,}", bar, each.verdict]


def _race_chart(figures: Sequence[Figure]) -> str:
    ratios = [
        each for each in figures if each.part == "race" and each.what.startswith(("time of", "state of"))
    ]
    return bars(
        "Mixed over LAG", [_bar(f"{each.where.rpartition(', ')[0]}: {each.what}", each) for each in ratios]
    )


def _optimum_chart(figures: Sequence[Figure]) -> str:
    means = [each for each in figures if each.part == "optimum" and each.what.endswith("mean")]
    named = [(f"{each.what.partition(':')[0]}, {each.where.rpartition(', ')[2]}", each) for each in means]
    return bars("State over the optimum", [_bar(name, each) for name, each in named])


def _growth_chart(grown: Sequence[Grown]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for each in grown:
        series.setdefault(each.series, []).append((each.keys, 1e6 * statistics.median(each.plan_s)))
    first = [each for each in grown if each.series == grown[0].series]
    series["one argsort"] = [(each.keys, 1e6 * min(each.sort_s)) for each in first]
    return lines(
        "Time to plan by number of keys", "keys", "time to plan", series, y_log=True, y_text=duration
    )


def _bar(label: str, each: Figure) -> Bar:
    spread = f"{_digits(each.value)} [{_digits(each.q1)} {_digits(each.q3)}]"
    return Bar(label, each.value, spread, each.q1, each.q3)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
