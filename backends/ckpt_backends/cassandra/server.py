"""Cassandra as a server of rows, cells, ledgers and fences: what `CellServer` promises, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpt_backends.cassandra.buckets import Buckets
from ckpt_backends.cassandra.cells import CassandraCells
from ckpt_backends.cassandra.fences import Fences
from ckpt_backends.cassandra.ledger import CassandraLedgers, Names
from ckpt_backends.cassandra.link import CassandraLink
from ckpt_backends.cassandra.options import CassandraOptions
from ckpt_backends.cassandra.parts import PartStore
from ckpt_backends.cassandra.rows import CassandraRows
from ckpt_backends.cassandra.schema import Cql
from ckpt_backends.cells import CellServer


class CassandraCellServer(CellServer):
    """One session with a cluster whose tables exist."""

    def __init__(self, link: CassandraLink, options: CassandraOptions) -> None:
        self._link, self._options = link, options
        self._names = Names(link, options.prefix, options.buckets)
        self._ledgers = CassandraLedgers(link, self._names)
        fences, buckets = Fences(link, self._names), Buckets(link, self._names)
        row_parts = PartStore(link, self._names, Cql.PUT_ROW_PART, Cql.GET_ROW_PARTS, Cql.REMOVE_ROW_PARTS)
        cell_parts = PartStore(
            link, self._names, Cql.PUT_CELL_PART, Cql.GET_CELL_PARTS, Cql.REMOVE_CELL_PARTS
        )
        self._rows = CassandraRows(link, self._names, fences, buckets, row_parts, options.deleted_s)
        self._cells = CassandraCells(link, self._names, fences, buckets, cell_parts)

    # -- namespaces and ledgers ------------------------------------------------------------------

    def names(self) -> list[str]:
        return self._names.all()

    def register(self, namespace: str) -> None:
        self._names.register(namespace)

    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        return self._ledgers.load(namespace, after)

    def append(self, namespace: str, number: int, record: bytes, *, fences: bool) -> bool:
        del fences  # the fence is another partition
        return self._ledgers.append(namespace, number, record)

    def forget(self, namespace: str, below: int) -> None:
        self._ledgers.forget(namespace, below)

    # -- plain rows ------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        del exclusive
        self._rows.fence(namespace, number)

    def write_plain(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
        exclusive: bool,
    ) -> bool:
        del exclusive  # other handles that write under this fence do no harm
        return self._rows.write(namespace, puts, deletes, ttl_s=ttl_s, fence=fence)

    def read_plain(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._rows.read(namespace, keys)

    def scan_plain(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._rows.scan(namespace, prefix)

    def clear_plain(self, namespace: str) -> None:
        self._rows.clear(namespace)

    # -- cells -----------------------------------------------------------------------------------

    def new_stamp(self, namespace: str, above: int) -> int:
        return self._ledgers.new_stamp(namespace, above)

    def write_cells(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        self._cells.write(namespace, stamp, cells)

    def newest_cells(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        return self._cells.newest(namespace, bounds)

    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        return self._cells.scan(namespace, prefix, bound)

    def remove_cells(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        self._cells.remove(namespace, up_to)

    def clear_cells(self, namespace: str, up_to: int) -> None:
        self._cells.clear(namespace, up_to)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Nothing is held back: an answer says that as many replicas as asked for have the write."""

    def close(self) -> None:
        self._link.close()

    def details(self) -> Mapping[str, int | float | str]:
        nodes = self._link.nodes()
        return {
            "release": self._link.release(),
            "nodes": sum(nodes.values()),
            "data_centres": ", ".join(sorted(nodes)),
            "consistency": self._options.consistency.value,
        }
