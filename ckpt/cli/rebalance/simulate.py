"""`ckpt rebalance simulate`: planners on a stream, with queues, moves and failures, beside each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import click

import ckpt.rebalance as rb
import ckpt.rebalance.simulate as sim
import ckpt.rebalance.simulate.generators as streams
from ckpt.cli.failures import UNAVAILABLE
from ckpt.cli.look import json_option
from ckpt.cli.outputs import refused, require_writable, write_text
from ckpt.cli.rebalance.courses import HEADER, html, row
from ckpt.cli.show import print_json, print_table
from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError

_WORKLOADS: Mapping[str, Any] = {
    "zipf": streams.DriftingZipf,
    "posts": streams.Posts,
    "trades": streams.Trades,
    "tweets": streams.Tweets,
    "tpch": streams.Tpch,
}
_READ: Mapping[type, Callable[[str], Any]] = {int: int, float: float, str: str}
"""How a property is read, by the type of its default; others cannot be given."""


@click.command()
@click.argument("recorded", required=False, type=click.Path(dir_okay=False))
@click.option("--workload", type=click.Choice(list(_WORKLOADS)), help="A generated stream; default: zipf.")
@click.option("-p", "properties", multiple=True, metavar="NAME=VALUE", help="Of the stream, as keys=5000.")
@click.option("--planner", "planners", multiple=True, help="Several run beside each other. Default: lag.")
@click.option("--instances", type=click.IntRange(1), default=15, show_default=True)
@click.option("--intervals", type=click.IntRange(1), default=50, show_default=True, help="At most.")
@click.option("--interval-s", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option(
    "--theta",
    type=click.FloatRange(0),
    default=0.08,
    show_default=True,
    help="By how much a load may exceed the mean.",
)
@click.option(
    "--table-limit", type=click.IntRange(0), help="Most entries of the routing table; default: any number."
)
@click.option(
    "--window", type=click.IntRange(1), default=5, show_default=True, help="How many intervals state is kept."
)
@click.option(
    "--protocol",
    type=click.Choice(list(sim.PROTOCOLS)),
    default="pause",
    show_default=True,
    help="How state moves.",
)
@click.option("--controller", is_flag=True, help="Plan when a controller says so, not after each interval.")
@click.option(
    "--max-pending",
    type=click.FloatRange(0, min_open=True),
    default=10_000.0,
    show_default=True,
    help="Tuples under way before the source is held back.",
)
@click.option("--fail", "failures", multiple=True, metavar="INSTANCE@SECONDS", help="An instance dies.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--html", "page", type=click.Path(), help="Write charts to this file.")
@json_option
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    recorded: str | None,
    workload: str | None,
    properties: Sequence[str],
    planners: Sequence[str],
    instances: int,
    intervals: int,
    interval_s: float,
    max_pending: float,
    failures: Sequence[str],
    seed: int,
    page: str | None,
    as_json: bool,
    **balancing: Any,
) -> None:
    """Run a stream on simulated instances, and compare planners.

    RECORDED is a CSV, Parquet or Arrow file with a key, an interval (or a time in seconds), and tuples, cost
    (seconds of work) and state (bytes added) in each row; without it, a stream is generated. State moves by
    the protocol while the stream goes on, and a source that instances cannot keep up with is held back.
    """
    if recorded is not None and workload is not None:
        raise ConfigError("give either a file or --workload")
    if page is not None:
        require_writable(page)
    known = rb.planner_names()
    for name in planners:
        if name not in known:
            raise ConfigError(f"no planner {name!r}; {suggestion(name, known)}")
    died = [_failure(text) for text in failures]
    own = {"instances": instances, "intervals": intervals, "interval_s": interval_s, "seed": seed}
    stream = _stream(recorded, workload or "zipf", properties, own)
    cluster = sim.Cluster(instances, interval_s, max_pending)
    results = []
    for name in dict.fromkeys(planners or ("lag",)):
        with_name = _balancing(name, **balancing)
        say = _progress(name, len(stream))
        results.append(sim.run(stream, cluster, with_name, failures=died, progress=say))
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    if as_json:
        print_json([result.document() for result in results])
    else:
        print_table(HEADER, [row(result) for result in results])
    for fault in refused(page, lambda path: write_text(path, html(results))):
        click.echo(f"ckpt: {fault}", err=True)
        ctx.exit(UNAVAILABLE)


def _balancing(
    planner: str, theta: float, table_limit: int | None, window: int, protocol: str, controller: bool
) -> sim.Balancing:
    options = rb.ControllerOptions(theta=theta) if controller else None
    moves = sim.PROTOCOLS[protocol]
    return sim.Balancing(planner, theta, table_limit, window, protocol=moves, controller=options)


def _stream(
    recorded: str | None, workload: str, properties: Sequence[str], own: Mapping[str, Any]
) -> list[sim.Interval]:
    """The intervals: those of the file, or of a generator with these properties."""
    if recorded is not None:
        if properties:
            raise ConfigError("-p is for generated streams; a recorded one is as it is")
        read = streams.read_intervals(recorded, interval_s=own["interval_s"])
        if not read:
            raise ConfigError(f"{recorded} has no rows, so there is nothing to simulate")
        return read[: own["intervals"]]
    generator = _WORKLOADS[workload]
    kinds = {field.name: type(field.default) for field in fields(generator) if field.default is not MISSING}
    settable = [name for name, kind in kinds.items() if kind in _READ and name not in own]
    given: dict[str, Any] = {name: value for name, value in own.items() if name in kinds}
    for text in properties:
        name, equals, value = text.partition("=")
        if name not in settable:
            raise ConfigError(f"workload {workload} has no property {name!r}; {suggestion(name, settable)}")
        try:
            given[name] = _READ[kinds[name]](value if equals else "")
        except ValueError:
            what = "a whole number" if kinds[name] is int else "a number"
            raise ConfigError(f"-p {text}: {name} must be {what}") from None
    return list(generator(**given))


def _failure(text: str) -> sim.Failure:
    instance, _, at_s = text.partition("@")
    try:
        return sim.Failure(float(at_s), int(instance))
    except ValueError:
        raise ConfigError(f"--fail {text}: name an instance and a time, such as 3@120") from None


def _progress(planner: str, intervals: int) -> Callable[[sim.Record], object]:
    """Says how far it is, on a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    done = 0

    def say(_: sim.Record) -> None:
        nonlocal done
        done += 1
        click.echo(f"\r\033[K{planner}: interval {done} of {intervals}", err=True, nl=False)

    return say
