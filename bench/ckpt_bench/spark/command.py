"""`ckpt bench spark`: the comparison from the command line; tables, JSON and a page of charts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckpt.cli.failures import UNAVAILABLE
from ckpt.cli.show import print_json, print_table
from ckpt.contract.addresses import parse_address
from ckpt.spark import provider_jar
from ckpt_bench.outputs import refused, require_folder, require_writable, write_charts, write_text
from ckpt_bench.spark.contestants import CONTESTANTS, OURS, nothing_jar
from ckpt_bench.spark.parts import PARTS, Part, Plan
from ckpt_bench.spark.present import report, sections

_COUNT = click.IntRange(1)
_DEFAULTS = Plan("", None, tuple(CONTESTANTS))
_QUICK = {
    "memory": "1g",
    "partitions": 4,
    "rows": 1000,
    "keys": 5000,
    "batches": 2,
    "warmup": 1,
    "restart_keys": 5000,
    "rounds": 1,
    "sizes": (1000, 10_000),
}
"""Sizes that show that everything works, and nothing about speed."""


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--address", help="Where ckpt keeps state; default: an indexed log in a temporary folder.")
@click.option(
    "--provider",
    "providers",
    type=click.Choice(list(CONTESTANTS)),
    multiple=True,
    help="Only these, beside ckpt; may be repeated.",
)
@click.option("--partitions", type=_COUNT, help=f"Default: {_DEFAULTS.partitions}.")
@click.option("--rows", type=_COUNT, help=f"Rows of a batch. Default: {_DEFAULTS.rows:,}.")
@click.option("--keys", type=_COUNT, help=f"Keys that rows are drawn from. Default: {_DEFAULTS.keys:,}.")
@click.option("--batches", type=_COUNT, help=f"Batches that are timed. Default: {_DEFAULTS.batches}.")
@click.option("--warmup", type=click.IntRange(0), help=f"Batches before those. Default: {_DEFAULTS.warmup}.")
@click.option("--restart-keys", type=_COUNT, help=f"Keys of `restart`. Default: {_DEFAULTS.restart_keys:,}.")
@click.option("--rounds", type=_COUNT, help=f"Restarts of each. Default: {_DEFAULTS.rounds}.")
@click.option("--size", "sizes", type=_COUNT, multiple=True, help="Keys of `growth`; may be repeated.")
@click.option("--master", help=f"Spark's master. Default: {_DEFAULTS.master}.")
@click.option("--memory", help=f"Memory of Spark's JVM. Default: {_DEFAULTS.memory}.")
@click.option("--quick", is_flag=True, help="Tiny sizes: does it all work?")
@click.option("--plot", metavar="FILE", help="Write charts to this HTML file.")
@click.option("--svg", type=click.Path(file_okay=False), help="Write each chart to a file in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Every figure, as one JSON document.")
def spark(
    parts: Sequence[str],
    address: str | None,
    providers: Sequence[str],
    quick: bool,
    plot: str | None,
    svg: str | None,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Compare ckpt with Spark's own state stores and with the same query without state.

    All providers run in one session and take turns. PARTS are batches (times of micro-batches), restart
    (kill -9, then the first batch), growth (commits at growing sizes of state), memory (heap of a key) and
    files; default: all of them. Durable commits throughout.
    """
    if address is not None:
        parse_address(address)
    if plot is not None:
        require_writable(plot)
    if svg is not None:
        require_folder(svg)
    # What a session cannot do without is found missing here, in one line, and not compiled while others wait.
    provider_jar()
    nothing_jar()
    chosen = [PARTS[name] for name in PARTS if not parts or name in parts]
    asked = {name: value for name, value in sizes.items() if value not in (None, ())}
    compared = tuple(name for name in CONTESTANTS if not providers or name in (OURS, *providers))
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        plan = replace(Plan(folder, address, compared), **{**(_QUICK if quick else {}), **asked})
        figures = _measure(plan, chosen)
    if as_json:
        print_json({"format": 1, "cores": os.cpu_count(), **figures})
    else:
        for section in sections(figures).values():
            click.echo(f"\n{section.title}. {section.about}\n")
            print_table(section.header, section.rows)
    unwritten = refused(plot, lambda path: write_text(path, report(figures)))
    unwritten += refused(svg, lambda into: write_charts(into, sections(figures)))
    for fault in unwritten:
        click.echo(f"ckpt: {fault}", err=True)
    if unwritten:
        raise click.exceptions.Exit(UNAVAILABLE)


def _measure(plan: Plan, parts: Sequence[Part]) -> dict[str, Any]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    figures = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for part in parts:
            task = progress.add_task(part.name, total=part.steps(plan))

            def step(what: str, task: Any = task, name: str = part.name) -> None:
                progress.update(task, advance=1, description=f"{name}: {what}")

            figures[part.name] = part.measure(plan, step)
            progress.update(task, description=part.name)
    return figures
