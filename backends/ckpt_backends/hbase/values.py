"""Values in rows of one family: large ones in parts, deleted ones as tombstones, each found whole or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckpt_backends.hbase import rows
from ckpt_backends.hbase.rows import Stored
from ckpt_backends.hbase.table import Columns, Table

_AT_ONCE_BYTES = 4 << 20

Cell = tuple[bytes, int, Stored]
"""(row, stamp, what its cell says)."""


class Values:
    """Writes and reads the column `checkpoint` of one family, and the parts beside it."""

    def __init__(self, table: Table, family: bytes) -> None:
        self._table, self.family = table, family
        self.column = family + b":checkpoint"

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self,
        start: bytes,
        stamp: int,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes] = (),
        others: Iterable[Columns] = (),
    ) -> None:
        """Write every value, a tombstone for every deleted key, and other rows, under this stamp."""
        large = {key: value for key, value in puts.items() if len(value) > rows.INLINE_BYTES}
        if large:
            self._table.write(self._parts(start, large), stamp)
        self._table.write(self._cells(start, puts, deletes, others), stamp)

    def _cells(
        self,
        start: bytes,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes],
        others: Iterable[Columns],
    ) -> Iterator[Columns]:
        column = self.column
        for key, value in puts.items():
            yield rows.row_of(start, key), column, rows.encode(key, value)
        for key in deletes:
            yield rows.row_of(start, key), column, rows.tombstone(key)
        yield from others

    def _parts(self, start: bytes, large: Mapping[bytes, bytes]) -> Iterator[Columns]:
        for key, value in large.items():
            row = rows.row_of(start, key)
            for at, part in enumerate(rows.parts(value)):
                yield row, self._part(at), part

    def _part(self, at: int) -> bytes:
        return b"%s:p%d" % (self.family, at)

    # -- reading ---------------------------------------------------------------------------------

    def whole(self, cells: Iterable[Cell]) -> Iterator[tuple[Cell, bytes | None]]:
        """Each cell, in order, with its value: None for a tombstone, and where parts are not there any more.

        Small values are not waited for, large ones are read some at a time.
        """
        waiting: list[Cell] = []
        waiting_bytes = 0
        for cell in cells:
            stored = cell[2]
            if not stored.parts and not waiting:
                yield cell, stored.value
                continue
            if waiting and waiting_bytes + stored.value_bytes > _AT_ONCE_BYTES:
                yield from self._read(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(cell)
            waiting_bytes += stored.value_bytes or len(stored.value or b"")
        if waiting:
            yield from self._read(waiting)

    def _read(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, bytes | None]]:
        by_stamp: dict[int, list[Cell]] = {}
        for cell in cells:
            if cell[2].parts:
                by_stamp.setdefault(cell[1], []).append(cell)
        found: dict[bytes, bytes] = {}
        for stamp, alike in by_stamp.items():
            count = max(stored.parts for _, _, stored in alike)
            columns = [self._part(at) for at in range(count)]
            parts = self._table.exact([row for row, _, _ in alike], columns, stamp)
            for row, _, stored in alike:
                value = b"".join(parts.get(row, {}).get(column, b"") for column in columns[: stored.parts])
                if len(value) == stored.value_bytes:
                    found[row] = value
        for cell in cells:
            row, _, stored = cell
            yield cell, found.get(row) if stored.parts else stored.value


def has_large(puts: Mapping[bytes, bytes]) -> bool:
    """Whether a value has to be stored in parts."""
    return any(len(value) > rows.INLINE_BYTES for value in puts.values())
