"""The heads of plain namespaces as one handle changes them: one change at a time, and never a lost one."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from ckpt.errors import CkptError
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase.head import HANDLE_BYTES, Head
from ckpt_backends.hbase.rows import RowNames
from ckpt_backends.hbase.table import META, Table

HEAD = META + b":plain"


class HeadWriter:
    """What one handle knows about one namespace; all of it is guarded by its turn."""

    def __init__(self, table: Table, meta: bytes, start: bytes, timeout_s: float) -> None:
        self.meta, self.start = meta, start
        self.handle = os.urandom(HANDLE_BYTES)
        self.used: set[int] = set()
        """Stamps of batches of this handle that are not finished."""
        self.early: int | None = None
        """A stamp that is registered for the next batch of this handle."""
        self._table, self._timeout_s = table, timeout_s
        self._head: Head | None = None
        self._is_alone = False
        self._turn = threading.RLock()
        self._writing = threading.RLock()

    @contextmanager
    def turn(self) -> Iterator[Head | None]:
        """The only change of this handle for a while; the head as it was last seen."""
        with self._held(self._turn):
            yield self._head

    def writing(self) -> AbstractContextManager[None]:
        """The only batch of this handle for a while."""
        return self._held(self._writing)

    @contextmanager
    def _held(self, lock: threading.RLock) -> Iterator[None]:
        if not lock.acquire(timeout=2 * self._timeout_s):
            raise NotNowError("another write to the same namespace has not ended in time; try again later")
        try:
            yield
        finally:
            lock.release()

    def look(self) -> Head:
        """The head as it is now."""
        return Head.decode(self._table.row(self.meta, [HEAD]).get(HEAD))

    def change(self, follow: Callable[[Head, bool], Head | None]) -> Head:
        """Replace the head by what `follow` makes of it, until no other handle is faster; the new head.

        If `follow` makes nothing of a head that was just read, that head. `follow` is also told whether
        no other handle has changed the head since this one did so for the last time but one.
        """
        with self.turn() as head:
            is_fresh, is_alone = False, head is not None
            while True:
                if head is None:
                    head, is_fresh, is_alone = self.look(), True, False
                following = follow(head, is_alone and self._is_alone)
                if following is None:
                    self._head = head
                    if is_fresh:
                        return head
                    head = None
                    continue
                raw = following.encoded()
                try:
                    is_changed = self._table.replace(self.meta, HEAD, head.raw, raw)
                except CkptError:
                    # It may have been changed, or will be.
                    self._head, self._is_alone = None, False
                    raise
                if is_changed:
                    self._head, self._is_alone = replace(following, raw=raw), is_alone
                    return self._head
                head = None

    def take_back(self) -> None:
        """Take the stamps of this handle that no batch of it has out of the head."""
        self.change(lambda head, _: head.finished(self.unused(head)))

    def unused(self, head: Head) -> set[int]:
        """The stamps of this handle that no batch of it has: early ones, and those of lost answers.

        The caller takes them back.
        """
        self.early = None
        return {stamp for stamp, by in head.running.items() if by == self.handle and stamp not in self.used}


class HeadWriters:
    """The head writers of one handle, by namespace."""

    def __init__(self, table: Table, names: RowNames, timeout_s: float) -> None:
        self._table, self._names, self._timeout_s = table, names, timeout_s
        self._head_writers: dict[str, HeadWriter] = {}
        self._lock = threading.Lock()

    def of(self, namespace: str) -> HeadWriter:
        """The head writer of a namespace."""
        with self._lock:
            writer = self._head_writers.get(namespace)
            if writer is None:
                meta, start = self._names.meta(namespace), self._names.data(namespace)
                writer = self._head_writers[namespace] = HeadWriter(self._table, meta, start, self._timeout_s)
            return writer

    def close(self) -> None:
        """Take back the stamps that were registered for nothing, as far as the server lets it."""
        with self._lock:
            head_writers = list(self._head_writers.values())
        with contextlib.suppress(CkptError):
            for writer in head_writers:
                if writer.early is not None:
                    writer.take_back()
