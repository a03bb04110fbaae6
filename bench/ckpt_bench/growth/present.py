"""What was measured as rows, tables, CSV, charts and a page; nothing is measured here."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields

from ckpt_bench.growth.measure import Found
from ckpt_bench.interleaved import measured, quartiles
from ckpt_bench.plot import Section, duration, lines, page

ABOUT = "Cost as work grows: medians of rounds in which the stores took turns, with their quartiles."


def _bytes(value: float) -> str:
    return f"{value:,.3g} B" if value < 1000 else f"{value:,.0f} B"


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that is measured."""

    title: str
    about: str
    unit: str = "us"
    scale: float = 1e6
    """From what is measured to the unit."""
    show: Callable[[float], str] = duration


OPERATIONS: Mapping[str, Operation] = {
    "put": Operation("A put", "Time of one put of a random key, in batches, not synced."),
    "get": Operation("A get", "Time of one get of a random key, in batches."),
    "open": Operation("Opening", "Time to open a store that was closed, and to read one key."),
    "recover": Operation(
        "Opening after kill -9", "Time to open a store whose writer was killed, and to read one key."
    ),
    "recover-all": Operation(
        "Full recovery after kill -9", "Time to open a store whose writer was killed, and to read every key."
    ),
    "gc": Operation("Garbage collection", "Time to collect all garbage after a quarter of the keys was put."),
    "memory": Operation(
        "Memory of a key",
        "Resident memory of the process that put all keys, above that with an empty store, for each key. "
        "Pages of files that it maps count, though the system can have them back.",
        "bytes",
        1.0,
        _bytes,
    ),
    "own-memory": Operation(
        "Memory of a key without pages of files",
        "The same without pages of files: what the system cannot have back.",
        "bytes",
        1.0,
        _bytes,
    ),
    "disk": Operation(
        "Disk space of a key",
        "Blocks of the files of the store, closed after garbage was collected, for each key.",
        "bytes",
        1.0,
        _bytes,
    ),
}
"""By name, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of one store at one number of keys."""

    operation: str
    store: str
    keys: int
    unit: str
    median: float
    q1: float
    q3: float
    rounds: int
    seed: int


def rows_of(found: Found, stores: Sequence[str], seed: int) -> list[Row]:
    """By operation, number of keys and store; the stores in an order that all charts have in common."""
    sizes = sorted({keys for _, keys, _ in found.samples})
    return [
        _row(name, keys, store, values, seed)
        for name, keys, store in itertools.product(OPERATIONS, sizes, stores)
        if (values := found.samples.get((name, keys, store)))
    ]


def _row(name: str, keys: int, store: str, values: Sequence[float], seed: int) -> Row:
    operation = OPERATIONS[name]
    counted = [values[number] * operation.scale for number in measured(range(len(values)))]
    spread = quartiles(counted)
    # Four digits say all that such a measurement knows.
    median, q1, q3 = (float(f"{value:.4g}") for value in (spread.middle, spread.low, spread.high))
    return Row(name, store, keys, operation.unit, median, q1, q3, len(counted), seed)


def as_csv(rows: Sequence[Row]) -> str:
    """The rows with a header."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[f.name for f in fields(Row)], *map(astuple, rows)])
    return out.getvalue()


def as_markdown(rows: Sequence[Row]) -> str:
    """All of it as one table for a page of documentation."""
    shown = sections(rows)
    header = next(iter(shown.values())).header if shown else ["store"]
    lines_of = [["operation", *header], ["---", "---", *("---:" for _ in header[1:])]]
    for name, section in shown.items():
        # The name of an operation stands once, before the first of its stores.
        lines_of += [[f"`{name}`" if at == 0 else "", *cells] for at, cells in enumerate(section.rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines_of)


def sections(rows: Sequence[Row]) -> dict[str, Section]:
    """A chart and a table for each operation that was measured."""
    by_operation = {name: [row for row in rows if row.operation == name] for name in OPERATIONS}
    return {name: _section(name, of) for name, of in by_operation.items() if of}


def as_page(rows: Sequence[Row], about: str) -> str:
    """A page with all charts and tables."""
    return page("ckpt bench growth", f"{ABOUT} {about}", list(sections(rows).values()))


def _section(name: str, rows: Sequence[Row]) -> Section:
    operation = OPERATIONS[name]
    stores = dict.fromkeys(row.store for row in rows)
    sizes = sorted({row.keys for row in rows})
    series = {
        store: [(float(row.keys), row.median) for row in rows if row.store == store] for store in stores
    }
    found = {(row.store, row.keys): row for row in rows}
    rounds = sorted({row.rounds for row in rows})
    return Section(
        operation.title,
        f"{operation.about} Rounds: {rounds[0]}{f' to {rounds[-1]}' if len(rounds) > 1 else ''}.",
        lines(
            f"{operation.title} by number of keys",
            "keys",
            operation.title.lower(),
            series,
            y_log=True,
            y_text=operation.show,
        ),
        ["store", *(f"{keys:,} keys" for keys in sizes)],
        [[store, *(_cell(found.get((store, keys)), operation.show) for keys in sizes)] for store in stores],
    )


def _cell(row: Row | None, show: Callable[[float], str]) -> str:
    if row is None:
        return "-"
    return show(row.median) if row.rounds == 1 else f"{show(row.median)} [{show(row.q1)} {show(row.q3)}]"
