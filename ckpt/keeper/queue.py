"""The queue between operators and the writer: one slot per key, bounded, and every save accounted for.

A newer save of a queued key takes its slot (it is *coalesced*), so a slow backend sees each key once per
batch and always in its newest state. While a key's write is under way, a newer save waits in the queue, so
writes of one key are never reordered. At every instant, for every namespace:

    submitted = coalesced + dropped + failed + durable + pending

This module decides what happens to a save that arrives, and what the writer takes. What became of the saves
that it took is accounted for in `ckpt.keeper.lanes`, and told to their callers by `ckpt.keeper.delivery`.

One lock guards the slots, the accounts and the live states, so that this is true in every reading, and so
that a load finds a state either in memory, in the queue or in the backend.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ckpt.errors import BackendUnavailableError, CkptError, QueueFullError
from ckpt.keeper.acks import DELETED, Ack, SaveResult, settle_all
from ckpt.keeper.delivery import Deliveries, Outcome
from ckpt.keeper.lanes import Lane, Overflow
from ckpt.keeper.states import Entry

MAX_STRETCH = 64.0
_RELAXED = 0.25
_NEVER = 1 << 62
_POLITE_TRIES = 100
_GATHER, _GATHER_S = 256, 0.001


class SaveQueue:
    """Takes saves from any thread and hands batches to one writer."""

    def __init__(
        self,
        *,
        limit: int,
        overflow: Overflow,
        block_timeout_s: float | None,
        clock: Callable[[], float],
        on_result: Callable[[SaveResult], object] | None,
    ) -> None:
        self.lock = threading.Lock()
        self._work = threading.Condition(self.lock)
        self._room = threading.Condition(self.lock)
        self.deliveries = Deliveries(self.lock, on_result)
        self._acked = self.deliveries.acked
        self._limit = limit
        self._unbounded = overflow is Overflow.COALESCE_ONLY
        self._overflow = overflow
        self._block_timeout_s = block_timeout_s
        self._clock = clock
        self._active: dict[Lane, None] = {}
        """Namespaces with queued saves; the writer serves them in turn."""
        self._blocked = 0
        self._wake_at = _NEVER
        """The depth at which a new slot wakes the writer, while it waits."""
        self._waits_seen = 0
        self._closing = False
        self._stopped = False
        self.writer_ident: int | None = None
        self.depth = 0
        self.stretch = 1.0
        """The factor by which `adapt` slows triggers down."""
        self.deferred = 0
        """Triggered saves that `adapt` put off."""

    # -- submitting ------------------------------------------------------------------------------

    def save(self, lane: Lane, key: bytes, payload: Any) -> Ack:
        """Queue a state (a snapshot) or DELETED. Errors are on the acknowledgement, never raised."""
        lock = self.lock
        if not lock.acquire(False):
            self.acquire()
        try:
            if (
                self.depth < self._limit
                and lane.touched is None
                and not (lane.live.by_key or lane.fenced or self._closing)
            ):
                # nothing to look out for: the same as below in fewer steps, since this is every save's path
                ack = lane.queued.get(key)
                if ack is None:
                    ack = self._new_slot(lane, key)
                else:
                    ack.saves += 1
                    if ack.entry is not None:
                        ack.entry = None
                    lane.coalesced += 1
                lane.submitted += 1
                ack.payload = payload
                return ack
        finally:
            lock.release()
        return self._save_carefully(lane, key, payload)

    def acquire(self) -> None:
        """Take the lock, for producers: rather let others run than stand in line for it.

        A thread that stands in line is handed the lock before it has the interpreter. Until it gets that,
        every other producer has to stand in line too, and from then on each save costs a switch of threads
        (measured with eight producers: three times the processor time per save).
        """
        for _ in range(_POLITE_TRIES):
            if self.lock.acquire(False):
                return
            time.sleep(0)
        self.lock.acquire()

    def _save_carefully(self, lane: Lane, key: bytes, payload: Any) -> Ack:
        lost: list[Outcome] = []
        self.acquire()
        try:
            entry = lane.live.by_key.get(key)
            if entry is not None and payload is not DELETED:
                lane.live.update(key, payload, self._clock())
            ack = self._admit(lane, key, payload, entry, lost)
            ticket = self.deliveries.ticket() if lost else 0
        finally:
            self.lock.release()
        if lost:
            self.deliveries.deliver(lost, ticket)
        return ack

    def save_live(self, lane: Lane, key: bytes, *, explicit: bool = False, force: bool = False) -> Ack | None:
        """Queue a dirty live state; None if there is nothing to save, or if `adapt` puts it off.

        `adapt` never puts off what was asked for explicitly. With `force` neither a full queue nor a closing
        keeper stands in the way.
        """
        lost: list[Outcome] = []
        self.acquire()
        try:
            entry = lane.live.by_key.get(key)
            if entry is None or not entry.dirty or (self._closing and not (explicit or force)):
                return None  # a closing keeper saves what is dirty by itself
            slot = lane.slot(key)
            if slot is not None and slot.entry is entry and slot.generation == entry.generation:
                return slot  # exactly this state is on its way
            if not (explicit or force) and self._puts_off(lane, key):
                self.deferred += 1
                lane.live.failed(key, entry)
                return None
            ack = self._admit(lane, key, entry.state, entry, lost, force=force)
            ticket = self.deliveries.ticket() if lost else 0
        finally:
            self.lock.release()
        if lost:
            self.deliveries.deliver(lost, ticket)
        return ack

    def refuse(self, lane: Lane, key: bytes, error: CkptError) -> Ack:
        """Account for a save that failed before it could be queued."""
        lost: list[Outcome] = []
        with self.lock:
            ack = self._refuse(lane, key, error, lost)
            ticket = self.deliveries.ticket()
        self.deliveries.deliver(lost, ticket)
        return ack

    def done(self, key: bytes) -> Ack:
        """An acknowledgement of nothing to do."""
        ack = Ack(self._acked, key, None, 0.0)
        settle_all(self._acked, [(None, [ack], None)])
        return ack

    def _puts_off(self, lane: Lane, key: bytes) -> bool:
        full = self._overflow is Overflow.ADAPT and self.depth >= self._limit
        return full and key not in lane.queued

    def _admit(
        self,
        lane: Lane,
        key: bytes,
        payload: Any,
        entry: Entry | None,
        lost: list[Outcome],
        *,
        force: bool = False,
    ) -> Ack:
        """Put a save into its slot, waiting for room if that is the policy. The lock is held but to wait."""
        deadline_s: float | None = None
        while True:
            if self._closing and not force:
                return self._refuse(lane, key, lane.closed_error(key), lost)
            if lane.fenced is not None:
                return self._refuse(lane, key, lane.fenced_error(key), lost)
            slot = lane.queued.get(key)
            if slot is not None:
                slot.saves += 1
                lane.coalesced += 1
                break
            if self.depth < self._limit or force or self._unbounded or self._is_writer():
                slot = self._new_slot(lane, key)
                break
            if self._overflow is Overflow.DROP_NEW:
                return self._refuse(lane, key, lane.dropped_error(key), lost)
            if self._overflow is Overflow.DROP_OLDEST:
                lost.append(self._drop_oldest())
                continue
            if deadline_s is None and self._block_timeout_s is not None:
                deadline_s = time.monotonic() + self._block_timeout_s
            if not self._wait_for_room(deadline_s):
                return self._refuse(lane, key, lane.dropped_error(key), lost)
            if entry is not None and payload is not DELETED and not lane.live.needs_save(key, entry):
                return self._overtaken(lane, key, lost)
        lane.submitted += 1
        if lane.touched is not None:
            lane.touched.add(key)
        if payload is DELETED:
            lane.live.remove(key)
            entry = None
        elif entry is None and key in lane.live.by_key:
            # while this save waited for room, the state came into memory
            entry = lane.live.update(key, payload, self._clock())
        if entry is not None:
            payload = entry.state
            entry.events = 0
            slot.generation = entry.generation
        slot.entry = entry
        slot.payload = payload
        return slot

    def _overtaken(self, lane: Lane, key: bytes, lost: list[Outcome]) -> Ack:
        """Account for a save whose state was saved, deleted or replaced by others while it waited for room.

        To queue it now would put an old state over a newer one.
        """
        lane.submitted += 1
        lane.coalesced += 1
        slot = lane.slot(key)
        if slot is not None:
            slot.saves += 1
            return slot
        ack = Ack(self._acked, key, None, self._clock())
        lost.append((lane, [ack], None))
        return ack

    def _new_slot(self, lane: Lane, key: bytes) -> Ack:
        slot = lane.queued[key] = Ack(self._acked, key, None, self._clock())
        self._active[lane] = None
        self.depth += 1
        if self.depth >= self._wake_at:
            self._wake_at = _NEVER
            self._work.notify()
        return slot

    def _is_writer(self) -> bool:
        # a callback that saves runs on the writer's thread, which cannot make room while it waits for room
        return threading.get_ident() == self.writer_ident

    def _wait_for_room(self, deadline_s: float | None) -> bool:
        remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            return False
        self._blocked += 1
        try:
            self._room.wait(remaining_s)
        finally:
            self._blocked -= 1
        return True

    def _drop_oldest(self) -> Outcome:
        lane = min(self._active, key=lambda a: next(iter(a.queued.values())).enqueued_s)
        key = next(iter(lane.queued))
        ack = lane.queued.pop(key)
        self.depth -= 1
        if not lane.queued:
            del self._active[lane]
        lane.dropped += 1
        if ack.entry is not None:
            lane.live.failed(key, ack.entry)
        return lane, [ack], lane.dropped_error(key)

    def _refuse(self, lane: Lane, key: bytes, error: CkptError, lost: list[Outcome]) -> Ack:
        ack = Ack(self._acked, key, None, self._clock())
        lane.submitted += 1
        if isinstance(error, QueueFullError):
            lane.dropped += 1
        else:
            lane.failed += 1
            if not self._closing:
                lane.remember(key, error)
        entry = lane.live.by_key.get(key)
        if entry is not None:
            lane.live.failed(key, entry)
        lost.append((lane, [ack], error))
        return ack

    # -- the writer's side -----------------------------------------------------------------------

    def take(self, max_records: int) -> list[tuple[Lane, list[Ack]]] | None:
        """Wait for saves and take up to that many; None once the queue is empty and stopped."""
        with self.lock:
            while not self.depth:
                if self._stopped:
                    return None
                self._wake_at = 1
                self._work.wait()
            self._gather()
            if self._overflow is Overflow.ADAPT and self.depth >= self._limit:
                self.stretch = min(self.stretch * 2, MAX_STRETCH)
            taken: list[tuple[Lane, list[Ack]]] = []
            room = max_records
            for lane in list(self._active):
                del self._active[lane]
                if len(lane.queued) <= room:
                    lane.inflight, lane.queued = lane.queued, {}
                else:
                    keys = [key for key, _ in zip(lane.queued, range(room), strict=False)]
                    lane.inflight = {key: lane.queued.pop(key) for key in keys}
                    self._active[lane] = None  # behind the others, so that each has its turn
                taken.append((lane, list(lane.inflight.values())))
                room -= len(lane.inflight)
                if not room:
                    break
            self.depth -= max_records - room
            if self._blocked:
                self._room.notify_all()
            return taken

    def _gather(self) -> None:
        """Let a small batch grow for a moment, but only if no caller has begun to wait for a save lately.

        Producers that never wait share the interpreter with the writer; many small batches would cost them
        more than they gain. A save that a caller waits for is written at once.
        """
        waits = self._acked.waits_begun
        enough = min(_GATHER, self._limit)
        if self.depth < enough and waits == self._waits_seen and not (self._closing or self._stopped):
            self._wake_at = enough
            self._work.wait(_GATHER_S)
        self._wake_at = _NEVER
        self._waits_seen = waits

    def current_stretch(self) -> float:
        """The factor for triggers now; each question halves it while the queue is nearly empty.

        The caller holds the lock. Only triggers that would be due without it ask, so it shrinks at the pace
        of the intervals that it stretches.
        """
        if self.stretch > 1.0 and self.depth <= self._limit * _RELAXED:
            self.stretch = max(self.stretch / 2, 1.0)
        return self.stretch

    def settle(self, written: Iterable[tuple[Lane, list[Ack], BaseException | None]]) -> None:
        """Account for saves that were taken: durable without an error, else failed. Then acknowledge them."""
        with self.lock:
            outcomes: list[Outcome] = [
                (lane, lane.settle(acks, error), error) for lane, acks, error in written
            ]
            ticket = self.deliveries.ticket()
        self.deliveries.deliver(outcomes, ticket)

    # -- barriers and the end --------------------------------------------------------------------

    def barrier(self, lanes: Iterable[Lane], timeout_s: float | None) -> int:
        """Wait for everything submitted before, and its callbacks; how many saves are still pending."""
        self.deliveries.forbid_in_callback()
        with self.lock:
            acks = [a for lane in lanes for a in (*lane.queued.values(), *lane.inflight.values())]
        return self.deliveries.wait_for(acks, timeout_s)

    def require_open(self) -> None:
        """Raise once the keeper is closing; the caller holds the lock."""
        if self._closing:
            raise BackendUnavailableError("the SafeKeeper is closed; open a new one")

    def report_failures(self, lanes: Iterable[Lane]) -> list[BaseException]:
        """The errors of keys whose newest save failed, each reported once."""
        with self.lock:
            return [error for lane in lanes for error in lane.take_unreported()]

    def refuse_more(self) -> None:
        """From now on every save is refused, also those that wait for room."""
        with self.lock:
            self._closing = True
            self._room.notify_all()

    def stop(self) -> None:
        """Let the writer end once the queue is empty."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()

    def abandon(self, lanes: Iterable[Lane], error: CkptError) -> None:
        """Fail everything that is still pending; what the writer reports of it later is ignored."""
        with self.lock:
            outcomes: list[Outcome] = [(lane, lane.give_up(error), error) for lane in lanes]
            self._active.clear()
            self.depth = 0
            ticket = self.deliveries.ticket()
        self.deliveries.deliver(outcomes, ticket)
