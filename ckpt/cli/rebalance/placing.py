"""`ckpt rebalance scale`, `home` and `verify`: where the keys of a query are placed."""

from __future__ import annotations

from itertools import islice

import click

from ckpt.cli.failures import BAD_DATA
from ckpt.cli.look import json_option
from ckpt.cli.show import print_json
from ckpt.cli.stores import address_parameter
from ckpt.contract.opening import open_to_read
from ckpt.errors import ConfigError
from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import open_tables
from ckpt.spark.rebalancing.placement import misplaced, partitions_of

_MOST_SHOWN = 20


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("query")
@click.argument("partitions", type=click.IntRange(1))
def scale(address: str, query: str, partitions: int) -> None:
    """Spread the keys of a query over so many of its partitions from its next batch on.

    Partitions above that number stay and hold no keys. A query may run meanwhile; a query that is stopped
    moves its state when it goes on.
    """
    with open_to_read(address) as backend:
        known = partitions_of(backend, query)
    there = max(known.values())
    if partitions > there:
        raise ConfigError(
            f"query {query} has {there} partitions, so its keys cannot be on {partitions}; to have more, "
            "export its state, repartition it and import it again (docs/spark.md)"
        )
    with open_tables(address, query) as kept:
        for operator in sorted(known):
            table = kept.read(operator)
            if table is None:
                table = RoutingTable(there)
            stays = table.active < partitions
            kept.write(operator, RoutingTable(partitions, table.keys[stays], table.active[stays]))
    click.echo(f"the keys of {query} are on {partitions} of {there} partitions from its next batch on")


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("query")
def home(address: str, query: str) -> None:
    """Place the keys of a query where Spark's hash puts them, from its next batch on.

    Once it has run that batch it goes on without routing too, and its state can be exported.
    """
    with open_to_read(address) as backend:
        known = partitions_of(backend, query)
    there = max(known.values())
    with open_tables(address, query) as kept:
        for operator in sorted(known):
            kept.write(operator, RoutingTable(there))
    click.echo(f"the keys of {query} go home with its next batch")


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("query")
@json_option
@click.pass_context
def verify(ctx: click.Context, address: str, query: str, as_json: bool) -> None:
    """Check that every key of a query is in exactly the partition that its table says; exit code 1 if not.

    Reads all of the newest version that its stores have in common, and nothing but the store.
    """
    with open_to_read(address) as backend:
        rows = misplaced(backend, query)
        shown = list(islice(rows, _MOST_SHOWN))
        bad = len(shown) + sum(1 for _ in rows)
    if as_json:
        print_json(
            {
                "query": query,
                "misplaced": bad,
                "rows": [
                    {
                        "namespace": row.namespace,
                        "family": row.family,
                        "key": str(row.key),
                        "belongs_to": row.belongs_to,
                    }
                    for row in shown
                ],
            }
        )
    else:
        for row in shown:
            click.echo(f"{row.namespace}, {row.family}: {row.key} belongs to partition {row.belongs_to}")
        click.echo(f"{bad} misplaced rows" if bad else "every key is where its table says")
    if bad:
        ctx.exit(BAD_DATA)
