"""`dev`: real servers for development and tests on this machine. The servers are `ckpt.dev`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ckpt.cli.failures import OneLineErrors
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json, print_table
from ckpt.dev import NAMES, fleet
from ckpt.dev.install import INSTALLABLE
from ckpt.dev.install import install as install_for
from ckpt.dev.kinds import checked
from ckpt.errors import CkptError, ConfigError

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])
Say = Callable[[str, str], None]
"""Takes a server and one line about it."""


def _names_of(known: tuple[str, ...]) -> Callable[[Command], Command]:
    """The argument that takes some of these names; without any it means all of them."""

    def names(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(checked(name, known) for name in value)) or known
        except ConfigError as error:
            raise click.BadParameter(str(error)) from None

    return click.argument("names", nargs=-1, callback=names, metavar=f"[{'|'.join(known)}]...")


names_argument = _names_of(NAMES)


@click.group(cls=OneLineErrors)
def dev() -> None:
    """Start and stop real servers for development and tests.

    They run on this machine only, one of each kind, without Docker: Redis, HBase with its Thrift server,
    Cassandra, and S3Proxy as S3. Without names, a command is about all of them.
    """


@dev.command()
@names_argument
def up(names: tuple[str, ...]) -> None:
    """Start servers unless they run, wait until they answer, and print their addresses."""
    cancelled = threading.Event()

    def start(name: str, say: Say) -> str:
        ran = name in fleet.status()
        began = time.monotonic()
        address = fleet.up(name, report=lambda line: say(name, line), cancelled=cancelled).address
        say(name, "runs already" if ran else f"answers after {time.monotonic() - began:.1f} s")
        return address

    addresses, errors = _each(names, start, cancelled)
    if addresses:
        print_table(["server", "address"], list(addresses.items()))
    _fail_if_any(errors)


@dev.command()
@json_option
def status(as_json: bool) -> None:
    """Show which servers run, with their addresses and processes."""
    running = fleet.status()
    if as_json:
        print_json(msgspec.to_builtins(running))
        return
    rows = [
        (name, running[name].address, ", ".join(map(str, running[name].pids)))
        if name in running
        else (name, "does not run", "-")
        for name in NAMES
    ]
    print_table(["server", "address", "pids"], rows)


@dev.command()
@names_argument
@click.option("--wipe", is_flag=True, help="Remove their data as well.")
def down(names: tuple[str, ...], wipe: bool) -> None:
    """Stop servers; their data stays, and so do their ports."""

    def stop(name: str, say: Say) -> bool:
        return fleet.down(name, wipe=wipe, report=lambda line: say(name, line))

    stopped, errors = _each(names, stop)
    for name, ran in stopped.items():
        click.echo(f"{name} {'stopped' if ran else 'does not run'}{', data removed' if wipe else ''}")
    _fail_if_any(errors)


@dev.command()
@_names_of(INSTALLABLE)
def install(names: tuple[str, ...]) -> None:
    """Put on this machine what the servers need, and Chromium for the tests, as far as that is allowed."""

    def put(name: str, say: Say) -> None:
        install_for(name, report=lambda line: say(name, line))

    _fail_if_any(_each(names, put)[1])


def _each(
    names: tuple[str, ...],
    work: Callable[[str, Say], Result],
    cancelled: threading.Event | None = None,
) -> tuple[dict[str, Result], list[CkptError]]:
    """Do something for each server, all at once; the results by name, and what went wrong."""
    results: dict[str, Result] = {}
    errors: list[CkptError] = []
    with _progress(names) as say, ThreadPoolExecutor(len(names), "ckpt-dev") as pool:
        futures = {name: pool.submit(work, name, say) for name in names}
        try:
            for name, future in futures.items():
                try:
                    results[name] = future.result()
                except CkptError as error:
                    say(name, "failed")
                    errors.append(error)
        except KeyboardInterrupt:
            if cancelled is not None:
                cancelled.set()
            raise
    return results, errors


def _fail_if_any(errors: list[CkptError]) -> None:
    for error in errors[:-1]:
        click.echo(f"ckpt: {error}", err=True)
    if errors:
        raise errors[-1]


@contextmanager
def _progress(names: tuple[str, ...]) -> Iterator[Say]:
    """One line per server that changes in place; without a terminal, a new line each time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda name, line: click.echo(f"{name}: {line}", err=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.fields[name]}"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        tasks = {name: progress.add_task("", total=None, name=name) for name in names}
        yield lambda name, line: progress.update(tasks[name], description=line)
