"""`ckpt bench compare`: the comparison from the command line; a table, JSON, CSV and a page of charts."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckpt.cli.failures import BAD_DATA, INTERRUPTED, UNAVAILABLE
from ckpt.cli.show import print_json, print_table
from ckpt_bench.compare.cases import ALL_STORES, CASES
from ckpt_bench.compare.places import SERVER_OF, given_addresses, served
from ckpt_bench.compare.present import DIRECTION, Row, as_csv, as_page, rows_of, sections
from ckpt_bench.compare.referee import FULL, QUICK, Budget, Match, Outcome, Referee, Standing
from ckpt_bench.compare.selecting import Wish, at, matches
from ckpt_bench.interrupts import Interrupts
from ckpt_bench.outputs import only_one, refused, require_writable, write_text

_COUNT = click.IntRange(1)


@click.command(epilog=f"Cases: {', '.join(CASES)}. Stores: {', '.join(ALL_STORES)}.")
@click.argument("cases", nargs=-1, type=click.Choice(list(CASES)), metavar="[CASE]...")
@click.option("--store", "stores", multiple=True, help="Only these beside the baseline; may be repeated.")
@click.option("--baseline", help="What the others are compared with. Default: log (s3 on the object store).")
@click.option("--servers", is_flag=True, help="Redis, HBase, Cassandra and S3 on the thesis' workload.")
@click.option(
    "--address",
    "pairs",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="A server of your own instead of one of `ckpt dev`; may be repeated.",
)
@click.option("--keys", type=_COUNT, help="Keys of every case, instead of its own number.")
@click.option("--rounds", type=_COUNT, help="Rounds of every case, instead of its own number.")
@click.option("--seed", type=click.IntRange(0), help="The same work in the same order. Default: a new one.")
@click.option("--quick", is_flag=True, help="Small sizes: all cases within a minute.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, writable=True),
    help="On the disk that you want to know about. Default: the system's folder for temporary files.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each case and store.")
@click.option("--csv", "with_commas", is_flag=True, help="The same as CSV.")
@click.option(
    "--html", type=click.Path(dir_okay=False, writable=True), help="Write charts to this HTML file."
)
def compare(
    pairs: Sequence[str],
    seed: int | None,
    folder: str | None,
    as_json: bool,
    with_commas: bool,
    html: str | None,
    **wishes: Any,
) -> None:
    """Compare ckpt's backends with their peers: in turn, in one run, at equal durability.

    In each round every store does the same work, in random order; a ratio is the baseline's throughput over
    the store's in the same round, so above 1 the baseline is faster. Garbage collection and the flushing of
    indexes run as they do by default. Without CASE all that need no server are run.

    The exit code is 1 if a store failed, and 130 after Ctrl-C; results so far are printed in both cases.
    """
    only_one({"--json": as_json, "--csv": with_commas})
    if html is not None:
        require_writable(html)
    wish = Wish(**wishes)
    given = given_addresses(pairs)
    chosen = matches(wish, _say)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    _say(f"seed {seed}")
    run = _Run(seed, QUICK if wish.quick else FULL)
    needed = dict.fromkeys(SERVER_OF[name] for match in chosen for name in match.stores if name in SERVER_OF)
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-", dir=folder) as place:
        try:
            with served(needed, given, _say, run.faults.append) as addresses:
                run.play([match for one in chosen if (match := at(one, addresses)) is not None], place)
        except KeyboardInterrupt:
            interrupted = True
    rows = [row for outcome in run.outcomes for row in rows_of(outcome, seed, given)]
    if as_json:
        for row in rows:
            print_json(asdict(row))
    elif with_commas:
        click.echo(as_csv(rows), nl=False)
    else:
        _print_tables(run.outcomes, rows)
    unwritten = refused(html, lambda path: write_text(path, as_page(run.outcomes, rows, seed)))
    for fault in (*run.all_faults(), *unwritten):
        _say(f"ckpt: {fault}")
    if interrupted:
        _say("ckpt: interrupted; these are the results so far")
        raise click.exceptions.Exit(INTERRUPTED)
    if run.all_faults() or unwritten:
        raise click.exceptions.Exit(BAD_DATA if run.all_faults() else UNAVAILABLE)


class _Run:
    """Plays matches with progress on stderr, and keeps what was found if that is interrupted."""

    def __init__(self, seed: int, budget: Budget) -> None:
        self._seed, self._budget = seed, budget
        self.outcomes: list[Outcome] = []
        self.faults: list[str] = []

    def play(self, played: Sequence[Match], folder: str) -> None:
        with _progress(played) as step, Interrupts() as interrupts:
            referee = Referee(folder, self._seed, self._budget, step, interrupts)
            try:
                for match in played:
                    standings = {name: Standing(name) for name in match.stores}
                    self.outcomes.append(Outcome(match.case, match.baseline, match.sizes, standings))
                    referee.play(match, self.outcomes[-1])
            finally:
                referee.close()

    def all_faults(self) -> list[str]:
        failed = (
            f"{outcome.case.name}: {store} failed and is left out from there on: {error}"
            for outcome in self.outcomes
            for store, error in outcome.errors.items()
        )
        return [*self.faults, *failed]


@contextlib.contextmanager
def _progress(played: Sequence[Match]) -> Iterator[Any]:
    """Where a run is: a bar in a terminal, and elsewhere a line for each case."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def step(case: str, what: str, number: int, total: int) -> None:
            if case not in tasks:
                tasks[case] = progress.add_task(case, total=total)
                if not console.is_terminal:
                    _say(f"{case} ({len(tasks)} of {len(played)}): up to {total} rounds")
            done = what if number < total else "done"
            progress.update(tasks[case], completed=number, description=f"{case}: {done}")

        yield step


def _print_tables(outcomes: Sequence[Outcome], rows: Sequence[Row]) -> None:
    click.echo(DIRECTION)
    for section in sections(outcomes, rows):
        click.echo(f"\n{section.title}. {section.about}\n")
        print_table(section.header, section.rows)


def _say(line: str) -> None:
    click.echo(line, err=True)
