"""`ckpt rebalance status`: by which tables a query's keys are placed, and what partitions and keys cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from ckpt.cli.look import json_option
from ckpt.cli.rebalance.present import bar
from ckpt.cli.show import print_json, print_table
from ckpt.cli.stores import address_parameter
from ckpt.contract.backend import Backend
from ckpt.contract.opening import open_to_read
from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import QueryLoads, QueryTables
from ckpt.spark.rebalancing.loads import BatchLoads
from ckpt.spark.rebalancing.placement import partitions_of


@dataclass(frozen=True)
class _Group:
    """The operators of one exchange, called by the first of them."""

    operator: int
    partitions: int
    table: RoutingTable
    loads: BatchLoads | None

    @property
    def heaviest(self) -> list[int]:
        """Positions of the keys in the loads, heaviest first."""
        return [] if self.loads is None else np.argsort(-self.loads.rows, kind="stable").tolist()

    def name(self, at: int) -> str:
        """What people call a key: its name, else its hash."""
        assert self.loads is not None
        return self.loads.names[at] or f"hash {int(self.loads.keys[at])}"


@click.command()
@click.argument("address", callback=address_parameter)
@click.argument("query")
@click.option(
    "--top", type=click.IntRange(0), default=10, show_default=True, help="How many of each to show."
)
@json_option
def status(address: str, query: str, top: int, as_json: bool) -> None:
    """Show where the keys of a query are placed, and the rows of its last batch by partition and by key.

    QUERY is its id, as `ckpt ls` shows it: spark/QUERY. Operators that share an exchange share a table, and
    are called by the first of them. Rows are counted in sessions with ckpt.rebalance.mode=apply.
    """
    with open_to_read(address) as backend:
        groups = list(_groups(backend, query))
    if as_json:
        print_json([_document(group) for group in groups])
        return
    for group in groups:
        table = group.table
        click.echo(
            f"operator {group.operator}: {len(table)} routes, {table.instances} of {group.partitions} "
            f"partitions active, table {table.version}"
        )
        if group.loads is None:
            click.echo("its rows were not counted yet")
            continue
        _print_loads(group, group.loads, top)


def _groups(backend: Backend, query: str) -> Sequence[_Group]:
    counted = partitions_of(backend, query)
    there = max(counted.values())
    tables, loads = QueryTables(backend, query), QueryLoads(backend, query)
    found = []
    for operator in sorted(counted):
        table, newest = tables.read(operator), loads.read(operator)
        # An operator behind the exchange of another has neither, nor has one with all rows in one partition.
        if table is not None or newest is not None:
            found.append(_Group(operator, there, RoutingTable(there) if table is None else table, newest))
    return found


def _print_loads(group: _Group, loads: BatchLoads, top: int) -> None:
    rows = loads.partitions
    total, mean, most = int(rows.sum()), float(rows.mean()), int(rows.max(initial=0))
    busiest = np.argsort(-rows, kind="stable")[:top].tolist()
    click.echo(
        f"batch {loads.batch}: {total:,} rows, the fullest partition has {_share(most, mean)} of the mean"
    )
    print_table(
        ("partition", "rows", "", "of the mean"),
        [
            (p, f"{int(rows[p]):,}", bar(int(rows[p]) / max(most, 1)), _share(int(rows[p]), mean))
            for p in busiest
        ],
    )
    places = group.table.place(loads.keys)
    heaviest = group.heaviest[:top]
    if heaviest:
        click.echo("the heaviest keys:")
        print_table(
            ("key", "rows", "of all", "partition"),
            [
                (
                    group.name(at),
                    f"{int(loads.rows[at]):,}",
                    _share(int(loads.rows[at]), total),
                    int(places[at]),
                )
                for at in heaviest
            ],
        )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _document(group: _Group) -> dict[str, Any]:
    table, loads = group.table, group.loads
    document: dict[str, Any] = {
        "operator": group.operator,
        "partitions": group.partitions,
        "active": table.instances,
        "routes": len(table),
        "table_version": table.version,
        "batch": None,
    }
    if loads is not None:
        places = table.place(loads.keys)
        document |= {
            "batch": loads.batch,
            "rows": loads.partitions.tolist(),
            "error": loads.error,
            "keys": [
                {
                    "key": group.name(at),
                    "hash": int(loads.keys[at]),
                    "rows": int(loads.rows[at]),
                    "partition": int(places[at]),
                }
                for at in group.heaviest
            ],
        }
    return document
