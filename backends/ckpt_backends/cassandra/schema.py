"""The tables of a store, made where they are missing, and every statement that is ever sent to them.

```
namespaces   (prefix) namespace                     buckets
ledger       (prefix, namespace) number             record; of the whole partition: head, stamps
fences       (prefix, namespace)                    fence, settled, mark, intents, big_rows, big_cells
rows         (prefix, namespace, bucket) key        value
cells        (prefix, namespace, bucket) key stamp  value
row_parts    (prefix, namespace, key) part n        data
cell_parts   (prefix, namespace, key) part n        data
```

Columns in brackets are the partition key. No column is written both with and without a condition, because the
two take their times from different clocks: `head`, `stamps`, `record`, `fence` and `buckets` always are, the
others never. (Records are forgotten without one; their numbers are never used again.)

Deleted rows are not tombstones of Cassandra, which a scan would have to wade through: they are rows that
say so, and expire, not all at once. So a short `gc_grace_seconds` is safe for rows, and what expires never
becomes a wall of tombstones either. Removed cells are tombstones. With a single replica nothing can come
back, and their grace is 0; with several it is as long as deleted rows are remembered.
"""

from __future__ import annotations

import enum
from typing import Final

from ckpt.errors import ConfigError
from ckpt_backends.cassandra.link import CassandraLink, text
from ckpt_backends.cassandra.options import CassandraOptions

_WHOLE: Final = "prefix=? AND namespace=?"
_BUCKET: Final = f"{_WHOLE} AND bucket=?"
_PARTS: Final = f"{_WHOLE} AND key=?"


class Cql(enum.StrEnum):
    """Every statement; `{}` stands for the keyspace."""

    # -- namespaces, ledger, stamps ------------------------------------------------------------------
    LIST_NAMES = "SELECT namespace, buckets FROM {}.namespaces WHERE prefix=?"
    READ_NAME = f"SELECT buckets FROM {{}}.namespaces WHERE {_WHOLE}"
    ADD_NAME = "INSERT INTO {}.namespaces (prefix, namespace, buckets) VALUES (?,?,?) IF NOT EXISTS"
    LOAD = f"SELECT number, record FROM {{}}.ledger WHERE {_WHOLE} AND number > ?"
    MOVE_HEAD = f"UPDATE {{}}.ledger SET head=? WHERE {_WHOLE} IF head=?"
    ADD_RECORD = "INSERT INTO {}.ledger (prefix, namespace, number, record) VALUES (?,?,?,?)"
    FORGET = f"DELETE FROM {{}}.ledger WHERE {_WHOLE} AND number < ?"
    READ_STAMPS = f"SELECT stamps FROM {{}}.ledger WHERE {_WHOLE} LIMIT 1"
    MOVE_STAMPS = f"UPDATE {{}}.ledger SET stamps=? WHERE {_WHOLE} IF stamps=?"
    # -- fences --------------------------------------------------------------------------------------
    LOOK = f"SELECT fence, settled, mark, big_rows, big_cells FROM {{}}.fences WHERE {_WHOLE}"
    READ_INTENTS = f"SELECT fence, mark, intents FROM {{}}.fences WHERE {_WHOLE}"
    RAISE = f"UPDATE {{}}.fences SET fence=? WHERE {_WHOLE} IF fence=?"
    SETTLE = f"UPDATE {{}}.fences SET settled=? WHERE {_WHOLE}"
    ANNOUNCE = f"UPDATE {{}}.fences SET mark=?, intents[?]=? WHERE {_WHOLE}"
    WITHDRAW = f"DELETE intents[?] FROM {{}}.fences USING TIMESTAMP ? WHERE {_WHOLE}"
    MARK_BIG_ROWS = f"UPDATE {{}}.fences SET big_rows=true WHERE {_WHOLE}"
    MARK_BIG_CELLS = f"UPDATE {{}}.fences SET big_cells=true WHERE {_WHOLE}"
    # -- rows ----------------------------------------------------------------------------------------
    PUT = f"UPDATE {{}}.rows SET value=? WHERE {_BUCKET} AND key=?"
    PUT_FOR = f"UPDATE {{}}.rows USING TTL ? SET value=? WHERE {_BUCKET} AND key=?"
    PUT_AT = f"UPDATE {{}}.rows USING TTL ? AND TIMESTAMP ? SET value=? WHERE {_BUCKET} AND key=?"
    GET = f"SELECT key, value FROM {{}}.rows WHERE {_BUCKET} AND key IN ?"
    GET_WITH_TTL = f"SELECT key, value, TTL(value) FROM {{}}.rows WHERE {_BUCKET} AND key IN ?"
    SCAN = f"SELECT key, value FROM {{}}.rows WHERE {_BUCKET} AND key >= ?"
    SCAN_BELOW = f"{SCAN} AND key < ?"
    CLEAR = f"DELETE FROM {{}}.rows USING TIMESTAMP ? WHERE {_BUCKET} AND key >= 0x"
    # -- cells ---------------------------------------------------------------------------------------
    PUT_CELL = f"UPDATE {{}}.cells SET value=? WHERE {_BUCKET} AND key=? AND stamp=?"
    NEWEST = (
        f"SELECT key, stamp, value FROM {{}}.cells WHERE {_BUCKET} AND key IN ? AND stamp <= ? "
        "GROUP BY prefix, namespace, bucket, key"
    )
    SCAN_CELLS = f"SELECT key, stamp, value FROM {{}}.cells WHERE {_BUCKET} AND key >= ?"
    SCAN_CELLS_BELOW = f"{SCAN_CELLS} AND key < ?"
    REMOVE = f"DELETE FROM {{}}.cells USING TIMESTAMP ? WHERE {_BUCKET} AND key=?"
    CLEAR_CELLS = f"DELETE FROM {{}}.cells USING TIMESTAMP ? WHERE {_BUCKET}"
    # -- parts of large values -----------------------------------------------------------------------
    PUT_ROW_PART = f"UPDATE {{}}.row_parts USING TTL ? SET data=? WHERE {_PARTS} AND part=? AND n=?"
    GET_ROW_PARTS = f"SELECT n, data FROM {{}}.row_parts WHERE {_PARTS} AND part=?"
    REMOVE_ROW_PARTS = f"DELETE FROM {{}}.row_parts USING TIMESTAMP ? WHERE {_PARTS}"
    PUT_CELL_PART = f"UPDATE {{}}.cell_parts USING TTL ? SET data=? WHERE {_PARTS} AND part=? AND n=?"
    GET_CELL_PARTS = f"SELECT n, data FROM {{}}.cell_parts WHERE {_PARTS} AND part=?"
    REMOVE_CELL_PARTS = f"DELETE FROM {{}}.cell_parts USING TIMESTAMP ? WHERE {_PARTS}"


_NAME = "prefix text, namespace text"
_TABLES = {
    "namespaces": f"{_NAME}, buckets int, PRIMARY KEY ((prefix), namespace)",
    "ledger": f"{_NAME}, number bigint, head bigint static, stamps bigint static, record blob, "
    "PRIMARY KEY ((prefix, namespace), number)",
    "fences": f"{_NAME}, fence bigint, settled bigint, mark bigint, intents map<blob, blob>, "
    "big_rows boolean, big_cells boolean, PRIMARY KEY ((prefix, namespace))",
    "rows": f"{_NAME}, bucket int, key blob, value blob, PRIMARY KEY ((prefix, namespace, bucket), key)",
    "cells": f"{_NAME}, bucket int, key blob, stamp bigint, value blob, "
    "PRIMARY KEY ((prefix, namespace, bucket), key, stamp)",
    "row_parts": f"{_NAME}, key blob, part blob, n int, data blob, "
    "PRIMARY KEY ((prefix, namespace, key), part, n)",
    "cell_parts": f"{_NAME}, key blob, part blob, n int, data blob, "
    "PRIMARY KEY ((prefix, namespace, key), part, n)",
}
_NEWEST_FIRST = "CLUSTERING ORDER BY (key ASC, stamp DESC)"
_SHORT_GRACE_S = 600
"""How long hints for replicas that are away are kept."""
_MOST_REPLICAS = 3


def prepare(link: CassandraLink, options: CassandraOptions) -> None:
    """Make sure that every table exists, and prepare all statements, so that no later call waits for it."""
    if not _is_complete(link):
        if options.mode == "read":
            raise ConfigError(
                f"there is no store in keyspace {link.keyspace} of {link.at}; open it for writing once, or "
                "check the address"
            )
        _create(link, options)
    link.prepare(Cql)
    if options.mode == "read" and not link.ask(Cql.LIST_NAMES, text(options.prefix), level=link.quorum):
        raise ConfigError(
            f"there is no store with prefix {options.prefix!r} in keyspace {link.keyspace} of {link.at}; "
            "check the address and its prefix"
        )


def _is_complete(link: CassandraLink) -> bool:
    rows = link.run(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = {_quoted(link)}")
    return set(_TABLES) <= {row[0] for row in rows}


def _create(link: CassandraLink, options: CassandraOptions) -> None:
    settings = ", ".join(f"'{name}': '{value}'" for name, value in _replication(link, options).items())
    link.run(f"CREATE KEYSPACE IF NOT EXISTS {{}} WITH replication = {{{settings}}}")
    # It may have been made before, with other settings.
    rows = link.run(f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = {_quoted(link)}")
    replicas = sum(int(value) for value in rows[0][0].values() if value.isdigit())
    for table, columns in _TABLES.items():
        grace_s = 0 if replicas == 1 else int(options.deleted_s)
        if table in ("rows", "fences"):
            grace_s = _SHORT_GRACE_S
        order = f"{_NEWEST_FIRST} AND " if table == "cells" else ""
        link.run(
            f"CREATE TABLE IF NOT EXISTS {{}}.{table} ({columns}) WITH {order}gc_grace_seconds = {grace_s}"
        )


def _quoted(link: CassandraLink) -> str:
    return link.keyspace.replace('"', "'")


def _replication(link: CassandraLink, options: CassandraOptions) -> dict[str, str]:
    nodes = link.nodes()
    wanted = options.replication
    if wanted is None or ":" not in wanted:
        return {
            "class": "NetworkTopologyStrategy",
            **{centre: wanted or str(min(count, _MOST_REPLICAS)) for centre, count in nodes.items()},
        }
    per_centre = dict(part.split(":") for part in wanted.split(","))
    if unknown := set(per_centre) - set(nodes):
        raise ConfigError(
            f"replication names a data centre that {link.at} does not have: {', '.join(sorted(unknown))}; "
            f"there are {', '.join(sorted(nodes))}"
        )
    return {"class": "NetworkTopologyStrategy", **per_centre}
