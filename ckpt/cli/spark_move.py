"""`spark import` and `spark export`: a query's state changes its provider. The logic is `ckpt.spark.Move`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckpt.cli.show import print_table
from ckpt.spark import Keeper, Move, moving
from ckpt.spark.moving import MovePlan, MoveProgress

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be moved, and change nothing."
)
conf_option = click.option(
    "--conf",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _parameter, values: dict(map(_setting, values)),
    help="A setting for the Spark session that moves the state, as of spark-submit; may be repeated.",
)


@click.command("import")
@click.argument("checkpoint")
@click.argument("address")
@dry_run_option
@conf_option
def import_(checkpoint: str, address: str, dry_run: bool, settings: dict[str, str]) -> None:
    """Take the state of a query from Spark's default or RocksDB provider.

    CHECKPOINT is the query's checkpointLocation, wherever Spark can read it. Stop the query first. It goes on
    with its next batch once its session keeps state at ADDRESS (see `ckpt spark conf`).
    """
    _move(checkpoint, address, Keeper.CKPT, settings, dry_run=dry_run)


@click.command()
@click.argument("checkpoint")
@click.argument("address")
@click.option(
    "--provider",
    type=click.Choice([Keeper.DEFAULT.value, Keeper.ROCKSDB.value]),
    default=Keeper.DEFAULT.value,
    show_default=True,
    help="Spark's provider that gets the state.",
)
@dry_run_option
@conf_option
def export(checkpoint: str, address: str, provider: str, dry_run: bool, settings: dict[str, str]) -> None:
    """Give the state of a query back to a provider of Spark.

    CHECKPOINT is the query's checkpointLocation, and its state is at ADDRESS. Stop the query first.
    """
    _move(checkpoint, address, Keeper(provider), settings, dry_run=dry_run)


def _move(checkpoint: str, address: str, target: Keeper, settings: dict[str, str], *, dry_run: bool) -> None:
    with moving.moving_session(address, settings) as session:
        move = Move(session, checkpoint, target)
        if dry_run:
            _print_plan(move.plan)
            return
        with _progress_bar(move.plan.total_stores) as show:
            moved = move.run(show)
    click.echo(
        f"moved the state after batch {move.plan.batch} from {move.plan.source} to {target}: "
        f"{moved.rows:,} rows of {moved.stores:,} stores"
    )
    click.echo(
        f"kept as they were: {', '.join(path.removeprefix(move.plan.checkpoint) for path in moved.kept)}"
    )


def _print_plan(plan: MovePlan) -> None:
    again = "" if plan.planned is None else f"; batch {plan.planned} is planned and will be run"
    click.echo(
        f"{plan.checkpoint}: the state after batch {plan.batch}, from {plan.source} to {plan.target}{again}"
    )
    print_table(
        ["operator", "name", "store", "partitions", "families"],
        [(each.operator, each.name, each.store, each.partitions, len(each.families)) for each in plan.stores],
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


@contextmanager
def _progress_bar(total_stores: int) -> Iterator[Callable[[MoveProgress], None]]:
    """Shows progress where a person watches; in a pipe or a log it stays silent."""
    columns = (TextColumn("stores"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        if not bar.console.is_terminal:
            bar.disable = True
        task = bar.add_task("", total=total_stores)

        def show(now: MoveProgress) -> None:
            bar.update(task, completed=now.stores, description=f"{now.rows:,} rows")

        yield show
