"""Plain rows under a fence: a batch is seen whole or not at all, and never once another fence is up.

A batch registers a stamp in the head of its namespace (see `ckpt_backends.hbase.head`), writes its rows under
it, and is acknowledged by the compare-and-set that takes the stamp out of `running`. A handle that raises the
fence makes that compare-and-set fail, so rows that arrive late are never seen.

- A handle that is alone registers the stamp of its next batch together with the acknowledgement of this one:
    two requests per batch. If another handle was faster, the rows are written once more under a stamp
  of now, so that the last write wins.
- A handle writes one batch of a namespace at a time, and finishes a failed one before the next:
  at most one batch per handle lies unacknowledged on top of what counts.
- A batch whose writer died stays on top of what counts, unseen. Before as many have piled up as HBase keeps
    versions, the handle that claims the namespace copies what counts on top again.
- A deleted key gets a tombstone. Its row is removed after the acknowledgement, when the marker that HBase
  keeps for that can hide nothing that counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ckpt.errors import CkptError
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase import rows
from ckpt_backends.hbase.head import Head
from ckpt_backends.hbase.head_writers import HeadWriter, HeadWriters
from ckpt_backends.hbase.plain_reading import PlainReader
from ckpt_backends.hbase.table import DATA_VERSIONS, Table
from ckpt_backends.hbase.values import Values, has_large

_PILED_UP = DATA_VERSIONS - 2
"""One version more is what counts, and one what is being written."""


@dataclass(slots=True, eq=False)
class _Batch:
    puts: Mapping[bytes, bytes]
    deletes: Sequence[bytes]
    fence: int
    stamps: list[int] = field(default_factory=list)
    """The last one is that of its rows; the ones before were outrun."""
    was_early: bool = False
    """Its stamp was registered before the batch was asked for."""


class PlainWriter:
    """Writes the plain rows of one store for one handle."""

    def __init__(self, table: Table, values: Values, head_writers: HeadWriters, reader: PlainReader) -> None:
        self._table, self._values, self._head_writers, self._reader = table, values, head_writers, reader
        self._failed: dict[str, _Batch] = {}
        """Batches that may be half written; of each namespace the one that has its turn to write."""

    # -- fences ----------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        """Raise the fence; what others are writing now never counts."""
        writer = self._head_writers.of(namespace)
        head = writer.change(
            lambda head, _: None if head.fence >= number else head.fenced(number, own=writer.unused(head))
        )
        if exclusive and head.fence == number and head.piled_up >= _PILED_UP:
            self._sweep(writer, number)

    def _sweep(self, writer: HeadWriter, fence: int) -> None:
        """Copy what counts on top of what is hidden. No other handle writes: the fence is up for this one."""
        head = writer.change(lambda head, _: head.with_copies() if head.fence == fence else None)
        if head.fence != fence:
            return
        copies = head.next - 1
        for page in self._table.scan(writer.start, rows.after_all(writer.start), self._values.column):
            covered = {row: (stamp, raw) for row, stamp, raw in page if not head.shows(stamp)}
            shown, _ = self._reader.shown(head, covered)
            puts, deletes = {}, []
            for (row, _, stored), value in self._values.whole((row, *cell) for row, cell in shown.items()):
                if value is not None:
                    puts[rows.key_of(writer.start, row, stored)] = value
                elif stored.is_tombstone:
                    deletes.append(rows.key_of(writer.start, row, stored))
            self._values.write(writer.start, copies, puts, deletes)
        writer.change(lambda head, _: head.swept_below(copies))

    def clear(self, namespace: str) -> None:
        """Drop every row: at once for readers, then in fact."""
        writer, family = self._head_writers.of(namespace), self._values.family
        floor = writer.change(lambda head, _: head.cleared()).floor
        stop = rows.after_all(writer.start)
        for page in self._table.scan(writer.start, stop, family, below=floor, keys_only=True):
            self._table.remove([row for row, _, _ in page], family, floor - 1)

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self, namespace: str, puts: Mapping[bytes, bytes], deletes: Sequence[bytes], fence: int
    ) -> bool:
        """Write a batch; False if another fence is up, and then no reader ever sees it."""
        writer = self._head_writers.of(namespace)
        with writer.writing():
            failed = self._failed.get(namespace)
            if (
                failed is not None
                and failed.puts is puts
                and (failed.deletes, failed.fence) == (deletes, fence)
            ):
                return self._finish(namespace, writer, failed)
            if failed is not None:
                try:
                    self._finish(namespace, writer, failed)
                except NotNowError:
                    raise
                except CkptError:
                    # The call that began it has raised already.
                    pass
            return self._finish(namespace, writer, _Batch(puts, deletes, fence))

    def _finish(self, namespace: str, writer: HeadWriter, batch: _Batch) -> bool:
        self._failed.pop(namespace, None)
        try:
            if not batch.stamps and not self._register(writer, batch):
                return False
            while True:
                self._values.write(writer.start, batch.stamps[-1], batch.puts, batch.deletes)
                head = self._acknowledge(writer, batch)
                if head is not None:
                    break
        except NotNowError:
            if batch.stamps:
                self._failed[namespace] = batch
            raise
        except CkptError:
            # It can never be written: let it not be tried again with the next batch.
            with contextlib.suppress(CkptError):
                writer.change(lambda head, _: head.abandoned(batch.stamps))
            writer.used.difference_update(batch.stamps)
            raise
        writer.used.difference_update(batch.stamps)
        if batch.stamps[-1] in head.hidden or batch.stamps[-1] < head.floor:
            return False
        # The batch counts, whatever becomes of what it has replaced.
        with contextlib.suppress(NotNowError):
            self._tidy(writer, batch, head)
        return True

    def _register(self, writer: HeadWriter, batch: _Batch) -> bool:
        """Take a stamp for the batch; whether its fence is still up."""
        is_large = has_large(batch.puts)
        with writer.turn() as head:
            if (
                writer.early is not None
                and head is not None
                and head.fence == batch.fence
                and (head.has_parts or not is_large)
            ):
                batch.stamps, batch.was_early = [writer.early], True
                writer.used.add(writer.early)
                writer.early = None
                return True
            stamp = 0

            def registered(head: Head, _: bool) -> Head | None:
                nonlocal stamp
                if head.fence != batch.fence:
                    return None
                free = head.finished(writer.unused(head))
                following, stamp = free.registered(writer.handle, has_parts=is_large)
                return following

            if writer.change(registered).fence != batch.fence:
                return False
            writer.used.add(stamp)
            batch.stamps.append(stamp)
            batch.was_early = False
            return True

    def _acknowledge(self, writer: HeadWriter, batch: _Batch) -> Head | None:
        """The head that has decided about the batch; None if its rows have to be written once more."""
        stamp, early = batch.stamps[-1], 0

        def finished(head: Head, is_alone: bool) -> Head | None:
            nonlocal early
            early = 0
            if stamp not in head.running or (batch.was_early and head.next > stamp + 1):
                return None
            following = head.finished(batch.stamps)
            if is_alone and writer.early is None and writer.used <= set(batch.stamps):
                following, early = following.registered(writer.handle)
            return following

        with writer.turn():
            head = writer.change(finished)
            if stamp not in head.running:
                writer.early = early or writer.early
                return head
        # Another handle took a higher stamp, maybe before this batch was asked for.
        return None if self._register(writer, batch) else writer.look()

    def _tidy(self, writer: HeadWriter, batch: _Batch, head: Head) -> None:
        """Remove the rows of deleted keys, and parts that no cell names any more."""
        stamp, family = batch.stamps[-1], self._values.family
        if batch.deletes:
            self._table.remove([rows.row_of(writer.start, key) for key in batch.deletes], family, stamp)
        if head.has_parts and batch.puts:
            self._table.remove([rows.row_of(writer.start, key) for key in batch.puts], family, stamp - 1)
