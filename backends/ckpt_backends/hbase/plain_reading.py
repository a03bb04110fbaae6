"""Reads of plain rows: a reader sees batches that count, each whole, and nothing of any other.

The newest cell of a row usually counts. If it does not, because its batch is being written, or its writer has
died or was fenced, the next older one is looked for. What counts is decided by the head of the namespace,
which is read with the rows: an older head could show what was fenced meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase import rows
from ckpt_backends.hbase.head import Head
from ckpt_backends.hbase.head_writers import HEAD, HeadWriter, HeadWriters
from ckpt_backends.hbase.table import Found, Table
from ckpt_backends.hbase.values import Values

_NOT_WHOLE = b""
"""What is read of a value whose parts are missing: the checksum of values will tell."""
_READ_ROWS = 1000
_LOOKS = 20


class PlainReader:
    """Reads the plain rows of one store."""

    def __init__(self, table: Table, values: Values, head_writers: HeadWriters) -> None:
        self._table, self._values, self._head_writers = table, values, head_writers

    def read(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist."""
        writer = self._head_writers.of(namespace)
        found: dict[bytes, bytes] = {}
        for at in range(0, len(keys), _READ_ROWS):
            asked = {rows.row_of(writer.start, key): key for key in keys[at : at + _READ_ROWS]}
            waiting = list(asked)
            dead: dict[bytes, int] = {}
            for _ in range(_LOOKS):
                cells, raw = self._table.newest_beside(waiting, self._values.column, writer.meta, HEAD)
                head = Head.decode(raw)
                shown, unclear = self.shown(head, self._take_simple(writer, head, cells, found))
                lost = self._take(asked, shown, found)
                # Nothing but what dead writers have left, and the same when looked at twice: nothing counts.
                newest = {row: cells[row][0] for row in unclear}
                waiting = lost + [row for row in unclear if dead.get(row) != newest[row]]
                dead = {row: stamp for row, stamp in newest.items() if unclear[row]}
                if not waiting:
                    break
                # Unless the head has changed, nothing that counts has come or gone meanwhile.
                if writer.look().raw == head.raw:
                    found.update((asked[row], _NOT_WHOLE) for row in lost)
                    break
            else:
                raise NotNowError(
                    f"rows of namespace {namespace!r} change faster than they are read; try again later"
                )
        return found

    def scan(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row with this prefix in the order of keys, page by page."""
        writer = self._head_writers.of(namespace)
        first, stop = rows.scan_range(writer.start, prefix)
        for _, key, value in rows.in_key_order(writer.start, self._scan(namespace, writer, first, stop)):
            if key.startswith(prefix):
                yield key, value

    def _scan(
        self, namespace: str, writer: HeadWriter, first: bytes, stop: bytes
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        for page in self._table.scan(first, stop, self._values.column):
            cells = {row: (stamp, raw) for row, stamp, raw in page}
            shown, unclear = self.shown(writer.look(), cells)
            if unclear:
                asked = {row: rows.key_of(writer.start, row, rows.decode(cells[row][1])) for row in unclear}
                again = self.read(namespace, list(asked.values()))
                shown.update((row, (0, rows.Stored(key, again.get(key)))) for row, key in asked.items())
            in_order = ((row, *shown[row]) for row in cells if row in shown)
            for (row, _, stored), value in self._values.whole(in_order):
                if stored.is_tombstone:
                    continue
                key = rows.key_of(writer.start, row, stored)
                if value is None:
                    value = self.read(namespace, [key]).get(key)
                if value is not None:
                    yield row, key, value

    @staticmethod
    def _take_simple(writer: HeadWriter, head: Head, cells: Found, found: dict[bytes, bytes]) -> Found:
        """Put the values of most rows into `found` as fast as can be; the cells that need a closer look."""
        skipped, others = len(writer.start), {}
        for row, cell in cells.items():
            value = rows.simple_value(row, cell[1], skipped) if head.shows(cell[0]) else None
            if value is None:
                others[row] = cell
            else:
                found[row[skipped:]] = value
        return others

    def _take(
        self,
        asked: Mapping[bytes, bytes],
        shown: Mapping[bytes, tuple[int, rows.Stored]],
        found: dict[bytes, bytes],
    ) -> list[bytes]:
        """Put the values of cells into `found`; the rows of those whose parts are not there any more."""
        lost = []
        for (row, _, stored), value in self._values.whole((row, *cell) for row, cell in shown.items()):
            if value is not None:
                found[asked[row]] = value
            elif stored.parts:
                lost.append(row)
        return lost

    def shown(
        self, head: Head, cells: Found
    ) -> tuple[dict[bytes, tuple[int, rows.Stored]], dict[bytes, bool]]:
        """Of each row its newest cell that counts; and the rows that have cells, but none that counts.

        For these, whether none of their cells will ever count. What was dropped is in neither.
        """
        shown: dict[bytes, tuple[int, rows.Stored]] = {}
        unclear: dict[bytes, bool] = {}
        below: dict[int, list[bytes]] = {}

        def sort(found: Found) -> None:
            for row, (stamp, raw) in found.items():
                if head.shows(stamp):
                    shown[row] = (stamp, rows.decode(raw))
                    unclear.pop(row, None)
                elif stamp >= head.floor:
                    unclear[row] = unclear.get(row, True) and stamp in head.hidden
                    below.setdefault(min(stamp, head.next), []).append(row)

        sort(cells)
        while below:
            waiting = below.pop(bound := max(below))
            sort(self._table.newest(waiting, self._values.column, bound))
        return shown, unclear
