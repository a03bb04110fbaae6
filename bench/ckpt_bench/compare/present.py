"""The outcome of a comparison as rows, tables, CSV and a page; nothing is measured here."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from ckpt_bench.compare.places import durability, network
from ckpt_bench.compare.referee import Outcome
from ckpt_bench.interleaved import measured
from ckpt_bench.plot import Bar, Point, Section, bars, page, trade_off

DIRECTION = (
    "A ratio is the baseline's throughput over the store's: above 1 the baseline is faster. "
    "Medians of paired rounds with their quartiles."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One store in one case."""

    case: str
    store: str
    baseline: str
    ratio: float
    q1: float
    q3: float
    rounds: int
    ops_per_s: float
    bar: float | None
    stretch: float | None
    met: bool | None
    durability: str
    network: str
    keys: int
    seed: int
    written: float | None = None
    """Records that became durable in a round, where stores need not write the same number."""


def rows_of(outcome: Outcome, seed: int, given: Mapping[str, str]) -> list[Row]:
    """One row for each store that can be compared, in the order of the case."""
    found = []
    base = outcome.standings.get(outcome.baseline)
    for standing in outcome.finished():
        ratio = outcome.ratio(standing.store)
        if ratio is None or base is None:
            continue
        bar = outcome.case.bars.get(standing.store) if outcome.baseline == outcome.case.baseline else None
        found.append(
            Row(
                case=outcome.case.name,
                store=standing.store,
                baseline=outcome.baseline,
                ratio=_rounded(ratio.middle),
                q1=_rounded(ratio.low),
                q3=_rounded(ratio.high),
                rounds=len(measured(sorted(standing.turns.keys() & base.turns.keys()))),
                ops_per_s=_rounded(standing.ops_per_s()),
                bar=bar.least if bar else None,
                stretch=bar.stretch if bar else None,
                met=ratio.middle >= bar.least if bar and outcome.at_full_size else None,
                durability=durability(standing.store, durable=outcome.case.durable, given=given),
                network=network(standing.store, given),
                keys=outcome.sizes.keys,
                seed=seed,
                written=standing.written(),
            )
        )
    return found


def sections(outcomes: Sequence[Outcome], rows: Sequence[Row]) -> list[Section]:
    """A chart and a table for each case."""
    return [
        section
        for outcome in outcomes
        if (section := _section(outcome, [row for row in rows if row.case == outcome.case.name])).rows
    ]


def as_csv(rows: Sequence[Row]) -> str:
    """The rows with a header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def as_page(outcomes: Sequence[Outcome], rows: Sequence[Row], seed: int) -> str:
    """A page with all charts and tables."""
    charts = []
    for section in sections(outcomes, rows):
        charts.append(section)
        charts += [_against(outcome) for outcome in outcomes if outcome.case.name == section.title]
    return page("ckpt bench compare", f"{DIRECTION} Seed {seed}.", charts)


def _against(outcome: Outcome) -> Section:
    """One point for each store of a case."""
    calls = outcome.sizes.calls
    points = {
        standing.store: [Point(standing.ops_per_s(), standing.slow_s() / calls * 1e6)]
        for standing in outcome.finished()
    }
    return Section(
        f"{outcome.case.name}: throughput against latency",
        f"Median operations/s of the rounds, and the time of a call (records: {outcome.sizes.records:,}) in "
        f"the slowest tenth of them.",
        trade_off(
            f"{outcome.case.name}: throughput against latency", "operations/s", "time of a call", points
        ),
        [],
        [],
    )


def _section(outcome: Outcome, rows: Sequence[Row]) -> Section:
    case = outcome.case
    on_servers = any(row.network != "none" for row in rows)
    counted = any(row.written is not None for row in rows)
    marks = [
        Bar(row.store, row.ratio, _spread(row), row.q1, row.q3) for row in rows if row.store != row.baseline
    ]
    return Section(
        case.name,
        f"{case.about[0].upper()}{case.about[1:]}. {outcome.sizes.keys:,} keys; baseline {outcome.baseline}."
        f"{_judged_elsewhere(outcome, rows)}",
        bars(f"Throughput of {outcome.baseline} over that of each store", marks),
        [
            *("store", "ops/s", "ratio", "quartiles", "rounds", "bar", ""),
            *(["written"] if counted else []),
            *_place_header(on_servers),
        ],
        [
            [
                row.store,
                f"{row.ops_per_s:,.0f}",
                f"{row.ratio:.2f}",
                f"{row.q1:.2f} {row.q3:.2f}",
                str(row.rounds),
                "-" if row.bar is None else f"{row.bar:g}",
                _verdict(row),
                *(["-" if row.written is None else f"{row.written:,.0f}"] if counted else []),
                *_place(row, on_servers),
            ]
            for row in rows
        ],
    )


def _place_header(on_servers: bool) -> list[str]:
    return ["durability", "network"] if on_servers else ["durability"]


def _place(row: Row, on_servers: bool) -> list[str]:
    return [row.durability, row.network] if on_servers else [row.durability]


def _verdict(row: Row) -> str:
    if row.met is None:
        return "-" if row.bar is None else "not judged"
    if row.met and row.stretch is not None and row.ratio >= row.stretch:
        return f"met, and {row.stretch:g}"
    return "met" if row.met else "missed"


def _judged_elsewhere(outcome: Outcome, rows: Sequence[Row]) -> str:
    if outcome.at_full_size or all(row.bar is None for row in rows):
        return ""
    return f" The bar is for {outcome.case.sizes.keys:,} keys and full rounds, so it is not judged here."


def _spread(row: Row) -> str:
    return f"{row.ratio:.2f} [{row.q1:.2f} {row.q3:.2f}]"


def _rounded(value: float) -> float:
    """Four digits say all that such a measurement knows.

    Examples
    --------
    >>> _rounded(123456.7), _rounded(0.123456)
    (123500.0, 0.1235)
    """
    return float(f"{value:.4g}")
