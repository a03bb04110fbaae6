"""What keeps a log small and quick to open, off the write path: index flushes, merges, garbage collection.

- *Flush*: recent records become a run, and the manifest moves forward, so that less has to be replayed.
- *Merge*: runs of similar size become one; entries that nothing can see are dropped.
- *Collect*: a segment that nothing refers to is retired. A segment of which less than `gc_select` is needed
  is emptied first by appending what is needed again. Nothing is retired before its copy, and the word that
  it was retired, are durable.

One thread does this, started by the first write that needs it. It never holds the engine's lock for longer
than a small batch takes.

A flush that fails is tried again after growing pauses, for as long as it takes. Meanwhile the records that no
run knows stay in memory; once there are too many of them, writes are refused until a flush succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ckpt.contract.backend import CompactionReport
from ckpt.contract.pauses import pauses_until
from ckpt.errors import BackendUnavailableError, CkptError, CorruptRecordError
from ckpt_backends.engine.collect import Collector
from ckpt_backends.engine.engine import Engine, Ticket
from ckpt_backends.engine.manifest import Manifest
from ckpt_backends.engine.merge import merge_layered, merge_plain
from ckpt_backends.engine.options import EngineOptions
from ckpt_backends.engine.recent import Recent, RecentTable
from ckpt_backends.engine.runs import U64, IndexDamagedError, Run, encode_run
from ckpt_backends.engine.storage import LostRaceError

_log = logging.getLogger("ckpt.log")
_MERGE_AT = 4
_BACKLOG = 8
"""Writers wait, or are refused if flushes fail, when so many times `recent_records` wait for a flush."""


class Maintenance:
    """The housekeeper of one engine."""

    def __init__(
        self,
        engine: Engine,
        options: EngineOptions,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._recent_records = options.recent_records
        self._most_waiting = _BACKLOG * options.recent_records
        self._gc, self._gc_trigger, self._gc_select = options.gc, options.gc_trigger, options.gc_select
        self._mutex = threading.RLock()
        """One flush, merge or collection at a time."""
        self._changed = threading.Condition()
        """Notified when there is work for the thread, and when a flush has ended."""
        self._woken = False
        self._thread: threading.Thread | None = None
        self._closing = False
        self._flush_failure: str | None = None
        """Why the last flush failed, if it did."""
        self._prepared_in = 0
        if not engine.storage.read_only:
            engine.on_append = self._on_append

    def _on_append(self) -> None:
        if self._woken:
            return
        if self._is_due() or self._segment_fills_up():
            self._wake()
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="ckpt-log-maintenance", daemon=True)
                self._thread.start()

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _tell_of_flush(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _segment_fills_up(self) -> bool:
        """Half of a segment is used, and the next one has not been prepared yet."""
        tail = self._engine.tail
        if tail.segment == self._prepared_in or 2 * tail.offset < self._engine.storage.capacity():
            return False
        self._prepared_in = tail.segment
        return True

    def wait_for_room(self) -> None:
        """Hold a writer back while the index cannot keep up, so that memory stays bounded.

        Raises BackendUnavailableError if flushes fail and too many records wait for one.
        """
        if self._flush_failure is None and self._engine.index.active.records < self._most_waiting:
            return
        if self._waiting_records() < self._most_waiting:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._engine.index.frozen is None or self._closing)
        failure = self._flush_failure
        if failure is not None and self._waiting_records() >= self._most_waiting:
            raise BackendUnavailableError(
                f"{self._engine.storage.address} takes no writes: too many records wait for its index, which "
                f"cannot be written ({failure}); writes go on once it can be"
            )

    def _waiting_records(self) -> int:
        """How many records no run knows; while flushes fail, with those that the next one may give back."""
        index = self._engine.index
        frozen = index.frozen if self._flush_failure is not None else None
        return index.active.records + (frozen.records if frozen is not None else 0)

    def _run(self) -> None:
        pauses = pauses_until(math.inf)
        is_failing = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._woken)
                self._woken = False
            if self._closing:
                return
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - the thread is never started again, so it must not end
                if self._closing:
                    return
                # The log is complete without its index; the next flush tries again. An unforeseen error, a
                # lack of memory for instance, is logged with its traceback.
                _log.log(
                    logging.DEBUG if is_failing else _level(error),
                    "maintenance of %s failed, it will be tried again: %s",
                    self._engine.storage.address,
                    str(error) or repr(error),
                    exc_info=not isinstance(error, (CkptError, OSError)),
                )
                is_failing = self._flush_failure is not None
                if is_failing:
                    self._pause(next(pauses))
            else:
                if is_failing:
                    _log.info("maintenance of %s goes on", self._engine.storage.address)
                pauses, is_failing, self._flush_failure = pauses_until(math.inf), False, None

    def _pause(self, pause_s: float) -> None:
        """Do nothing for a while, then work again, whether or not something was written meanwhile."""
        with self._changed:
            self._woken = True  # so writes need not wake the thread
            self._changed.wait_for(lambda: self._closing, pause_s)

    def _work(self) -> None:
        """What is due; with a damaged index, a new one."""
        try:
            with self._mutex:
                self._engine.storage.prepare()
                if self._is_due():
                    self.flush()
                    self._merge_some()
                    if self._gc:
                        self._collect_if_due()
        except IndexDamagedError:
            with self.paused():
                self._engine.rebuild()

    def _is_due(self) -> bool:
        """The index files do not know enough of the log any more."""
        engine = self._engine
        known = engine.saved.position.segment if engine.saved else 0
        return (
            engine.index.active.records >= self._recent_records
            or engine.tail.segment - known > engine.storage.unindexed_segments
        )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No flush, merge or collection runs inside this block."""
        with self._mutex:
            yield

    # -- flush -----------------------------------------------------------------------------------

    def flush(self, *, closing: bool = False) -> None:
        """Write recent records as a run and move the manifest forward; it may say that the log is closed."""
        try:
            self._flush(closing=closing)
        except LostRaceError:
            raise
        except BaseException as error:
            self._flush_failure = str(error) or repr(error)
            raise
        self._flush_failure = None

    def _flush(self, *, closing: bool) -> None:
        engine = self._engine
        with self._mutex:
            with engine.lock:
                index, saved = engine.index, engine.saved
                closed = closing and engine.can_be_closed
                known = saved is not None and saved.position == engine.tail and saved.closed >= closed
                if known and not index.unsaved and not index.active.records:
                    return
                if not engine.tail.segment:
                    return  # nothing was ever written, and where writers share a store another may do so now
                index.frozen, index.active = index.active, Recent()
                picture = engine.picture(closed=closed)
            try:
                engine.wait_durable(Ticket(picture.position.sequence - 1, engine.life))
                for name, data in index.unsaved:
                    engine.storage.write_index_file(name, [data])
                new = self._write_run(index.slices(index.frozen)) if index.frozen.records else None
            except BaseException:
                self._thaw()
                raise
            with engine.lock:
                index.unsaved = []
                index.runs = (new, *index.runs) if new else index.runs
                index.frozen = None
            self._tell_of_flush()
            self._save(picture)

    def _thaw(self) -> None:
        """A flush failed: what was frozen is recent again, below what came since."""
        index = self._engine.index
        with self._engine.lock, self._engine.replacing():
            frozen, active = index.frozen, index.active
            assert frozen is not None
            for namespace, table in active.plain.items():
                frozen.plain.setdefault(namespace, RecentTable()).absorb(table)
            for namespace, frames in active.layered.items():
                frozen.layered.setdefault(namespace, []).extend(frames)
            frozen.records += active.records
            index.active, index.frozen = frozen, None
        self._tell_of_flush()

    def _write_run(self, slices: Iterator[tuple[int, U64, U64]]) -> Run:
        storage = self._engine.storage
        name = f"run-{secrets.token_hex(8)}.idx"
        storage.write_index_file(name, encode_run(slices))
        return Run(name, storage.read_index_file(name))

    def _save(self, picture: Manifest) -> None:
        picture.runs = [run.name for run in self._engine.index.runs]
        self._engine.save_manifest(picture)
        self._engine.storage.remove_index_files(set(picture.runs))

    # -- merge -----------------------------------------------------------------------------------

    def _merge_some(self) -> None:
        """Merge the newest runs while several of them are of similar size."""
        with self._mutex:
            runs = self._engine.index.runs
            total = count = 0
            for run in runs:
                if count and run.entries > 2 * total:
                    break
                total, count = total + run.entries, count + 1
            if count >= _MERGE_AT:
                self._merge(runs[:count])

    def _merge(self, runs: Sequence[Run]) -> dict[int, int]:
        """Replace the newest runs by one. Callers hold the mutex and have flushed.

        Returns, for each versioned namespace, the layer at or below which the merged run refers to one record
        of each key, the newest there is; 0 where no layer is known to be like that.
        """
        engine, index = self._engine, self._engine.index
        whole = len(runs) == len(index.runs)
        floors: dict[int, int] = {}
        merged = self._write_run(self._merged_slices(runs, whole, floors))
        # What was left out because of a truncation or a drop must not come back: they are durable first.
        engine.wait_durable(engine.everything())
        with engine.lock:
            index.runs = (merged, *index.runs[len(runs) :])
        assert engine.saved is not None
        self._save(engine.saved)
        return floors

    def _merged_slices(
        self, runs: Sequence[Run], whole: bool, floors: dict[int, int]
    ) -> Iterator[tuple[int, U64, U64]]:
        engine = self._engine
        assert engine.saved is not None
        # A floor that was committed after the flush may have records that no run knows.
        flushed = engine.saved.position.sequence
        for namespace in sorted({n for run in runs for n in run.directory}):
            with engine.lock:
                state = engine.catalog.by_id.get(namespace)
                if state is None:
                    continue
                live = engine.live
                history = state.history
                layer_view, floor = (
                    (state.everything(), state.floor_layer()) if history is not None else (None, 0)
                )
            if layer_view is None:
                yield namespace, *merge_plain(runs, namespace, engine.records, live)
                continue
            floors[namespace] = floor if floor < flushed else 0
            hashes, locations, used = merge_layered(runs, namespace, engine.records, live, layer_view, floor)
            if whole:
                with engine.lock:
                    state.keep_absorbed(used | engine.index.recent_layers(namespace))
            yield namespace, hashes, locations

    # -- collect ---------------------------------------------------------------------------------

    def _collect_if_due(self) -> None:
        engine = self._engine
        with engine.lock:
            written = engine.written_bytes()
            # Both: garbage is a large share, and enough was written since the last time to pay for a merge.
            due = written * (1 - self._gc_trigger) > engine.needed_bytes and (
                written - engine.collected_bytes
                > max(2 * engine.storage.segment_bytes, engine.needed_bytes // 4)
            )
            due |= len(engine.small_segments(engine.tail.segment)) >= engine.storage.small_segments
        if due:
            self._collect(self._gc_select)

    def _collect(self, select: float) -> int:
        """Merge everything, then empty and retire the segments of which less than `select` is needed."""
        engine = self._engine
        with self._mutex:
            if engine.damages or engine.lost:
                _log.warning(
                    "%s is damaged: nothing is collected until it is repaired", engine.storage.address
                )
                return 0
            self.flush()
            if engine.saved is None:
                return 0
            floors = self._merge(engine.index.runs) if engine.index.runs else {}
            needed = engine.index.runs[0].all_locations() if engine.index.runs else np.empty(0, np.uint64)
            assert engine.saved is not None
            collector = Collector(engine, needed, floors, engine.saved.position, self._clock)
            written = collector.collect(select)
            with engine.lock:
                engine.collected_bytes = engine.written_bytes()
            self.flush()
            return written

    def compact(self) -> CompactionReport:
        """Collect every segment that holds a noticeable amount of garbage."""
        started = time.monotonic()
        storage = self._engine.storage
        before = storage.stored_bytes()
        with self._mutex:
            try:
                written = self._collect(0.9)
            except IndexDamagedError:
                self._engine.rebuild()
                written = self._collect(0.9)
            storage.give_back_room()
        return CompactionReport(before, storage.stored_bytes(), written, time.monotonic() - started)

    def close(self) -> None:
        """Stop the thread and leave an index that makes the next open quick.

        A collection that runs ends where it wants to append; what it has moved is there twice until the next.
        """
        engine = self._engine
        self._closing = True
        engine.refuse_writes()
        self._wake()
        if self._thread is not None:
            self._thread.join()
        if engine.storage.read_only or engine.has_failed:
            return
        engine.wait_durable(engine.everything())
        try:
            self.flush(closing=True)
            if not engine.storage.reads_are_cheap:
                self._merge_before_leaving()
            if engine.tail.segment and not engine.untouched:
                engine.storage.cut(engine.tail.segment, engine.tail.offset)
        except BackendUnavailableError as error:
            _log.log(_level(error), "%s was closed without an index: %s", engine.storage.address, error)

    def _merge_before_leaving(self) -> None:
        """Merge runs once more: each index run left behind makes the next open slower.

        A writer that closes before the maintenance thread ran leaves one more run.
        """
        try:
            self._merge_some()
        except (CorruptRecordError, IndexDamagedError) as error:
            _log.log(_level(error), "the index of %s was not merged: %s", self._engine.storage.address, error)


def _level(error: Exception) -> int:
    """To have lost a race is nothing that a person should look into: the winner has done the work."""
    return logging.DEBUG if isinstance(error, LostRaceError) else logging.WARNING
