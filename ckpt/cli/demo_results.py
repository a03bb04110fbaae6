"""What `ckpt demo` found, as plots and tables; a wrong count is never shown as a success."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import ckpt.spark.demo as on_spark
from ckpt.contract.addresses import parse_address
from ckpt.demo import plain
from ckpt.spark.demo.messages import CKPT, DEFAULT, QUERIES, Done

_NAMES = {CKPT: "ckpt", DEFAULT: "Spark's default"}
_COLOURS = {CKPT: "green", DEFAULT: "yellow"}
_BAR_CELLS, _ROW_BAR_CELLS, _ROW_CELLS = 32, 16, 33
_SHOWN_WRONG = 10


class SparkPlot:
    """A line for each batch that both queries have finished: a bar for each of them."""

    def __init__(self) -> None:
        self._ms: dict[int, dict[str, float]] = {}

    def row(self, done: Done, *, warm: bool) -> Text | None:
        """The line of the batch that this completes, if it does."""
        of_batch = self._ms.setdefault(done.batch, {})
        of_batch[done.query] = done.ms
        if len(of_batch) < len(QUERIES):
            return None
        line = Text(f"batch {done.batch + 1:>3}  ")
        if not warm:
            return line.append("Spark warms up, which does not count")
        for query in QUERIES:
            ms = of_batch[query]
            bar = _bar(ms, max(of_batch.values()), _ROW_BAR_CELLS)
            line.append(bar, style=_COLOURS[query])
            line.append(f" {query} {ms / 1000:.1f} s".ljust(_ROW_CELLS - len(bar)))
        return line


def show_spark(outcome: on_spark.Outcome, address: str | None) -> None:
    """Bars of the median batches, the counts, what happened, and what to do next."""
    console, settings = Console(highlight=False), outcome.settings
    medians = {query: outcome.median_ms(query) for query in QUERIES}
    console.print(
        f"\nMedian batch: {settings.events // settings.batches:,} words, {settings.partitions} partitions, "
        f"Spark {outcome.spark}"
    )
    for query, ms in medians.items():
        bar = _bar(ms, max(medians.values()), _BAR_CELLS)
        console.print(Text.assemble(f"  {_NAMES[query]:<16}", (bar, _COLOURS[query]), f" {ms:,.0f} ms"))
    console.print()
    table = Table("state store", title="batch times, in one Spark, taking turns")
    for heading in ("batches", "fastest ms", "median ms", "slowest ms", "of ckpt's"):
        table.add_column(heading, justify="right")
    for query in QUERIES:
        times = outcome.batch_ms[query]
        table.add_row(
            _NAMES[query],
            str(len(times)),
            f"{min(times):,.0f}",
            f"{medians[query]:,.0f}",
            f"{max(times):,.0f}",
            f"{medians[query] / medians[CKPT]:.2f}",
        )
    console.print(table)
    console.print(_counts(outcome.exact, outcome.words, outcome.top))
    click.echo(
        f"killed with kill -9 in batch {settings.killed_in + 1} of {settings.batches}, when "
        f"{outcome.committed} of {settings.partitions} partitions had committed it"
    )
    click.echo(
        f"started again: found the counts of {outcome.recovered:,} words and had done that batch again after "
        f"{outcome.restart_s:.1f} s, {outcome.spark_start_s:.1f} s of them Spark's own start"
    )
    _say_exact(outcome.words, outcome.wrong)
    if outcome.exact:
        _say_next(address)


def _say_next(address: str | None) -> None:
    steps = {
        "your own query": 'ckpt.spark.configure(builder, "log:///var/ckpt/shop"), see docs/spark.md',
        "on a cluster": "ckpt spark conf ADDRESS --master MASTER",
    }
    if address is None:
        steps["on a server"] = "ckpt demo --address redis://HOST:6379/0"
    else:
        steps["this state"] = f"ckpt ls {parse_address(address)}"
    click.echo("\nNext:")
    for step, how in steps.items():
        click.echo(f"  {step:<16}{how}")


def show_plain(outcome: plain.WordCountResult) -> None:
    """The counts, and what happened."""
    Console(highlight=False).print(_counts(outcome.exact, outcome.words, outcome.top))
    click.echo(f"killed with kill -9 after {outcome.killed_at:,} of {outcome.events:,} events")
    click.echo(f"resumed at the safe position {outcome.resumed_at:,}")
    click.echo(f"replayed events that a checkpoint had counted already: {outcome.skipped:,}, skipped")
    _say_exact(outcome.words, outcome.wrong)


def _counts(exact: bool, words: int, top: tuple[tuple[str, int, int], ...]) -> Table:
    table = Table(title="every word counted exactly once" if exact else "WRONG COUNTS")
    table.add_column("word")
    table.add_column("counted", justify="right")
    table.add_column("expected", justify="right")
    for word, counted, expected in top:
        table.add_row(word, f"{counted:,}", f"{expected:,}")
    table.add_row(f"… and {words - len(top):,} more", "", "", end_section=True)
    return table


def _say_exact(words: int, wrong: tuple[str, ...]) -> None:
    click.echo(f"exact: {words - len(wrong):,} of {words:,} words")
    for word in wrong[:_SHOWN_WRONG]:
        click.echo(f"wrong: {word}")


def _bar(ms: float, longest_ms: float, cells: int) -> str:
    return "█" * max(1, round(cells * ms / longest_ms))
