"""Plain rows under a fence: a batch is seen whole or not at all, and never once another fence is up.

A batch registers a stamp in the head of its namespace (see `ckpt_backends.hbase.head`), writes its rows under
it, and is acknowledged by the compare-and-set that takes the stamp out of `running`. Whoever raises the fence
makes that compare-and-set fail, so rows that arrive late are never seen.

- A handle that is alone registers the stamp of its next batch together with the acknowledgement of this one:
  two requests per batch. If somebody else was faster after all, the rows are written once more under a stamp
  of now, so that the last write wins.
- A handle writes one batch of a namespace at a time, and finishes a failed one before the next:
  at most one batch per handle lies unacknowledged on top of what counts.
- A batch whose writer died stays on top of what counts, unseen. Before as many have piled up as HBase keeps
  versions, whoever claims the namespace copies what counts on top again.
- A deleted key gets a tombstone. Its row is removed after the acknowledgement, when the marker that HBase
  keeps for that can hide nothing that counts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ckpt.errors import CkptError
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase import rows
from ckpt_backends.hbase.head import Head
from ckpt_backends.hbase.lanes import HEAD, Lane
from ckpt_backends.hbase.rows import RowNames
from ckpt_backends.hbase.table import DATA_VERSIONS, Found, Table
from ckpt_backends.hbase.values import Values, has_large

_PILED_UP = DATA_VERSIONS - 2
"""One version more is what counts, and one what is being written."""
_NOT_WHOLE = b""
"""What is read of a value whose parts are missing: the checksum of values will tell."""
_READ_ROWS = 1000
_LOOKS = 20


@dataclass(slots=True, eq=False)
class _Batch:
    puts: Mapping[bytes, bytes]
    deletes: Sequence[bytes]
    fence: int
    stamps: list[int] = field(default_factory=list)
    """The last one is that of its rows; the ones before were outrun."""
    was_early: bool = False
    """Its stamp was registered before the batch was asked for."""


class PlainRows:
    """The plain rows of every namespace of one store, as one handle writes and reads them."""

    def __init__(self, table: Table, names: RowNames, values: Values, timeout_s: float) -> None:
        self._table, self._names, self._values, self._timeout_s = table, names, values, timeout_s
        self._lanes: dict[str, Lane] = {}
        self._failed: dict[str, _Batch] = {}
        """Batches that may be half written; of each namespace the one that has its lane."""
        self._lock = threading.Lock()

    # -- fences ----------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        """Raise the fence; what others are writing now never counts."""
        lane = self._lane(namespace)
        head = lane.change(
            lambda head, _: None if head.fence >= number else head.fenced(number, own=lane.unused(head))
        )
        if exclusive and head.fence == number and head.piled_up >= _PILED_UP:
            self._sweep(lane, number)

    def _sweep(self, lane: Lane, fence: int) -> None:
        """Copy what counts on top of what is hidden. Nobody else writes: the fence is up for this handle."""
        head = lane.change(lambda head, _: head.with_copies() if head.fence == fence else None)
        if head.fence != fence:
            return
        copies = head.next - 1
        for page in self._table.scan(lane.start, rows.after_all(lane.start), self._values.column):
            covered = {row: (stamp, raw) for row, stamp, raw in page if not head.shows(stamp)}
            shown, _ = self._shown(head, covered)
            puts, deletes = {}, []
            for (row, _, stored), value in self._values.whole((row, *cell) for row, cell in shown.items()):
                if value is not None:
                    puts[rows.key_of(lane.start, row, stored)] = value
                elif stored.is_tombstone:
                    deletes.append(rows.key_of(lane.start, row, stored))
            self._values.write(lane.start, copies, puts, deletes)
        lane.change(lambda head, _: head.swept_below(copies))

    def clear(self, namespace: str) -> None:
        """Drop every row: at once for readers, then in fact."""
        lane, family = self._lane(namespace), self._values.family
        floor = lane.change(lambda head, _: head.cleared()).floor
        behind = rows.after_all(lane.start)
        for page in self._table.scan(lane.start, behind, family, below=floor, keys_only=True):
            self._table.remove([row for row, _, _ in page], family, floor - 1)

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self, namespace: str, puts: Mapping[bytes, bytes], deletes: Sequence[bytes], fence: int
    ) -> bool:
        """Write a batch; False if another fence is up, and then nobody ever sees it."""
        lane = self._lane(namespace)
        with lane.writing():
            failed = self._failed.get(namespace)
            if (
                failed is not None
                and failed.puts is puts
                and (failed.deletes, failed.fence) == (deletes, fence)
            ):
                return self._finish(namespace, lane, failed)
            if failed is not None:
                try:
                    self._finish(namespace, lane, failed)
                except NotNowError:
                    raise
                except CkptError:
                    # Its own caller has heard that it failed.
                    pass
            return self._finish(namespace, lane, _Batch(puts, deletes, fence))

    def _finish(self, namespace: str, lane: Lane, batch: _Batch) -> bool:
        self._failed.pop(namespace, None)
        try:
            if not batch.stamps and not self._register(lane, batch):
                return False
            while True:
                self._values.write(lane.start, batch.stamps[-1], batch.puts, batch.deletes)
                head = self._acknowledge(lane, batch)
                if head is not None:
                    break
        except NotNowError:
            if batch.stamps:
                self._failed[namespace] = batch
            raise
        except CkptError:
            # It can never be written: let it not be tried again with the next batch.
            with contextlib.suppress(CkptError):
                lane.change(lambda head, _: head.abandoned(batch.stamps))
            lane.used.difference_update(batch.stamps)
            raise
        lane.used.difference_update(batch.stamps)
        if batch.stamps[-1] in head.hidden or batch.stamps[-1] < head.floor:
            return False
        # The batch counts, whatever becomes of what it has replaced.
        with contextlib.suppress(NotNowError):
            self._tidy(lane, batch, head)
        return True

    def _register(self, lane: Lane, batch: _Batch) -> bool:
        """Take a stamp for the batch; whether its fence is still up."""
        is_large = has_large(batch.puts)
        with lane.turn() as head:
            if (
                lane.early is not None
                and head is not None
                and head.fence == batch.fence
                and (head.has_parts or not is_large)
            ):
                batch.stamps, batch.was_early = [lane.early], True
                lane.used.add(lane.early)
                lane.early = None
                return True
            stamp = 0

            def registered(head: Head, _: bool) -> Head | None:
                nonlocal stamp
                if head.fence != batch.fence:
                    return None
                free = head.finished(lane.unused(head))
                following, stamp = free.registered(lane.handle, has_parts=is_large)
                return following

            if lane.change(registered).fence != batch.fence:
                return False
            lane.used.add(stamp)
            batch.stamps.append(stamp)
            batch.was_early = False
            return True

    def _acknowledge(self, lane: Lane, batch: _Batch) -> Head | None:
        """The head that has decided about the batch; None if its rows have to be written once more."""
        stamp, early = batch.stamps[-1], 0

        def finished(head: Head, is_alone: bool) -> Head | None:
            nonlocal early
            early = 0
            if stamp not in head.running or (batch.was_early and head.next > stamp + 1):
                return None
            following = head.finished(batch.stamps)
            if is_alone and lane.early is None and lane.used <= set(batch.stamps):
                following, early = following.registered(lane.handle)
            return following

        with lane.turn():
            head = lane.change(finished)
            if stamp not in head.running:
                lane.early = early or lane.early
                return head
        # Somebody else took a higher stamp, maybe before this batch was asked for.
        return None if self._register(lane, batch) else lane.look()

    def _tidy(self, lane: Lane, batch: _Batch, head: Head) -> None:
        """Remove the rows of deleted keys, and parts that no cell names any more."""
        stamp, family = batch.stamps[-1], self._values.family
        if batch.deletes:
            self._table.remove([rows.row_of(lane.start, key) for key in batch.deletes], family, stamp)
        if head.has_parts and batch.puts:
            self._table.remove([rows.row_of(lane.start, key) for key in batch.puts], family, stamp - 1)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist."""
        lane = self._lane(namespace)
        found: dict[bytes, bytes] = {}
        for at in range(0, len(keys), _READ_ROWS):
            asked = {rows.row_of(lane.start, key): key for key in keys[at : at + _READ_ROWS]}
            waiting = list(asked)
            dead: dict[bytes, int] = {}
            for _ in range(_LOOKS):
                cells, raw = self._table.newest_beside(waiting, self._values.column, lane.meta, HEAD)
                head = Head.decode(raw)
                shown, unclear = self._shown(head, self._take_simple(lane, head, cells, found))
                lost = self._take(asked, shown, found)
                # Nothing but what dead writers have left, and the same when looked at twice: nothing counts.
                newest = {row: cells[row][0] for row in unclear}
                waiting = lost + [row for row in unclear if dead.get(row) != newest[row]]
                dead = {row: stamp for row, stamp in newest.items() if unclear[row]}
                if not waiting:
                    break
                # Unless the head has changed, nothing that counts has come or gone meanwhile.
                if lane.look().raw == head.raw:
                    found.update((asked[row], _NOT_WHOLE) for row in lost)
                    break
            else:
                raise NotNowError(
                    f"rows of namespace {namespace!r} change faster than they are read; try again later"
                )
        return found

    def scan(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row with this prefix in the order of keys, page by page."""
        lane = self._lane(namespace)
        first, behind = rows.scan_range(lane.start, prefix)
        for _, key, value in rows.in_key_order(lane.start, self._scan(namespace, lane, first, behind)):
            if key.startswith(prefix):
                yield key, value

    def _scan(
        self, namespace: str, lane: Lane, first: bytes, behind: bytes
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        for page in self._table.scan(first, behind, self._values.column):
            cells = {row: (stamp, raw) for row, stamp, raw in page}
            shown, unclear = self._shown(lane.look(), cells)
            if unclear:
                asked = {row: rows.key_of(lane.start, row, rows.decode(cells[row][1])) for row in unclear}
                again = self.read(namespace, list(asked.values()))
                shown.update((row, (0, rows.Stored(key, again.get(key)))) for row, key in asked.items())
            in_order = ((row, *shown[row]) for row in cells if row in shown)
            for (row, _, stored), value in self._values.whole(in_order):
                if stored.is_tombstone:
                    continue
                key = rows.key_of(lane.start, row, stored)
                if value is None:
                    value = self.read(namespace, [key]).get(key)
                if value is not None:
                    yield row, key, value

    @staticmethod
    def _take_simple(lane: Lane, head: Head, cells: Found, found: dict[bytes, bytes]) -> Found:
        """Put the values of most rows into `found` as fast as can be; the cells that need a closer look."""
        skipped, others = len(lane.start), {}
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

    def _shown(
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

    # -- life ------------------------------------------------------------------------------------

    def _lane(self, namespace: str) -> Lane:
        with self._lock:
            lane = self._lanes.get(namespace)
            if lane is None:
                meta, start = self._names.meta(namespace), self._names.data(namespace)
                lane = self._lanes[namespace] = Lane(self._table, meta, start, self._timeout_s)
            return lane

    def close(self) -> None:
        """Take back the stamps that were registered for nothing, as far as the server lets it."""
        with self._lock:
            early = [lane for lane in self._lanes.values() if lane.early is not None]
        with contextlib.suppress(CkptError):
            for lane in early:
                lane.change(lambda head, _, lane=lane: head.finished(lane.unused(head)))  # type: ignore[misc]
