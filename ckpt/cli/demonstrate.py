"""`demo`: a query on Spark that is killed and counts exactly, or the same without Spark where there is none.

The jobs are `ckpt.spark.demo` and `ckpt.demo.plain`; here is what a person sees of them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import ckpt.spark.demo as on_spark
from ckpt.cli.demo_results import SparkPlot, show_plain, show_spark
from ckpt.cli.failures import BAD_DATA
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json
from ckpt.demo import plain
from ckpt.errors import ConfigError
from ckpt.spark.demo.messages import CKPT, DEFAULT, QUERIES


@click.command()
@click.option(
    "--events",
    type=click.IntRange(plain.MIN_EVENTS),
    default=200_000,
    show_default=True,
    help="Words to count.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Chooses the stream.")
@click.option("--address", help="Where to keep state; default: an indexed log in a temporary folder.")
@click.option("--without-spark", is_flag=True, help="Count with a SafeKeeper instead; takes a few seconds.")
@click.option(
    "--batches",
    type=click.IntRange(on_spark.MIN_BATCHES),
    default=6,
    show_default=True,
    help="Micro-batches of the query.",
)
@click.option(
    "--partitions",
    type=click.IntRange(2),
    default=40,
    show_default=True,
    help="Shuffle partitions of the query, each with a state of its own.",
)
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    events: int,
    seed: int,
    address: str | None,
    without_spark: bool,
    batches: int,
    partitions: int,
    as_json: bool,
) -> None:
    """Count words with Spark, be killed with kill -9 in the middle of a batch, recover, compare every count.

    The same words are counted on Spark's default state store, too, to show how long its batches take.
    """
    if not without_spark:
        try:
            on_spark.require_spark()
        except ConfigError as error:
            click.echo(f"without Spark, because {error}", err=True)
            without_spark = True
    if without_spark:
        exact = _plain(address, seed, events, as_json=as_json)
    else:
        exact = _spark(address, on_spark.Settings(events, seed, batches, partitions), as_json=as_json)
    if not exact:
        ctx.exit(BAD_DATA)


def _plain(address: str | None, seed: int, events: int, *, as_json: bool) -> bool:
    console = Console(stderr=True)
    with ExitStack() as stack:
        if address is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ckpt-demo-"))
            address = f"log://{folder}/log"
        bar = stack.enter_context(_progress(console))
        task = bar.add_task("counting words", total=events)

        def on_report(report: plain.WorkerReport) -> None:
            bar.update(task, completed=report.offset)

        def on_kill(offset: int) -> None:
            if console.is_terminal:
                console.print(f"kill -9 after {offset:,} events")
            bar.update(task, description="recovering    ")

        outcome = plain.run(address, seed=seed, events=events, on_report=on_report, on_kill=on_kill)
    if as_json:
        print_json(
            {
                "exact": outcome.exact,
                "events": outcome.events,
                "words": outcome.words,
                "wrong_words": len(outcome.wrong),
                "killed_at": outcome.killed_at,
                "resumed_at": outcome.resumed_at,
                "skipped": outcome.skipped,
            }
        )
    else:
        show_plain(outcome)
    return outcome.exact


def _spark(address: str | None, settings: on_spark.Settings, *, as_json: bool) -> bool:
    console = Console(stderr=True)
    plot = SparkPlot()
    with _progress(console) as bar:
        task = bar.add_task("preparing", total=len(QUERIES) * settings.batches)

        def on_step(step: on_spark.Step) -> None:
            if step.done is None:
                bar.update(task, description="Spark starts" if "Spark" in step.says else "preparing")
                if console.is_terminal:
                    console.print(step.says)
            else:
                bar.update(task, advance=1, description="counting words")
                if console.is_terminal and (row := plot.row(step.done, warm=step.warm)):
                    console.print(row)

        try:
            outcome = on_spark.run(address, settings, on_step)
        except on_spark.DemoError as error:
            if error.said:
                click.echo(error.said, err=True)
            raise
    if as_json:
        print_json(_document(outcome))
    else:
        show_spark(outcome, address)
    return outcome.exact


def _document(outcome: on_spark.Outcome) -> dict[str, Any]:
    ours, theirs = outcome.median_ms(CKPT), outcome.median_ms(DEFAULT)
    return {
        "exact": outcome.exact,
        "spark": outcome.spark,
        "events": outcome.settings.events,
        "words": outcome.words,
        "wrong_words": len(outcome.wrong),
        "batches": outcome.settings.batches,
        "partitions": outcome.settings.partitions,
        "killed_in_batch": outcome.settings.killed_in,
        "committed_partitions": outcome.committed,
        "recovered_words": outcome.recovered,
        "restart_s": round(outcome.restart_s, 3),
        "median_batch_ms": {CKPT: ours, DEFAULT: theirs},
        "ratio": round(theirs / ours, 2),
    }


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
