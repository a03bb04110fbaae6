"""Sweeps as a chart and a table."""

from __future__ import annotations

from dataclasses import fields

from ckpt_bench.plot import lines
from ckpt_bench.reproduce.experiments import Shown
from ckpt_bench.reproduce.mixed.courses import Setting, Sweep
from ckpt_bench.reproduce.spread import spread

MIGRATED, PLAN_MS, TABLE = "migrated_percent", "plan_ms", "table"
_CALLED = {MIGRATED: "migrated state, %", PLAN_MS: "time of a plan, ms", TABLE: "entries of the table"}
_SYMBOLS = {
    "keys": "K",
    "exponent": "z",
    "fluctuation": "f",
    "theta": "θ",
    "window": "w",
    "instances": "N_D",
    "table_limit": "N_A",
    "beta": "β",
}


def show(found: Sweep, drawn: str, *, x_log: bool = False) -> Shown:
    """A line for each planner, and all that was measured as a table."""
    symbol = _SYMBOLS[found.parameter]
    points = {
        name: [
            (float(value), spread(getattr(averages, drawn)).median)
            for value, averages in zip(found.values, line, strict=True)
        ]
        for name, line in found.lines.items()
    }
    chart = lines(f"{_CALLED[drawn]} by {symbol}", symbol, _CALLED[drawn], points, x_log=x_log)
    rows = [
        [
            f"{value:,g}",
            name,
            spread(line[at].migrated_percent).text(),
            spread(line[at].plan_ms).text(),
            spread(line[at].table).text(",.0f"),
            spread(line[at].skew_before).text(),
            spread(line[at].skew_after).text(),
            spread(line[at].over_limit_percent).text(".0f"),
        ]
        for at, value in enumerate(found.values)
        for name, line in found.lines.items()
    ]
    header = [
        symbol,
        "planner",
        "migrated, %",
        "plan, ms",
        "table",
        "max/mean before",
        "after",
        "over N_A, %",
    ]
    return Shown(chart, header, rows, [described(found.setting, found.seeds, without=found.parameter)])


def described(setting: Setting, seeds: int, *, without: str) -> str:
    """The parameters that did not vary, and what the figures are."""
    given = ", ".join(
        f"{_SYMBOLS[field.name]} = {getattr(setting, field.name):,}"
        if getattr(setting, field.name) is not None
        else f"{_SYMBOLS[field.name]} without limit"
        for field in fields(setting)
        if field.name in _SYMBOLS and field.name != without
    )
    return f"{given}; medians [quartiles] of {seeds} seeds, each the mean of {setting.plans} plans."
