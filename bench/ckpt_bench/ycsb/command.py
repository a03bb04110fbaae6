"""`ckpt bench load` and `ckpt bench run`: YCSB's command line on the address of a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ckpt.cli.failures import BAD_DATA, INTERRUPTED, UNAVAILABLE
from ckpt.cli.stores import address_parameter
from ckpt.errors import ConfigError
from ckpt_bench.outputs import reason_of, require_writable, write_text
from ckpt_bench.ycsb.exporters import EXPORTERS
from ckpt_bench.ycsb.page import page_of
from ckpt_bench.ycsb.properties import gathered
from ckpt_bench.ycsb.session import Phase, Results
from ckpt_bench.ycsb.settings import Settings, settings_of

_BUNDLED = Path(__file__).parent / "workloads"
_IN_CHECKOUT = Path(__file__).parents[3] / "configs" / "workloads"


def workload_file(name: str) -> str:
    """The path of a workload: a file, or one of those that come along, by its name."""
    if os.path.isdir(name):
        raise ConfigError(f"-P {name} is a folder; name a workload file in it")
    if os.path.exists(name):
        return name
    for folder in (_BUNDLED, _IN_CHECKOUT):
        if os.sep not in name and (folder / name).is_file():
            return str(folder / name)
    known = sorted({path.name for folder in (_BUNDLED, _IN_CHECKOUT) for path in folder.glob("[a-z]*")})
    raise ConfigError(f"no workload file {name!r}; give a path, or one of {', '.join(known)}")


def _workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.argument("address", callback=address_parameter),
            click.option(
                "-P",
                "files",
                multiple=True,
                metavar="FILE",
                help="Properties of a workload: a file, or workloada to workloadf, checkpoint. Later wins.",
            ),
            click.option(
                "-p", "pairs", multiple=True, metavar="NAME=VALUE", help="One property; wins over files."
            ),
            click.option(
                "--threads", "-threads", type=click.IntRange(1), help="Threads (threadcount). Default: 1."
            ),
            click.option(
                "--target", "-target", type=click.FloatRange(0), help="Operations per second (target)."
            ),
            click.option(
                "-s", "status", is_flag=True, help="Status on stderr every status.interval seconds."
            ),
            click.option("--label", "-l", help="Put before each line of status (label)."),
            click.option("--json", "as_json", is_flag=True, help="Results as JSON (exporter=json)."),
            click.option(
                "--html",
                type=click.Path(dir_okay=False, writable=True),
                help="Write a page with charts to this file.",
            ),
        ]
    ):
        command = option(command)
    return command


@click.command()
@_workload_options
def load(address: str, **options: Any) -> None:
    """Insert the records of a workload into the store at ADDRESS.

    Workload files, properties and output are YCSB's. The table is a namespace; a record is one checkpoint.
    """
    _carry_out(address, Phase.load, **options)


@click.command()
@_workload_options
def run(address: str, **options: Any) -> None:
    """Carry out the operations of a workload on the store at ADDRESS, which `load` has filled.

    Workload files, properties and output are YCSB's. The exit code is 1 if an operation failed.
    """
    _carry_out(address, Phase.run, **options)


def _carry_out(
    address: str,
    phase: Callable[[Phase], Results],
    files: Sequence[str],
    pairs: Sequence[str],
    html: str | None,
    **flags: Any,
) -> None:
    settings = _settings(files, pairs, **flags)
    for path in (*settings.files, *([html] if html is not None else [])):
        require_writable(path)
    results = phase(Phase(address, settings, _say, sys.stdout))
    late = (_export(results, settings), _draw(results, settings, html))
    unwritten = [*results.unwritten, *(each for each in late if each is not None)]
    for fault in (*results.faults, *unwritten):
        _say(f"ckpt: {fault}")
    if results.interrupted:
        _say(f"ckpt: interrupted; these are the results so far: {results.reached}")
        raise click.exceptions.Exit(INTERRUPTED)
    if results.faults:
        raise click.exceptions.Exit(BAD_DATA)
    if unwritten:
        raise click.exceptions.Exit(UNAVAILABLE)


def _export(results: Results, settings: Settings) -> str | None:
    """Into the file; if the disk is full by now, results are worth more on stdout than nowhere."""
    exported = EXPORTERS[settings.exporter](results.rows)
    refusal = _write(settings.exportfile, exported) if settings.exportfile else None
    if refusal is not None or not settings.exportfile:
        click.echo(exported, nl=False)
    return refusal and f"{refusal}; the results are on stdout instead"


def _draw(results: Results, settings: Settings, html: str | None) -> str | None:
    refusal = None if html is None else _write(html, page_of(results, settings))
    return refusal and f"{refusal}; the results are whole: for the page make room, and run again"


def _write(path: str, text: str) -> str | None:
    """None if the text is in the file; else why not."""
    try:
        write_text(path, text)
    except OSError as error:
        return f"cannot write {path}: {reason_of(error)}"
    return None


def _settings(
    files: Sequence[str],
    pairs: Sequence[str],
    *,
    threads: int | None,
    target: float | None,
    status: bool,
    label: str | None,
    as_json: bool,
) -> Settings:
    properties = gathered([workload_file(name) for name in files], pairs)
    flags = {
        "threadcount": threads,
        "target": target,
        "status": "true" if status else None,
        "label": label,
        "exporter": "json" if as_json else None,
    }
    properties.update({name: str(value) for name, value in flags.items() if value is not None})
    return settings_of(properties, _say)


def _say(line: str) -> None:
    click.echo(line, err=True)
