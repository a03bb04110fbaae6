"""`ckpt rebalance plan`: a plan for the loads in a file, or the plans of all planners beside each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

import ckpt.rebalance as rb
from ckpt.cli.failures import BAD_DATA, UNAVAILABLE
from ckpt.cli.look import json_option
from ckpt.cli.outputs import refused, require_writable, write_text
from ckpt.cli.rebalance.page import comparison_page, plan_page
from ckpt.cli.rebalance.present import COMPARISON, compared, document, instances, key_rows, summary
from ckpt.cli.show import print_json, print_table
from ckpt.errors import ConfigError

_EXACT_MOST = 5000
"""Above so many pairs of key and instance, the exact planner takes too long to be one of many."""
_QUADRATIC = frozenset({"dlb-l", "mixed-bf", "readj"})
_QUADRATIC_MOST = 200_000
"""Above so many keys, planners that look at pairs of moves take minutes."""


@click.command()
@click.argument("loads", type=click.Path(dir_okay=False))
@click.option("--planner", default="lag", show_default=True, help="Its name; --compare lists them.")
@click.option("--instances", type=click.IntRange(1), help="Default: those that the file names.")
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
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="How many keys to show.")
@click.option("--compare", is_flag=True, help="One row for each planner, instead of one plan.")
@json_option
@click.option("--html", metavar="FILE", help="Write a page with charts to this file.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    loads: str,
    planner: str,
    top: int,
    compare: bool,
    as_json: bool,
    html: str | None,
    **limits: Any,
) -> None:
    """Plan which keys move; nothing is carried out.

    LOADS is a CSV, Parquet or Arrow file with the columns key, instance, cost and state (bytes), and home
    and rows where they are known. Exit code 1: the plan must not be applied, since the table would not fit.
    """
    if html is not None:
        require_writable(html)
    known = rb.read_loads(loads)
    if compare:
        plans = list(_all_plans(known, limits))
        if as_json:
            print_json([document(each) for each in plans])
        else:
            print_table(COMPARISON, [compared(each) for each in plans])
        _write(ctx, html, lambda: comparison_page(plans, loads))
        return
    made = rb.plan(known, planner, **limits)
    if as_json:
        print_json(document(made))
    else:
        _print(made, top)
    _write(ctx, html, lambda: plan_page(made, loads, top))
    if made.status is rb.Status.INFEASIBLE:
        ctx.exit(BAD_DATA)


def _print(made: rb.Plan, top: int) -> None:
    lines = summary(made)
    width = max(len(what) for what, _ in lines)
    for what, value in lines:
        click.echo(f"{what:{width}}  {value}")
    for title, table in (("", instances(made)), (f"The {top} heaviest keys:", key_rows(made, top))):
        click.echo(f"\n{title}" if title else "")
        print_table(*table)


def _write(ctx: click.Context, html: str | None, made: Callable[[], str]) -> None:
    """Write the page; what was printed is whole without it."""
    for fault in refused(html, lambda path: write_text(path, made())):
        click.echo(f"ckpt: {fault}", err=True)
        ctx.exit(UNAVAILABLE)


def _all_plans(loads: rb.Loads, limits: dict[str, Any]) -> Iterator[rb.Plan]:
    """The plans of all planners that can be expected to end soon; which of them works is said meanwhile."""
    shows = sys.stderr.isatty()
    for name in rb.planner_names():
        if why := _takes_too_long(name, loads, limits["instances"]):
            click.echo(f"{name} is left out: {why}", err=True)
            continue
        if shows:
            click.echo(f"\r\033[K{name} plans", err=True, nl=False)
        try:
            yield rb.plan(loads, name, **limits)
        except ConfigError as error:
            click.echo(f"{name} is left out: {error}", err=True)
    if shows:
        click.echo("\r\033[K", err=True, nl=False)


def _takes_too_long(name: str, loads: rb.Loads, instances: int | None) -> str:
    count = loads.instances if instances is None else instances
    if name == "exact" and len(loads) * count > _EXACT_MOST:
        return f"it is for a few dozen keys, and these are {len(loads):,}"
    if name in _QUADRATIC and len(loads) > _QUADRATIC_MOST:
        return f"it would take minutes for {len(loads):,} keys"
    return ""
