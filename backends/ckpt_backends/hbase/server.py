"""HBase as a server of rows, cells, ledgers and fences; what a namespace is stands in one row of `meta`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpt.errors import ConfigError
from ckpt_backends.cells.server import CellServer
from ckpt_backends.hbase import rows
from ckpt_backends.hbase.connections import Connections
from ckpt_backends.hbase.head_writers import HeadWriters
from ckpt_backends.hbase.ledger import RowLedger
from ckpt_backends.hbase.options import HBaseOptions
from ckpt_backends.hbase.plain import PlainWriter
from ckpt_backends.hbase.plain_reading import PlainReader
from ckpt_backends.hbase.rows import RowNames
from ckpt_backends.hbase.table import CELLS, DATA, META, Found, Table
from ckpt_backends.hbase.values import Values

_NAME = META + b":name"
_STAMP = META + b":stamp"
_NOT_WHOLE = b""
"""What is read of a cell whose parts are missing: the checksum of values will tell."""


class HBaseCellServer(CellServer):
    """One table of HBase behind its Thrift server, open for requests of any number of threads."""

    scans_every_cell = False

    def __init__(self, connections: Connections, table: str, options: HBaseOptions) -> None:
        self._connections = connections
        self._options = options
        self._table = Table(connections, table)
        self._names = RowNames(options.prefix)
        self._ledger = RowLedger(self._table)
        self._cells = Values(self._table, CELLS)
        self._head_writers = HeadWriters(self._table, self._names, options.timeout_s)
        data = Values(self._table, DATA)
        self._reader = PlainReader(self._table, data, self._head_writers)
        self._writer = PlainWriter(self._table, data, self._head_writers, self._reader)

    def ensure_store(self) -> None:
        """Make the table if it is not there; with `mode=read` raise instead. May be repeated."""
        if self._options.mode == "write":
            self._table.ensure(self._options.compression)
        elif not self._table.exists() or not self.names():
            raise ConfigError(
                f"there is no store in table {self._table.name!r} of HBase at {self._connections.endpoint}; "
                "check the address and its prefix"
            )

    # -- namespaces ------------------------------------------------------------------------------

    def names(self) -> list[str]:
        first = self._names.all_meta
        pages = self._table.scan(first, rows.after_all(first), _NAME)
        return [self._names.namespace(row) for page in pages for row, _, _ in page]

    def register(self, namespace: str) -> None:
        self._table.put(self._names.meta(namespace), {_NAME: b"1"})

    # -- the ledger ------------------------------------------------------------------------------

    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        return self._ledger.load(self._names.meta(namespace), after)

    def append(self, namespace: str, number: int, record: bytes, *, fences: bool) -> bool:
        del fences
        row = self._names.meta(namespace)
        attempt = self._ledger.prepare(row, number, record)
        if attempt is None:
            return False
        self._table.put(row, {attempt.column: attempt.cell})
        return self._ledger.decide(row, attempt)

    def forget(self, namespace: str, below: int) -> None:
        self._ledger.forget(self._names.meta(namespace), below)

    # -- plain rows ------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        self._writer.fence(namespace, number, exclusive=exclusive)

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
        # HBase would show an older version of a row again when the time of the newest one is over.
        del ttl_s, exclusive
        return self._writer.write(namespace, puts, deletes, fence)

    def read_plain(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._reader.read(namespace, keys)

    def scan_plain(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._reader.scan(namespace, prefix)

    def clear_plain(self, namespace: str) -> None:
        self._writer.clear(namespace)

    # -- cells -----------------------------------------------------------------------------------

    def new_stamp(self, namespace: str, above: int) -> int:
        row = self._names.meta(namespace)
        stamp = self._table.increment(row, _STAMP, 1)
        if stamp <= above:
            stamp = self._table.increment(row, _STAMP, above + 1 - stamp)
        return stamp

    def write_cells(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        self._cells.write(self._names.data(namespace), stamp, cells)

    def commit(
        self, namespace: str, number: int, record: bytes, stamp: int, cells: Mapping[bytes, bytes]
    ) -> bool:
        row = self._names.meta(namespace)
        attempt = self._ledger.prepare(row, number, record)
        if attempt is None:
            return False
        # The record is written with the last of the cells; it counts after all of them are there.
        others = [(row, attempt.column, attempt.cell)]
        self._cells.write(self._names.data(namespace), stamp, cells, others=others)
        return self._ledger.decide(row, attempt)

    def newest_cells(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        start = self._names.data(namespace)
        by_bound: dict[int, list[bytes]] = {}
        asked = {rows.row_of(start, key): key for key in bounds}
        for row, key in asked.items():
            by_bound.setdefault(bounds[key], []).append(row)
        found: Found = {}
        for bound, alike in by_bound.items():
            found.update(self._table.newest(alike, self._cells.column, bound + 1))
        return {asked[row]: (stamp, cell) for row, _, stamp, cell in self._whole(start, found)}

    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        start = self._names.data(namespace)
        first, stop = rows.scan_range(start, prefix)
        found = (
            one
            for page in self._table.scan(first, stop, self._cells.column, below=bound + 1)
            for one in self._whole(start, {row: (stamp, raw) for row, stamp, raw in page})
        )
        for _, key, stamp, cell in rows.in_key_order(start, found):
            if key.startswith(prefix):
                yield key, stamp, cell

    def remove_cells(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        start = self._names.data(namespace)
        by_stamp: dict[int, list[bytes]] = {}
        for key, stamp in up_to.items():
            by_stamp.setdefault(stamp, []).append(rows.row_of(start, key))
        for stamp, doomed in by_stamp.items():
            self._table.remove(doomed, CELLS, stamp)

    def clear_cells(self, namespace: str, up_to: int) -> None:
        start = self._names.data(namespace)
        stop = rows.after_all(start)
        for page in self._table.scan(start, stop, CELLS, below=up_to + 1, keys_only=True):
            self._table.remove([row for row, _, _ in page], CELLS, up_to)

    def _whole(self, start: bytes, found: Found) -> Iterator[tuple[bytes, bytes, int, bytes]]:
        """(row, key, stamp, cell), in the same order."""
        stored = ((row, stamp, rows.decode(raw)) for row, (stamp, raw) in found.items())
        for (row, stamp, one), cell in self._cells.whole(stored):
            if cell is None:
                # Parts are removed together with the cell that names them.
                if row not in self._table.newest([row], self._cells.column, stamp + 1):
                    continue
                cell = _NOT_WHOLE
            yield row, rows.key_of(start, row, one), stamp, cell

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Nothing is left to do: HBase has synced its write-ahead log before it acknowledged a write."""

    def close(self) -> None:
        self._head_writers.close()
        self._connections.close()

    def details(self) -> Mapping[str, int | float | str]:
        return {"table": self._table.name, "regions": self._table.regions()}
