"""One HBase table in the few verbs that the backend needs; each request is bounded in size and in time.

Families, all with a ROW bloom filter and the block cache on:

| family | holds | versions kept |
| --- | --- | --- |
| `data` | `data:checkpoint`, the state of a plain key, as in the thesis; `data:p0` …, its parts | 5 |
| `cells` | the same for the commits of versioned namespaces: the timestamp of a cell is its stamp | all |
| `meta` | what is known about each namespace | 1 |

Why 5: what counts lies below what is being written, or was left by writers that died. HBase may forget a
version only when five newer ones of the same key exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckpt.errors import CkptError, ConfigError
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase.connections import AlreadyThereError, Connections, NoTableError, thrift
from ckpt_backends.hbase.options import HBaseCompression, Transport

DATA, CELLS, META = b"data", b"cells", b"meta"
DATA_VERSIONS = 5
ALL_VERSIONS = 2**31 - 1

_REQUEST_BYTES = 4 << 20
_FRAME_BYTES = 3 << 19
"""A Thrift server takes no longer frames than 2 MiB by default."""
_REQUEST_ROWS = 2000
_ANSWER_BYTES = 4 << 20
_ANSWER_ROWS = 1000
_FIRST_PAGE_ROWS = 32
_PARTS_AT_ONCE = 4
_ROW_OVERHEAD_BYTES = 64

Columns = tuple[bytes, bytes, bytes]
"""(row, column, cell)."""
Found = dict[bytes, tuple[int, bytes]]
"""Row to (timestamp, cell) of one column."""


class Table:
    """A table of which every request either was answered whole or raised."""

    def __init__(self, connections: Connections, name: str) -> None:
        self._call = connections.call
        self.name = name
        self._table = name.encode()
        self._at = str(connections.endpoint)
        is_framed = connections.endpoint.options.transport is Transport.FRAMED
        self._request_bytes = _FRAME_BYTES if is_framed else _REQUEST_BYTES

    # -- the table itself ------------------------------------------------------------------------

    def ensure(self, compression: HBaseCompression) -> None:
        """Make the table if it is not there, and see that it can hold what it has to; may be repeated."""
        if not self.exists():
            # A create that was not answered may have succeeded, and another handle may create it too.
            with contextlib.suppress(AlreadyThereError):
                self._call("createTable", self._table, _families(compression))
        families = self._call("getColumnDescriptors", self._table)
        kept = {bytes(name).rstrip(b":"): family.maxVersions for name, family in families.items()}
        for family, least in ((DATA, DATA_VERSIONS), (CELLS, ALL_VERSIONS), (META, 1)):
            if kept.get(family, 0) < least:
                raise ConfigError(
                    f"table {self.name!r} of HBase at {self._at} cannot hold checkpoints: its family "
                    f"{family.decode()!r} has to keep {least} versions and keeps {kept.get(family, 0)}; name "
                    f"another table, or in the HBase shell: alter '{self.name}', "
                    f"{{NAME => '{family.decode()}', VERSIONS => {least}}}"
                )

    def exists(self) -> bool:
        """Whether there is such a table."""
        try:
            self._call("getColumnDescriptors", self._table)
        except NoTableError:
            return False
        return True

    def regions(self) -> int:
        """In how many regions the table lies."""
        return len(self._call("getTableRegions", self._table))

    # -- single rows -----------------------------------------------------------------------------

    def row(self, row: bytes, columns: Sequence[bytes]) -> dict[bytes, bytes]:
        """Column to value of one row."""
        answer = self._call("getRowWithColumns", self._table, row, list(columns), {})
        return {name: cell.value for found in answer for name, cell in found.columns.items()}

    def put(self, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        """Write columns of one row, all of them at once."""
        mutations = [thrift.Mutation(column=column, value=value) for column, value in cells.items()]
        self._call("mutateRow", self._table, row, mutations, {})

    def remove_columns(self, row: bytes, columns: Iterable[bytes]) -> None:
        """Remove columns of one row, all of them at once."""
        mutations = [thrift.Mutation(isDelete=True, column=column) for column in columns]
        if mutations:
            self._call("mutateRow", self._table, row, mutations, {})

    def replace(self, row: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Compare and set: write the column if it holds `expected` (None: nothing) now; whether it did.

        After NotNowError it is unknown whether it was written, or will be.
        """
        mutation = thrift.Mutation(column=column, value=value)
        return bool(self._call("checkAndPut", self._table, row, column, expected, mutation, {}))

    def increment(self, row: bytes, column: bytes, by: int) -> int:
        """Add to a counter, and its new value."""
        return int(self._call("atomicIncrement", self._table, row, column, by))

    # -- many rows -------------------------------------------------------------------------------

    def write(self, cells: Iterable[Columns], timestamp: int) -> None:
        """Write (row, column, cell) of many rows under one timestamp, in as few requests as possible."""
        batch: list[Any] = []
        batch_bytes = 0
        mutation, mutations = thrift.Mutation, thrift.BatchMutation
        for row, column, cell in cells:
            row_bytes = len(row) + len(cell) + _ROW_OVERHEAD_BYTES
            if batch and (batch_bytes + row_bytes > self._request_bytes or len(batch) >= _REQUEST_ROWS):
                self._call("mutateRowsTs", self._table, batch, timestamp, {})
                batch, batch_bytes = [], 0
            batch.append(mutations(row, [mutation(False, column, cell)]))
            batch_bytes += row_bytes
        if batch:
            self._call("mutateRowsTs", self._table, batch, timestamp, {})

    def remove(self, rows: Sequence[bytes], family: bytes, up_to: int) -> None:
        """Of each row, at once: remove what the family holds with timestamps up to `up_to`, included."""
        for chunk in _chunks(rows):
            batch = [
                thrift.BatchMutation(row=row, mutations=[thrift.Mutation(isDelete=True, column=family)])
                for row in chunk
            ]
            self._call("mutateRowsTs", self._table, batch, up_to, {})

    def newest(self, rows: Sequence[bytes], column: bytes, below: int) -> Found:
        """The newest cell of a column with a timestamp below the given one, of each row that has one."""
        found: Found = {}
        for chunk in _chunks(rows):
            answer = self._call("getRowsWithColumnsTs", self._table, chunk, [column], below, {})
            found.update(_cells(answer, column))
        return found

    def newest_beside(
        self, rows: Sequence[bytes], column: bytes, beside: bytes, beside_column: bytes
    ) -> tuple[Found, bytes | None]:
        """The newest cell of each row, and one column of another row, in one request; not at one instant."""
        answer = self._call("getRowsWithColumns", self._table, [beside, *rows], [column, beside_column], {})
        other = next(
            (found.columns[beside_column].value for found in answer if beside_column in found.columns), None
        )
        return _cells(answer, column), other

    def exact(
        self, rows: Sequence[bytes], columns: Sequence[bytes], timestamp: int
    ) -> dict[bytes, dict[bytes, bytes]]:
        """Row to column to cell, of the cells that have exactly this timestamp."""
        found: dict[bytes, dict[bytes, bytes]] = {}
        for chunk in _chunks(columns, _PARTS_AT_ONCE):
            answer = self._call("getRowsWithColumnsTs", self._table, list(rows), chunk, timestamp + 1, {})
            for one in answer:
                cells = {c: cell.value for c, cell in one.columns.items() if cell.timestamp == timestamp}
                found.setdefault(one.row, {}).update(cells)
        return found

    def scan(
        self,
        first: bytes,
        stop: bytes,
        column: bytes,
        *,
        below: int | None = None,
        keys_only: bool = False,
    ) -> Iterator[list[tuple[bytes, int, bytes]]]:
        """(row, timestamp, cell) of the newest cells with a timestamp below the given one, in pages.

        A scan that lost its connection or its scanner goes on behind the last row it has given.
        """
        rows, scanner = _FIRST_PAGE_ROWS, None
        was_lost = False
        try:
            while True:
                try:
                    if scanner is None:
                        wanted = _scan(first, stop, column, below, keys_only=keys_only)
                        scanner = self._call("scannerOpenWithScan", self._table, wanted, {})
                    answer = self._call("scannerGetList", scanner, rows)
                except NotNowError:
                    if was_lost:
                        raise
                    was_lost, scanner = True, None
                    continue
                was_lost = False
                if not answer:
                    return
                page = []
                page_bytes = 0
                for found in answer:
                    cell = found.columns.get(column) or next(iter(found.columns.values()))
                    page.append((found.row, cell.timestamp, cell.value))
                    page_bytes += len(found.row) + _ROW_OVERHEAD_BYTES + len(cell.value)
                first = page[-1][0] + b"\x00"
                del answer
                fitting = _ANSWER_BYTES * len(page) // page_bytes
                rows = max(1, min(4 * rows, fitting, _ANSWER_ROWS))
                yield page
        finally:
            if scanner is not None:
                # If this fails, the server forgets the scanner after a while by itself.
                with contextlib.suppress(CkptError):
                    self._call("scannerClose", scanner)


def _scan(first: bytes, stop: bytes, column: bytes, below: int | None, *, keys_only: bool) -> Any:
    return thrift.TScan(
        startRow=first,
        stopRow=stop,
        timestamp=below,
        columns=[column],
        caching=_ANSWER_ROWS // 4,
        filterString=b"FirstKeyOnlyFilter() AND KeyOnlyFilter()" if keys_only else None,
    )


def _cells(answer: Sequence[Any], column: bytes) -> Found:
    return {
        found.row: (found.columns[column].timestamp, found.columns[column].value)
        for found in answer
        if column in found.columns
    }


def _chunks(rows: Sequence[bytes], size: int = _ANSWER_ROWS) -> Iterator[list[bytes]]:
    for at in range(0, len(rows), size):
        yield list(rows[at : at + size])


def _families(compression: HBaseCompression) -> list[Any]:
    return [
        thrift.ColumnDescriptor(
            name=family + b":",
            maxVersions=versions,
            compression=compression.value.upper(),
            bloomFilterType="ROW",
            blockCacheEnabled=True,
            inMemory=family == META,
        )
        for family, versions in ((DATA, DATA_VERSIONS), (CELLS, ALL_VERSIONS), (META, 1))
    ]
