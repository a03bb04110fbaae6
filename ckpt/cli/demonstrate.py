"""`demo`: the main job on the embedded default, with a progress bar and a table. The job is `ckpt.demo`."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ckpt.cli.failures import BAD_DATA
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json
from ckpt.demo import MIN_EVENTS, Outcome, Report, run


@click.command()
@click.option(
    "--events", type=click.IntRange(MIN_EVENTS), default=200_000, show_default=True, help="Words to count."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Chooses the stream.")
@click.option("--address", help="Where to checkpoint; default: an indexed log in a temporary folder.")
@json_option
@click.pass_context
def demo(ctx: click.Context, events: int, seed: int, address: str | None, as_json: bool) -> None:
    """Count words, be killed with kill -9 in the middle, recover, and compare every count."""
    with ExitStack() as stack:
        if address is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ckpt-demo-"))
            address = f"log://{folder}/log"
        outcome = _run_with_bar(address, seed, events, Console(stderr=True))
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
        _show(outcome)
    if not outcome.exact:
        ctx.exit(BAD_DATA)


def _run_with_bar(address: str, seed: int, events: int, console: Console) -> Outcome:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("counting words", total=events)

        def on_report(report: Report) -> None:
            bar.update(task, completed=report.offset)

        def on_kill(offset: int) -> None:
            if console.is_terminal:
                console.print(f"kill -9 after {offset:,} events")
            bar.update(task, description="recovering    ")

        return run(address, seed=seed, events=events, on_report=on_report, on_kill=on_kill)


def _show(outcome: Outcome) -> None:
    table = Table(title="every word counted exactly once" if outcome.exact else "WRONG COUNTS")
    table.add_column("word")
    table.add_column("counted", justify="right")
    table.add_column("expected", justify="right")
    for word, counted, expected in outcome.top:
        table.add_row(word, f"{counted:,}", f"{expected:,}")
    rest = outcome.words - len(outcome.top)
    table.add_row(f"… and {rest:,} more", "", "", end_section=True)
    Console().print(table)
    click.echo(f"killed with kill -9 after {outcome.killed_at:,} of {outcome.events:,} events")
    click.echo(f"resumed at the safe position {outcome.resumed_at:,}")
    click.echo(f"replayed events that a checkpoint had counted already: {outcome.skipped:,}, skipped")
    click.echo(f"exact: {outcome.words - len(outcome.wrong):,} of {outcome.words:,} words")
    for word in outcome.wrong[:10]:
        click.echo(f"wrong: {word}")
