"""The one thread that writes: it serialises what is queued, writes it as one batch, and then acknowledges it.

One thread, because two would reorder the writes of a key. What goes wrong stays where it went wrong: a state
that cannot be serialised fails alone, a namespace that was taken over fails alone, a record that the backend
refuses fails alone. A backend that is unavailable is tried again, with growing and jittered pauses, for up to
`retry_s`; meanwhile newer saves gather in the queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ckpt.contract.backend import Backend
from ckpt.contract.pauses import pauses_until
from ckpt.errors import (
    BackendUnavailableError,
    BlankStateError,
    CkptError,
    SerializationError,
    shown_key,
)
from ckpt.keeper.acks import DELETED, Ack
from ckpt.keeper.lanes import Lane
from ckpt.keeper.metrics import BATCH_BUCKETS, LATENCY_BUCKETS_S, BucketHistogram
from ckpt.keeper.queue import SaveQueue
from ckpt.types import Changes

log = logging.getLogger("ckpt")

_BAD_ARGUMENT = (TypeError, ValueError)
"""What a backend raises, before writing anything, if it cannot take one of the records (ConfigError too)."""


@dataclass(slots=True)
class _Part:
    """What one write does to one namespace."""

    lane: Lane
    acks: list[Ack] = field(default_factory=list)
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: list[bytes] = field(default_factory=list)

    def changes(self) -> Changes:
        return Changes(self.puts, self.deletes, self.lane.expire_s if self.puts else None)

    def halves(self) -> Iterator[_Part]:
        middle = len(self.acks) // 2
        for acks in (self.acks[:middle], self.acks[middle:]):
            keys = [ack.key for ack in acks]
            puts = {key: self.puts[key] for key in keys if key in self.puts}
            yield _Part(self.lane, acks, puts, [key for key in keys if key not in puts])


_Failed = list[tuple[_Part, BackendUnavailableError | OSError]]


class Writer(threading.Thread):
    """Drains the queue until it is stopped and empty."""

    def __init__(
        self,
        queue: SaveQueue,
        backend: Backend,
        *,
        max_batch_records: int,
        max_batch_bytes: int,
        retry_s: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name="ckpt-writer", daemon=True)
        self._queue = queue
        self._backend = backend
        self._max_records = max_batch_records
        self._max_bytes = max_batch_bytes
        self._retry_s = retry_s
        self._clock = clock
        self._hurry = threading.Event()
        self._given_up = False
        self.retries = 0
        self.written_bytes = 0
        self.latency_s = BucketHistogram(LATENCY_BUCKETS_S)
        self.batch_records = BucketHistogram(BATCH_BUCKETS)

    def hurry(self) -> None:
        """Stop waiting for an unavailable backend: what is not written at the next attempt fails."""
        self._hurry.set()

    def give_up(self) -> None:
        """Write nothing more: the keeper was closed, and what is pending was reported as failed."""
        self._given_up = True

    def run(self) -> None:
        """Write batches until the queue ends; a bug here fails the batch it hits and not the thread."""
        self._queue.writer_ident = threading.get_ident()
        while (taken := self._queue.take(self._max_records)) is not None:
            try:
                self._write(taken)
            except BaseException as error:
                log.exception("the writer failed on a batch of %d namespaces", len(taken))
                self._queue.settle([(lane, acks, error) for lane, acks in taken])

    def _write(self, taken: list[tuple[Lane, list[Ack]]]) -> None:
        parts: list[_Part] = []
        size = 0
        for lane, acks in taken:
            part = _Part(lane)
            puts, written = part.puts, part.acks
            encode, name, max_bytes = lane.codec.encode, lane.name, self._max_bytes
            for ack in self._without_overwrites(lane, acks) if lane.blind else acks:
                key, payload = ack.key, ack.payload
                if payload is DELETED:
                    part.deletes.append(key)
                    size += len(key)
                else:
                    try:
                        data = puts[key] = encode(payload, namespace=name, key=key)
                    except Exception as error:  # noqa: BLE001 - the future carries it to the caller of save
                        self._queue.settle([(lane, [ack], _serialization_error(lane, key, error))])
                        continue
                    size += len(key) + len(data)
                written.append(ack)
                if size >= max_bytes:
                    self._store([*parts, part])
                    parts, part, size = [], _Part(lane), 0
                    puts, written = part.puts, part.acks
            if part.acks:
                parts.append(part)
        if parts:
            self._store(parts)

    def _without_overwrites(self, lane: Lane, acks: list[Ack]) -> list[Ack]:
        """The saves that may be written: a state that began blank never replaces a checkpoint.

        Whether a key is blind is asked here and not when it was saved: an earlier save of the same key may
        have found no checkpoint and written the first one.
        """
        blind = [ack for ack in acks if ack.key in lane.blind]
        refused: list[tuple[Lane, list[Ack], BaseException]] = []
        if blind:
            try:
                existing = self._existing(lane, [ack.key for ack in blind])
                refused = [(lane, [a], _blank_error(lane, a.key)) for a in blind if a.key in existing]
            except (CkptError, OSError) as error:
                refused = [(lane, [ack], error) for ack in blind]
        if refused:
            self._queue.settle(refused)
        lost = {ack.key for _, (ack,), _ in refused}
        return [ack for ack in acks if ack.key not in lost]

    def _existing(self, lane: Lane, keys: list[bytes]) -> dict[bytes, bytes]:
        pauses = self._pauses()
        while True:
            try:
                return self._backend.get_many(lane.name, keys)
            except (BackendUnavailableError, OSError):
                delay_s = next(pauses)
                if delay_s is None:
                    raise
                self.retries += 1
                self._hurry.wait(delay_s)

    def _store(self, parts: list[_Part]) -> None:
        pauses = self._pauses()
        while failed := self._attempt(parts):
            delay_s = next(pauses)
            if delay_s is None:
                self._queue.settle([(part.lane, part.acks, error) for part, error in failed])
                return
            self.retries += 1
            parts = [part for part, _ in failed]
            self._hurry.wait(delay_s)

    def _attempt(self, parts: list[_Part]) -> _Failed:
        """Write the parts together, or else one by one; those for which the backend is unavailable."""
        if self._given_up:
            return []
        try:
            self._backend.write_many({part.lane.name: part.changes() for part in parts})
        except (BackendUnavailableError, OSError) as error:
            if len(parts) == 1:
                return [(parts[0], error)]
            return self._attempt_each(parts)
        except Exception as error:  # noqa: BLE001 - the futures carry it to the callers of save
            if len(parts) > 1:
                return self._attempt_each(parts)
            if len(parts[0].acks) > 1 and isinstance(error, _BAD_ARGUMENT):
                return self._attempt_each(list(parts[0].halves()))
            self._queue.settle([(parts[0].lane, parts[0].acks, error)])
            return []
        now_s = self._clock()
        self.batch_records.observe_many([sum(len(part.acks) for part in parts)])
        self.latency_s.observe_many([now_s - ack.enqueued_s for part in parts for ack in part.acks])
        self.written_bytes += sum(sum(map(len, part.puts.values())) for part in parts)
        self._queue.settle([(part.lane, part.acks, None) for part in parts])
        return []

    def _attempt_each(self, parts: list[_Part]) -> _Failed:
        return [failure for part in parts for failure in self._attempt([part])]

    def _pauses(self) -> Iterator[float | None]:
        """How long to wait before each next attempt; None: there is no next one."""
        for pause_s in pauses_until(time.monotonic() + self._retry_s):
            if self._hurry.is_set():
                break
            yield pause_s
        yield None


def _blank_error(lane: Lane, key: bytes) -> BlankStateError:
    return BlankStateError(
        f"key {shown_key(key)} of namespace {lane.name!r} was neither saved nor deleted: its state began "
        f"blank while the backend was unavailable, and there is a checkpoint; discard() the state, load() "
        f"it, and then save or delete"
    )


def _serialization_error(lane: Lane, key: bytes, error: Exception) -> SerializationError:
    if isinstance(error, SerializationError):
        return error
    wrapped = SerializationError(
        f"key {shown_key(key)} of namespace {lane.name!r} cannot be saved ({type(error).__name__})"
    )
    wrapped.__cause__ = error
    return wrapped
