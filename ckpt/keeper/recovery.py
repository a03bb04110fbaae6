"""Eager recovery: checkpoints become live states in the background, and never replace a newer state.

By default recovery is lazy: a state is read when it is first loaded. `recover(eager=True)` reads all of a
namespace ahead of the stream. With `hot_first` the keys that had the most updates come first: each namespace
keeps counts of its most updated keys and stores them, now and then and at close, in the reserved namespace
`ckpt.hot`, under its own name. A crash loses at most the latest counts, which costs nothing but order.

A checkpoint that cannot be read is counted, and the others are brought all the same. But keys are listed by a
scan, and the contract lets a scan end at the first corrupt record: then the keys that it yielded before, and
the hot keys, are brought, and `error` says that there may be more. Loading any of those reads it as ever.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ckpt.contract.backend import Backend
from ckpt.errors import BackendUnavailableError, CkptError, CorruptRecordError, SerializationError
from ckpt.keeper.lanes import Lane
from ckpt.keeper.queue import SaveQueue
from ckpt.values.envelope import ValueCodec

log = logging.getLogger("ckpt")

ResultT = TypeVar("ResultT")

HOT_NAMESPACE = "ckpt.hot"
_CHUNK = 256
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class _StoppedError(Exception):
    """The recovery was told to stop while it waited for the backend."""


class Recovery:
    """An eager recovery under way: how far it is, and the means to wait for it or to stop it.

    Examples
    --------
    >>> import ckpt
    >>> with ckpt.open_backend("memory://") as backend:
    ...     with ckpt.SafeKeeper(backend) as keeper:
    ...         ack = keeper.namespace("words").save("be", 2)
    ...     with ckpt.SafeKeeper(backend) as keeper:
    ...         recovery = keeper.namespace("words").recover(eager=True, hot_first=True)
    ...         recovery.wait(), recovery.done, recovery.total
    (True, 1, 1)
    """

    def __init__(
        self,
        lane: Lane,
        queue: SaveQueue,
        backend: Backend,
        *,
        clock: Callable[[], float],
        limit: int | None = None,
        hot: Callable[[], Iterable[bytes]] | None = None,
        on_progress: Callable[[Recovery], object] | None = None,
    ) -> None:
        self.namespace = lane.name
        self.total: int | None = None
        """How many checkpoints there are to read; None until that is known."""
        self.done = 0
        """How many were dealt with: read, or left to an operator that was faster, or failed.

        Less than `total` at the end if it was stopped, or if memory held `max_states` before.
        """
        self.failed = 0
        """How many of them could not be read. Loading such a key raises its own error."""
        self.error: Exception | None = None
        """What went wrong first. If `failed` is 0: not every key was listed, or the recovery ended early."""
        self._lane = lane
        self._queue = queue
        self._backend = backend
        self._clock = clock
        self._limit = limit
        self._hot = hot
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ckpt-recovery-{lane.name}", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        with self._queue.lock:
            # what is on its way now may be written after its key was fetched, and be gone from the queue
            # before the answer arrives
            self._lane.touched = {*self._lane.queued, *self._lane.inflight}
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether it has ended: complete, stopped, or with an error."""
        return self._finished.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        return self._finished.wait(timeout_s)

    def stop(self, timeout_s: float | None = 1.0) -> None:
        """End early; what was read so far stays."""
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            keys = self._keys()
            self.total = len(keys)
            self._report()
            for start in range(0, len(keys), _CHUNK):
                if self._stop.is_set() or self._full():
                    break
                self._bring(keys[start : start + _CHUNK])
        except _StoppedError:
            log.debug("the recovery of namespace %r was stopped", self.namespace)
        except Exception as error:
            log.exception("the recovery of namespace %r ended early", self.namespace)
            self.error = self.error or error
        finally:
            with self._queue.lock:
                self._lane.touched = None
            self._finished.set()
            self._report()

    def _keys(self) -> list[bytes]:
        hot = self._persist(self._hottest)
        if self._limit is not None:
            hot = self._persist(lambda: self._present(hot))
            listed = self._persist(self._listed) if len(hot) < self._limit else {}
        else:
            listed = self._persist(self._listed)
            if self.error is None:
                hot = [key for key in hot if key in listed]
        return list(dict.fromkeys([*hot, *listed]))[: self._limit]

    def _present(self, keys: list[bytes]) -> list[bytes]:
        """Those that exist, or cannot be read, without a look at all the others."""
        present: list[bytes] = []
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            try:
                found = self._backend.get_many(self.namespace, chunk)
                present += [key for key in chunk if key in found]
            except CorruptRecordError:
                present += chunk
        return present

    def _listed(self) -> dict[bytes, None]:
        listed: dict[bytes, None] = {}
        try:
            for key, _ in self._backend.scan(self.namespace):
                listed[key] = None
                # A namespace may hold far more than fits, and a list of all of it takes memory too.
                if self._stop.is_set() or len(listed) == self._limit:
                    break
        except CorruptRecordError as error:
            self.error = error
        return listed

    def _hottest(self) -> list[bytes]:
        try:
            return list(self._hot()) if self._hot is not None else []
        except (CorruptRecordError, SerializationError) as error:
            log.warning("namespace %r is recovered without its hot keys first: %s", self.namespace, error)
            return []

    def _bring(self, keys: list[bytes]) -> None:
        """Fetch some checkpoints and make them live, as far as there is room."""
        values = self._fetched(keys)
        states = {}
        for key, value in values.items():
            try:
                states[key] = self._lane.codec.decode(value, namespace=self.namespace, key=key)
            except CkptError as error:
                self._count_failed(error)
        lane = self._lane
        with self._queue.lock:
            touched = lane.touched or ()
            for key, state in states.items():
                # of a blind key the operator holds a blank state, whatever is read here: it has to load again
                known = key in touched or key in lane.blind or key in lane.live.by_key
                if not known and lane.slot(key) is None and not self._full():
                    lane.live.bring(key, state, self._clock())
        self.done += len(keys)
        self._report()

    def _full(self) -> bool:
        # to bring more would only push out states that are in use, or hotter
        return self._limit is not None and len(self._lane.live) >= self._limit

    def _fetched(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values that can be read: where there is one that cannot, in ever smaller parts."""
        try:
            return self._persist(lambda: self._backend.get_many(self.namespace, keys))
        except CorruptRecordError as error:
            if len(keys) == 1:
                self._count_failed(error)
                return {}
        middle = len(keys) // 2
        return self._fetched(keys[:middle]) | self._fetched(keys[middle:])

    def _count_failed(self, error: CkptError) -> None:
        self.failed += 1
        self.error = self.error or error

    def _persist(self, work: Callable[[], ResultT]) -> ResultT:
        """Do it, and again while the backend is unavailable, until stopped."""
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            try:
                return work()
            except (BackendUnavailableError, OSError):
                self._stop.wait(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        raise _StoppedError

    def _report(self) -> None:
        if self._on_progress is not None:
            try:
                self._on_progress(self)
            except BaseException:
                log.exception("on_progress raised for namespace %r", self.namespace)


class HotKeys:
    """The most updated keys of a namespace, approximately, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[bytes, int] = {}
        self.changed = False

    def count(self, key: bytes) -> None:
        """One more update; the caller holds the queue's lock."""
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        self.changed = True
        if len(counts) > 4 * self._limit:
            # halving lets keys that were hot once make way for those that are hot now
            self._counts = {k: n // 2 for k, n in self._hottest()}

    def _hottest(self) -> list[tuple[bytes, int]]:
        return heapq.nlargest(self._limit, self._counts.items(), key=lambda item: item[1])

    def record(self) -> bytes:
        """The counts as a value for the reserved namespace; the caller holds the queue's lock."""
        self.changed = False
        items = [[key, count] for key, count in self._hottest()]
        return ValueCodec().encode(items, namespace=HOT_NAMESPACE, key=b"")

    def merge(self, value: bytes) -> None:
        """Add the counts of an earlier life; the caller holds the queue's lock."""
        for key, count in ValueCodec().decode(value, namespace=HOT_NAMESPACE, key=b""):
            self._counts[key] = self._counts.get(key, 0) + count

    def __iter__(self) -> Iterator[bytes]:
        """Hottest first."""
        return iter([key for key, _ in self._hottest()])
