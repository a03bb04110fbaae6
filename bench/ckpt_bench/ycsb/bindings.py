"""What an operation does to a store: straight to a backend, or through a SafeKeeper.

- A read asks for one key. Of the record, one field or all of them are taken.
- An update of all fields writes the record. An update of some reads it, changes them and writes it back: the
  contract of backends has whole values. Two threads that do that to one record at once may lose one change.
- A scan yields the records from a key on, in the order of keys. The contract has no scan that begins at a
  key: where scans are ordered, everything before it is passed over; elsewhere the whole table is looked at.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from ckpt.contract.backend import Backend
from ckpt.errors import (
    BackendUnavailableError,
    ConfigError,
    CorruptRecordError,
    QueueFullError,
    UnsupportedError,
)
from ckpt.keeper.acks import SaveResult
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt_bench.ycsb.measures import Recorder, Row
from ckpt_bench.ycsb.records import Record, decode, encode
from ckpt_bench.ycsb.settings import Settings

OK, NOT_FOUND = "OK", "NOT_FOUND"
DURABLE = "DURABLE"
_AT_ONCE_S = 0.001


def status_of(error: BaseException) -> str:
    """The result of an operation that failed, in YCSB's words.

    Examples
    --------
    >>> status_of(BackendUnavailableError()), status_of(CorruptRecordError()), status_of(OSError())
    ('SERVICE_UNAVAILABLE', 'UNEXPECTED_STATE', 'ERROR')
    """
    if isinstance(error, BackendUnavailableError):
        return "SERVICE_UNAVAILABLE"
    if isinstance(error, CorruptRecordError):
        return "UNEXPECTED_STATE"
    return "NOT_IMPLEMENTED" if isinstance(error, UnsupportedError) else "ERROR"


class Binding(Protocol):
    """The operations of YCSB on a table; they raise what the store raises."""

    write_names: Mapping[str, str]
    """How what `insert` and `update` measure is called, if not INSERT and UPDATE."""

    def read(self, key: bytes, field: str | None) -> Record | None:
        """The record, or one field of it; None if there is no such record or field."""

    def insert(self, key: bytes, record: Record, due_ns: int = 0) -> None:
        """Write a whole record; it was due then, or is now."""

    def insert_many(self, records: Mapping[bytes, Record], due_ns: int = 0) -> None:
        """Write whole records with one wait."""

    def update(self, key: bytes, changes: Record, due_ns: int = 0) -> bool:
        """Change these fields; whether there is such a record."""

    def scan(self, first: bytes, count: int, field: str | None) -> list[Record]:
        """So many records from this key on."""

    def finish(self) -> None:
        """Return when everything written is durable."""

    def pending(self) -> int:
        """How many writes are not durable yet."""

    def abandon(self) -> None:
        """Wait for nothing more: neither does `close`, and what is pending is reported as that."""

    def close(self) -> None:
        """Free what this binding opened, which is not the backend; idempotent."""

    def rows(self) -> list[Row]:
        """What there is to report beyond latencies."""

    def faults(self) -> list[str]:
        """What is wrong with its own accounts."""


class BackendBinding:
    """Every operation is a call of the backend, durable when it returns."""

    write_names: Mapping[str, str] = {}

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.backend = backend
        self._table = settings.table
        self._fields = settings.fieldcount

    def read(self, key: bytes, field: str | None) -> Record | None:
        value = self.backend.get_many(self._table, (key,)).get(key)
        return None if value is None else _taken(decode(value), field)

    def insert(self, key: bytes, record: Record, due_ns: int = 0) -> None:
        del due_ns
        self.backend.put_many(self._table, {key: encode(record)})

    def insert_many(self, records: Mapping[bytes, Record], due_ns: int = 0) -> None:
        del due_ns
        self.backend.put_many(self._table, {key: encode(record) for key, record in records.items()})

    def update(self, key: bytes, changes: Record, due_ns: int = 0) -> bool:
        del due_ns
        if len(changes) < self._fields:
            value = self.backend.get_many(self._table, (key,)).get(key)
            if value is None:
                return False
            changes = decode(value) | changes
        self.backend.put_many(self._table, {key: encode(changes)})
        return True

    def scan(self, first: bytes, count: int, field: str | None) -> list[Record]:
        rows = (row for row in self.backend.scan(self._table) if row[0] >= first)
        if self.backend.capabilities.ordered_scan:
            chosen = list(itertools.islice(rows, count))
        else:
            chosen = heapq.nsmallest(count, rows)
        return [_taken(decode(value), field) or {} for _, value in chosen]

    def finish(self) -> None:
        self.backend.flush()

    def pending(self) -> int:
        return 0

    def abandon(self) -> None:
        """Nothing is pending."""

    def close(self) -> None:
        """There is nothing but the backend, which is not its own."""

    def rows(self) -> list[Row]:
        return []

    def faults(self) -> list[str]:
        return []


class KeeperBinding:
    """A write is a save: SAVE is how long the caller waits, DURABLE how long until it is acknowledged."""

    write_names: Mapping[str, str] = {"INSERT": "SAVE", "UPDATE": "SAVE"}

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        recorder: Recorder,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self.backend = backend
        self._fields = settings.fieldcount
        self._statuses = recorder.statuses
        self._times = recorder.of(DURABLE)
        self._on_error = on_error
        self._submitted: dict[bytes, deque[tuple[int, int]]] = {}
        """Key → when each of its saves was due, and when it was made."""
        self._abandoned = False
        self._saves = itertools.count()
        self._made: int | None = None
        """How many there were when nobody waited any more."""
        self._wide = settings.measurement_interval != "op"
        self._keeper = SafeKeeper(backend, on_result=self._acknowledged, **settings.keeper_options)
        self._states = self._keeper.namespace(settings.table)
        self._accounts = self._states.accounts()

    def read(self, key: bytes, field: str | None) -> Record | None:
        state = self._states.load(key)
        return None if state is None else _taken(state, field)

    def insert(self, key: bytes, record: Record, due_ns: int = 0) -> None:
        waiting = self._submitted.get(key)
        if waiting is None:
            waiting = self._submitted.setdefault(key, deque())
        now_ns = time.perf_counter_ns()
        waiting.append((due_ns or now_ns, now_ns))
        try:
            self._states.save(key, record)
        finally:
            next(self._saves)  # one that still waits for room is not made yet

    def insert_many(self, records: Mapping[bytes, Record], due_ns: int = 0) -> None:
        for key, record in records.items():
            self.insert(key, record, due_ns)

    def update(self, key: bytes, changes: Record, due_ns: int = 0) -> bool:
        if len(changes) < self._fields:
            state = self._states.load(key)
            if state is None:
                return False
            changes = state | changes
        self.insert(key, changes, due_ns)
        return True

    def scan(self, first: bytes, count: int, field: str | None) -> list[Record]:
        del first, count, field
        raise UnsupportedError("a SafeKeeper does not scan; leave safekeeper=true out")

    def _acknowledged(self, result: SaveResult) -> None:
        """Once for every save: of one key in order, but for refused ones, which are the newest."""
        if self._abandoned:
            return
        ended = time.perf_counter_ns()
        error = result.error
        waiting = self._submitted[result.key]
        if error is None:
            due, started = waiting.popleft()
            # one call, since a refused save is acknowledged on another thread
            self._times.extend((due, started, ended) if self._wide else (started, ended))
        elif isinstance(error, QueueFullError):
            waiting.pop()
        else:
            waiting.popleft()
            self._statuses[DURABLE, status_of(error)] += 1
            self._on_error(DURABLE, error if isinstance(error, Exception) else RuntimeError(error))

    def finish(self) -> None:
        try:
            self._keeper.flush()
        finally:
            if not self._abandoned:
                self._accounts = self._states.accounts()

    def pending(self) -> int:
        return self._states.accounts().pending

    def abandon(self) -> None:
        self._abandoned = True
        self._accounts, self._made = self._states.accounts(), next(self._saves)
        self._keeper.options = replace(self._keeper.options, close_timeout_s=_AT_ONCE_S)

    def close(self) -> None:
        try:
            self._keeper.close()
        except BackendUnavailableError:
            if not self._abandoned:
                raise

    def rows(self) -> list[Row]:
        names = ("submitted", "durable", "coalesced", "dropped", "failed", "pending")
        return [("SAFEKEEPER", name.capitalize(), getattr(self._accounts, name)) for name in names]

    def faults(self) -> list[str]:
        found = []
        if not self._accounts.balanced:
            found.append(f"the SafeKeeper's account does not balance: {self._accounts}")
        saves = next(self._saves) if self._made is None else self._made
        if saves != self._accounts.submitted:
            found.append(f"{saves} saves were made, and the SafeKeeper counts {self._accounts.submitted}")
        return found


def bound(
    backend: Backend, settings: Settings, recorder: Recorder, on_error: Callable[[str, Exception], None]
) -> Binding:
    """The binding that the settings ask for."""
    if settings.safekeeper:
        return KeeperBinding(backend, settings, recorder, on_error)
    if settings.keeper_options:
        raise ConfigError("safekeeper.… options need safekeeper=true")
    return BackendBinding(backend, settings)


def counted(faults: Counter[str]) -> str:
    """Counts in words.

    Examples
    --------
    >>> counted(Counter({"NOT_FOUND": 3, "ERROR": 1}))
    '3 NOT_FOUND, 1 ERROR'
    """
    return ", ".join(f"{count} {what}" for what, count in faults.most_common())


def _taken(record: Record, field: str | None) -> Record | None:
    """The record, or one field of it; None if it was written without that field."""
    if field is None:
        return record
    return {field: record[field]} if field in record else None
