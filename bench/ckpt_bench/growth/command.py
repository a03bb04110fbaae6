"""`ckpt bench growth`: from the command line; tables, JSON, CSV, a page of charts, and charts as files."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click
from rich.console import Console

from ckpt.cli.failures import BAD_DATA, INTERRUPTED, UNAVAILABLE
from ckpt.cli.show import print_json, print_table
from ckpt.contract.addresses import parse_address, suggestion
from ckpt.errors import ConfigError
from ckpt_bench.growth.measure import QUICK, Contestant, Found, Growth, Plan, Step
from ckpt_bench.growth.present import ABOUT, OPERATIONS, Row, as_csv, as_markdown, as_page, rows_of, sections
from ckpt_bench.outputs import only_one, refused, require_folder, require_writable, write_charts, write_text
from ckpt_bench.stores import INSTALL_HINT, OURS, STORES, is_installed

_DEFAULT = ("log", "rocksdict", "lmdb", "sqlite3")
_KNOWN = tuple(name for name in STORES if name != "raw-append")  # which finds nothing again
_FULL = Plan()
_MOST_KEYS = 10**9


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers with commas between them; `1e6` is one too."""
    if value is None:
        return None
    try:
        found = tuple(sorted({int(float(each)) for each in value.split(",")}))
    except (ValueError, OverflowError):
        found = ()
    if not found or found[0] < 1 or found[-1] > _MOST_KEYS:
        raise click.BadParameter("numbers of keys are written like 10000,1e5,1e6, and 1e9 is the most")
    return found


@click.command(epilog=f"Stores: {', '.join(_KNOWN)}. Operations: {', '.join(OPERATIONS)}.")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option(
    "--store", "names", multiple=True, help=f"These; may be repeated. Default: {', '.join(_DEFAULT)}."
)
@click.option("--keys", callback=_numbers, help="Numbers of keys. Default: 1e4,1e5,1e6.")
@click.option("--rounds", type=click.IntRange(1), help=f"Rounds of puts and gets. Default: {_FULL.rounds}.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(0, min_open=True),
    help="Seconds for a store in a phase, before its rounds end.",
)
@click.option("--seed", type=click.IntRange(0), help="The same work in the same order. Default: a new one.")
@click.option("--quick", is_flag=True, help="Tiny sizes: does it all work?")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, writable=True),
    help="On the disk that you want to know about. Default: the system's folder for temporary files.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each operation, store and size.")
@click.option("--csv", "with_commas", is_flag=True, help="The same as CSV.")
@click.option("--markdown", is_flag=True, help="One table for a page of documentation.")
@click.option("--html", metavar="FILE", help="Write charts to this HTML file.")
@click.option("--svg", type=click.Path(file_okay=False), help="Write each chart to a file in this folder.")
def growth(
    addresses: Sequence[str],
    names: Sequence[str],
    seed: int | None,
    quick: bool,
    folder: str | None,
    as_json: bool,
    with_commas: bool,
    markdown: bool,
    html: str | None,
    svg: str | None,
    **sizes: Any,
) -> None:
    """Measure what the log and its peers cost as keys grow, up to 1e7 if you ask for it.

    At each number of keys every store is filled in a process of its own; then puts and gets, the memory of a
    key, opening and reading everything after kill -9, opening after it was closed, and garbage collection.
    ADDRESS is a store of ckpt in a new folder, such as log:///mnt/disk/new?segment_bytes=16MiB.

    The exit code is 1 if a store failed, and 130 after Ctrl-C; results so far are printed in both cases.
    """
    only_one({"--json": as_json, "--csv": with_commas, "--markdown": markdown})
    if html is not None:
        require_writable(html)
    if svg is not None:
        require_folder(svg)
    asked = {name: value for name, value in sizes.items() if value is not None}
    plan = replace(QUICK if quick else _FULL, **asked)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    chosen = _chosen(names or (() if addresses else _DEFAULT))
    _say(f"seed {seed}")
    found, taking_part, interrupted = Found(), list[str](), False
    try:
        with _places(chosen, addresses, folder) as stores, _progress() as step:
            taking_part += [store.name for store in stores]
            Growth(stores, plan, seed, found, step).run()
    except KeyboardInterrupt:
        interrupted = True
    rows = rows_of(found, taking_part, seed)
    about = (
        f"Values of {plan.value_bytes} bytes, batches of {plan.records}; {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; seed {seed}."
    )
    if as_json:
        for row in rows:
            print_json(asdict(row))
    elif with_commas:
        click.echo(as_csv(rows), nl=False)
    elif markdown:
        click.echo(as_markdown(rows), nl=False)
    else:
        _print_tables(rows, about)
    unwritten = refused(html, lambda path: write_text(path, as_page(rows, about)))
    unwritten += refused(svg, lambda into: write_charts(into, sections(rows)))
    for fault in (*found.faults, *unwritten):
        _say(f"ckpt: {fault}")
    if interrupted:
        _say("ckpt: interrupted; these are the results so far")
        raise click.exceptions.Exit(INTERRUPTED)
    if found.faults or unwritten:
        raise click.exceptions.Exit(BAD_DATA if found.faults else UNAVAILABLE)


def _chosen(names: Sequence[str]) -> list[str]:
    """Those that can take part; who cannot is named."""
    for name in names:
        if name not in _KNOWN:
            raise ConfigError(f"no store {name!r} to measure; {suggestion(name, _KNOWN)}")
    for name in names:
        if not is_installed(name):
            _say(f"left out: {name} is not installed; {INSTALL_HINT}")
    return [name for name in dict.fromkeys(names) if is_installed(name)]


@contextlib.contextmanager
def _places(names: Sequence[str], addresses: Sequence[str], folder: str | None) -> Iterator[list[Contestant]]:
    """The stores with folders of their own, which are gone afterwards."""
    with contextlib.ExitStack() as places:

        def new_folder(inside: str | None) -> str:
            return places.enter_context(tempfile.TemporaryDirectory(prefix="ckpt-bench-", dir=inside))

        for_names = new_folder(folder)
        found = [Contestant(name, for_names) for name in names]
        for text in addresses:
            address = parse_address(text)
            if address.scheme not in OURS:
                raise ConfigError(
                    f"{address}: a store is killed and copied here, so it is in a folder: log or file"
                )
            if os.path.isdir(address.path) and os.listdir(address.path):
                raise ConfigError(f"{address}: {address.path} is not empty; name a folder for this alone")
            os.makedirs(address.path, exist_ok=True)
            found.append(Contestant(str(address), new_folder(address.path), text))
        yield found


@contextlib.contextmanager
def _progress() -> Iterator[Step]:
    """Where a run is: one line that changes in a terminal, and elsewhere a line for each phase."""
    console = Console(stderr=True)
    said: list[tuple[int, str]] = []
    with console.status("") if console.is_terminal else contextlib.nullcontext() as status:

        def step(keys: int, phase: str, store: str) -> None:
            if status is not None:
                status.update(f"{keys:,} keys: {phase}: {store}")
            elif said[-1:] != [(keys, phase)]:
                said.append((keys, phase))
                _say(f"{keys:,} keys: {phase}")

        yield step


def _print_tables(rows: Sequence[Row], about: str) -> None:
    click.echo(f"{ABOUT} {about}")
    for name, section in sections(rows).items():
        click.echo(f"\n{name}. {section.about}\n")
        print_table(section.header, section.rows)


def _say(line: str) -> None:
    click.echo(line, err=True)
