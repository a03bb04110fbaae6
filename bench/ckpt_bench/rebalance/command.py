"""`ckpt bench plan`: from the command line; tables, JSON, a page of charts, and charts as files."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import click
from rich.console import Console

from ckpt.cli.failures import INTERRUPTED, UNAVAILABLE
from ckpt.cli.outputs import only_one, refused, require_writable, write_text
from ckpt.cli.show import print_json, print_table
from ckpt_bench.outputs import require_folder, write_charts
from ckpt_bench.rebalance.figures import Figure, Found, figures_of
from ckpt_bench.rebalance.growth import grow
from ckpt_bench.rebalance.optimum import problems
from ckpt_bench.rebalance.present import as_page, sections
from ckpt_bench.rebalance.race import race
from ckpt_bench.rebalance.trajectory import Setting

PARTS = ("race", "optimum", "growth")
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    keys: int = 1_000_000
    intervals: int = 10
    repeats: int = 3
    problems: int = 60
    grown: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    grown_intervals: int = 3
    table_limit: int = 3000


CHANGES = ((1, 1.0), (7, 0.5), (7, 1.0))
"""Pairs of instances and fluctuation. With the last one, several problems have no plan within the limits."""
DEFAULT = Sizes()
FULL = Sizes(intervals=40, problems=300, grown_intervals=8)
QUICK = Sizes(3000, 2, 1, 2, (500, 2000), 1, 400)
"""Shows that everything works, and nothing about speed."""


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS), metavar="[PART]...")
@click.option("--quick", is_flag=True, help="Tiny sizes: does it all work?")
@click.option("--full", is_flag=True, help="Four times as many intervals and problems.")
@click.option(
    "--seed", type=click.IntRange(0), help="The same streams in the same order. Default: a new one."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each figure.")
@click.option("--html", metavar="FILE", help="Write charts to this HTML file.")
@click.option("--svg", type=click.Path(file_okay=False), help="Write each chart to a file in this folder.")
def plan(
    parts: Sequence[str],
    quick: bool,
    full: bool,
    seed: int | None,
    as_json: bool,
    html: str | None,
    svg: str | None,
) -> None:
    """Measure how fast plans are made and how much state they move, for streams of drifting Zipf load.

    PART is race (LAG beside Mixed and one argsort, in turn, a million keys), optimum (30 to 60 keys, beside
    the exact optimum), or growth (time and memory from ten thousand to ten million keys). Default: all.

    A bar that is missed is a result; the exit code is 130 after Ctrl-C, with the results so far.
    """
    only_one({"--quick": quick, "--full": full})
    if html is not None:
        require_writable(html)
    if svg is not None:
        require_folder(svg)
    sizes = QUICK if quick else FULL if full else DEFAULT
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    _say(f"seed {seed}")
    found, interrupted = Found(), False
    try:
        with _progress() as step:
            for part in _chosen(parts or PARTS):
                _measure(part, sizes, seed, found, step)
    except KeyboardInterrupt:
        interrupted = True
    figures = figures_of(found, judged=not quick)
    about = _about(sizes, seed)
    if as_json:
        for figure in figures:
            print_json(figure.document())
    else:
        _print_tables(found, figures, about)
    unwritten = refused(html, lambda path: write_text(path, as_page(found, figures, about)))
    unwritten += refused(svg, lambda into: write_charts(into, sections(found, figures)))
    for fault in unwritten:
        _say(f"ckpt: {fault}")
    if interrupted:
        _say("ckpt: interrupted; these are the results so far")
        raise click.exceptions.Exit(INTERRUPTED)
    if unwritten:
        raise click.exceptions.Exit(UNAVAILABLE)


def _chosen(parts: Sequence[str]) -> list[str]:
    """Those that can be measured; what is missing for the others is said."""
    without = {"optimum"} if importlib.util.find_spec("highspy") is None else set()
    for part in without & set(parts):
        _say(f"left out: {part} needs HiGHS; install it with: pip install 'ckpt[rebalance]'")
    return [part for part in parts if part not in without]


def _measure(part: str, sizes: Sizes, seed: int, found: Found, step: Say) -> None:
    if part == "race":
        for pairs, fluctuation in CHANGES:
            setting = Setting(sizes.keys, pairs, table_limit=sizes.table_limit, fluctuation=fluctuation)
            step(f"race: {setting.name}")
            race(setting, sizes.intervals, sizes.repeats, seed, found.rounds.append)
    elif part == "optimum":
        step(f"optimum: {sizes.problems} problems, each with two tables")
        problems(sizes.problems, seed, found.answers.append)
    else:
        step(f"growth: {', '.join(f'{keys:,}' for keys in sizes.grown)} keys")
        grow(sizes.grown, sizes.grown_intervals, sizes.repeats, seed, found.grown.append)


@contextlib.contextmanager
def _progress() -> Iterator[Say]:
    """Where a run is: one line that changes in a terminal, and elsewhere a line for each part."""
    console = Console(stderr=True)
    with console.status("") if console.is_terminal else contextlib.nullcontext() as status:
        yield _say if status is None else status.update


def _about(sizes: Sizes, seed: int) -> str:
    return (
        "Zipf 0.85, fluctuation f in one pair (p1) or seven pairs (p7) of 15 instances, θ 0.08, windows of 5 "
        f"intervals, a table of {sizes.table_limit:,} entries. "
        f"{os.cpu_count()} cores, Python {platform.python_version()}; seed {seed}."
    )


def _print_tables(found: Found, figures: Sequence[Figure], about: str) -> None:
    click.echo(about)
    for section in sections(found, figures).values():
        click.echo(f"\n{section.title}. {section.about}\n")
        print_table(section.header, section.rows)


def _say(line: str) -> None:
    click.echo(line, err=True)
