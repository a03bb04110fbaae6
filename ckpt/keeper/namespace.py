"""One operator's view of a SafeKeeper: its states by key, and when they become checkpoints.

- `save` makes a checkpoint now. `update` says that one event was processed and what the state is now; the
  triggers decide when that becomes a checkpoint.
- Whatever is saved or updated is copied first: the operator may go on changing its own object.
- `load` finds the newest state: in memory, then in the queue, then in the backend.
- A state in memory is dirty until a checkpoint of exactly it is durable. If its save fails it stays dirty,
  and the next trigger saves it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ckpt.contract.backend import Backend
from ckpt.errors import BackendUnavailableError, ConfigError, CorruptRecordError, SerializationError
from ckpt.keeper.acks import DELETED, Ack
from ckpt.keeper.lanes import Accounts, Lane
from ckpt.keeper.loading import CheckpointLoader
from ckpt.keeper.options import NamespaceOptions, OnUnavailable
from ckpt.keeper.queue import SaveQueue
from ckpt.keeper.recovery import HOT_NAMESPACE, HotKeys, Recovery
from ckpt.keeper.snapshot import snapshot
from ckpt.keeper.triggers import TimeTriggers

KeyT = TypeVar("KeyT", str, bytes)

_USE_DEFAULT: Any = object()
_UNKNOWN: Any = object()
"""In the place of a state that is neither in memory nor in the queue: the backend has to say."""


def key_bytes(key: str | bytes) -> bytes:
    """The key as the backend knows it: text becomes its UTF-8 bytes, so "be" and b"be" are the same key.

    Examples
    --------
    >>> key_bytes("é"), key_bytes(b"raw")
    (b'\\xc3\\xa9', b'raw')
    """
    if isinstance(key, bytes):
        return bytes(key)
    if not isinstance(key, str):
        raise TypeError(f"a key is str or bytes, got {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise ConfigError("a text key with lone surrogates has no UTF-8 form; give bytes") from None


class Namespace:
    """Checkpoints of one operator. Made by `SafeKeeper.namespace`; safe to use from several threads.

    Examples
    --------
    >>> import ckpt
    >>> with ckpt.SafeKeeper("memory://") as keeper:
    ...     words = keeper.namespace("words", every_events=2, default={"count": 0})
    ...     for word in ["to", "be", "or", "not", "to", "be"]:
    ...         state = words.load(word)
    ...         state["count"] += 1
    ...         ack = words.update(word, state)  # every second event of a word becomes a checkpoint
    ...     ack.result()
    ...     words.load_many(["be", "or", "never"])
    {'be': {'count': 2}, 'or': {'count': 1}}
    """

    def __init__(
        self,
        lane: Lane,
        options: NamespaceOptions,
        *,
        queue: SaveQueue,
        loader: CheckpointLoader,
        backend: Backend,
        clock: Callable[[], float],
        pause: Callable[[float], bool],
        loads: dict[str, int],
    ) -> None:
        self.name = lane.name
        self.options = options
        self._lane = lane
        self._queue = queue
        self._loader = loader
        self._backend = backend
        self._clock = clock
        self._pause = pause
        self._loads = loads
        self._hot = HotKeys(options.hot_keys) if options.hot_keys else None
        self._hot_known = False
        self._waits = options.on_unavailable is OnUnavailable.WAIT
        self._recovery: Recovery | None = None
        self.time_triggers = TimeTriggers(every_s=options.every_s, ttl_s=options.ttl_s, now_s=clock())

    # -- saving ----------------------------------------------------------------------------------

    def save(self, key: str | bytes, state: Any) -> Ack:
        """Make a checkpoint of the state now; a future that is done when it is durable.

        Every failure is on the future: SerializationError, QueueFullError, FencedError, BlankStateError or
        BackendUnavailableError. A save of a key that is still queued replaces it and joins its future.
        """
        raw = key if type(key) is bytes else key_bytes(key)
        try:
            copied = snapshot(state)
        except SerializationError as error:
            return self._queue.refuse(self._lane, raw, error)
        return self._queue.save(self._lane, raw, copied)

    def delete(self, key: str | bytes) -> Ack:
        """Forget the state, in memory and in the backend; a future that is done when that is durable."""
        return self._queue.save(self._lane, key_bytes(key), DELETED)

    def update(self, key: str | bytes, state: Any) -> Ack | None:
        """One event was processed and the state is now this one; the future, if that triggered a save.

        Raises SerializationError if the state cannot be copied, and BackendUnavailableError once closed.
        """
        raw = key if type(key) is bytes else key_bytes(key)
        copied = snapshot(state)
        options, lane = self.options, self._lane
        surplus: list[bytes] = []
        self._queue.acquire()
        try:
            self._queue.require_open()
            entry = lane.live.update(raw, copied, self._clock())
            entry.events += 1
            due = options.every_events is not None and (
                entry.events >= options.every_events
                and entry.events >= options.every_events * self._queue.current_stretch()
            )
            if options.max_states is not None:
                surplus = lane.live.surplus(options.max_states)
            if lane.touched is not None:
                lane.touched.add(raw)
            if self._hot is not None:
                self._hot.count(raw)
        finally:
            self._queue.lock.release()
        for evicted in surplus:
            self._queue.save_live(lane, evicted)
        return self._queue.save_live(lane, raw) if due else None

    def checkpoint(self) -> list[Ack]:
        """Save every dirty state now; their futures."""
        with self._queue.lock:
            dirty = list(self._lane.live.dirty)
        acks = [self._queue.save_live(self._lane, key, explicit=True) for key in dirty]
        return [ack for ack in acks if ack is not None]

    def evict(self, key: str | bytes) -> Ack:
        """Take a state out of memory, saved first if dirty; a future that is done when it is gone."""
        raw = key_bytes(key)
        with self._queue.lock:
            entry = self._lane.live.by_key.get(raw)
            dirty = entry is not None and self._lane.live.leave(raw, entry)
        ack = self._queue.save_live(self._lane, raw, explicit=True) if dirty else None
        return ack or self._queue.done(raw)

    def discard(self, key: str | bytes) -> None:
        """Take a state out of memory without saving it; the next load asks the queue and the backend."""
        with self._queue.lock:
            self._lane.live.remove(key_bytes(key))

    # -- loading ---------------------------------------------------------------------------------

    def load(self, key: str | bytes, default: Any = _USE_DEFAULT) -> Any:
        """The newest state of the key, or the default if there is none; yours to change.

        Raises BackendUnavailableError (unless `on_unavailable` says otherwise), CorruptRecordError or
        SerializationError. None of them means that there is no checkpoint.
        """
        raw = key if type(key) is bytes else key_bytes(key)
        queue = self._queue
        if not queue.lock.acquire(False):
            queue.acquire()
        try:
            queue.require_open()
            state = self._look(raw)
        finally:
            queue.lock.release()
        if state is _UNKNOWN:
            value = self._fetched([raw]).get(raw)
            if value is not None:
                return self._decoded(raw, value)
        elif state is not DELETED:
            return snapshot(state)
        return snapshot(self.options.default) if default is _USE_DEFAULT else default

    def load_many(self, keys: Iterable[KeyT]) -> dict[KeyT, Any]:
        """The newest states of those keys that have one; the backend is asked once for all."""
        raws = {key: key_bytes(key) for key in keys}
        found = self._load(list(dict.fromkeys(raws.values())))
        return {key: found[raw] for key, raw in raws.items() if raw in found}

    def _load(self, raws: list[bytes]) -> dict[bytes, Any]:
        self._queue.acquire()
        try:
            self._queue.require_open()
            states = {raw: self._look(raw) for raw in raws}
        finally:
            self._queue.lock.release()
        unknown = [raw for raw, state in states.items() if state is _UNKNOWN]
        found = {
            raw: snapshot(state)
            for raw, state in states.items()
            if state is not _UNKNOWN and state is not DELETED
        }
        if unknown:
            values = self._fetched(unknown)
            found.update({raw: self._decoded(raw, values[raw]) for raw in unknown if raw in values})
        return found

    def _look(self, raw: bytes) -> Any:
        """The state in memory or in the queue, DELETED, or _UNKNOWN; the caller holds the lock."""
        lane = self._lane
        entry = lane.live.by_key.get(raw)
        if entry is not None:
            lane.live.touch(raw, entry, self._clock())
            self._loads["live"] += 1
            return entry.state
        slot = lane.queued.get(raw) or lane.inflight.get(raw)
        if slot is not None:
            self._loads["queue"] += 1
            return slot.payload
        return _UNKNOWN

    def _fetched(self, raws: list[bytes]) -> dict[bytes, bytes]:
        options, lane = self.options, self._lane
        try:
            if self._waits:
                values = self._loader.fetch_patiently(lane.name, raws, options.wait_s, self._pause)
            else:
                values = self._loader.fetch(lane.name, raws)
        except BackendUnavailableError:
            with self._queue.lock:
                self._loads["unavailable"] += len(raws)
                if options.on_unavailable is not OnUnavailable.BLANK:
                    raise
                lane.blind.update(raws)
                for raw in raws:
                    entry = lane.live.by_key.get(raw)
                    if entry is not None and not entry.dirty:
                        lane.live.remove(raw)  # came meanwhile, unseen: the next load is to ask again
            return {}
        with self._queue.lock:
            if lane.blind:
                lane.blind.difference_update(raws)
            self._loads["backend"] += len(values)
            if len(values) < len(raws):
                self._loads["missing"] += len(raws) - len(values)
        return values

    def _decoded(self, raw: bytes, value: bytes) -> Any:
        try:
            return self._lane.codec.decode(value, namespace=self.name, key=raw)
        except (CorruptRecordError, SerializationError) as error:
            with self._queue.lock:
                self._loads["unreadable"] += 1
            raise type(error)(f"{error} (in {self._backend.address})") from error.__cause__

    # -- recovery --------------------------------------------------------------------------------

    def recover(
        self,
        *,
        eager: bool = True,
        hot_first: bool = True,
        on_progress: Callable[[Recovery], object] | None = None,
    ) -> Recovery | None:
        """Bring checkpoints into memory in the background; None with `eager=False`, where each load does.

        A state that the operator loads, updates or saves meanwhile is never replaced. It ends when there are
        `max_states` in memory; with `hot_first` the hottest of those it brought are the last to be evicted. A
        second call while one is under way returns the one under way.
        """
        if not eager:
            return None
        with self._queue.lock:
            self._queue.require_open()
            if self._recovery is not None and not self._recovery.finished:
                return self._recovery
            recovery = self._recovery = Recovery(
                self._lane,
                self._queue,
                self._backend,
                clock=self._clock,
                limit=self.options.max_states,
                hot=self._hot_keys if hot_first else None,
                on_progress=on_progress,
            )
        recovery.start()
        return recovery

    def stop_recovery(self) -> None:
        """End an eager recovery early; what was read so far stays in memory."""
        if self._recovery is not None:
            self._recovery.stop()

    def _hot_keys(self) -> Iterable[bytes]:
        if self._hot is None:
            return ()
        if not self._hot_known:
            raw = self.name.encode()
            value = self._backend.get_many(HOT_NAMESPACE, [raw]).get(raw)
            with self._queue.lock:
                self._hot_known = True
                if value is not None:
                    self._hot.merge(value)
        with self._queue.lock:
            return list(self._hot)

    def hot_record(self) -> tuple[bytes, bytes] | None:
        """What to put into the reserved namespace, if the counts have changed since the last time."""
        with self._queue.lock:
            if self._hot is None or not self._hot.changed:
                return None
            return self.name.encode(), self._hot.record()

    # -- time and numbers ------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due by now: save dirty states, evict idle ones."""
        with self._queue.lock:
            now_s = self._clock()
            idle_since_s = self.time_triggers.idle_since_s(now_s)
            keys = self._lane.live.idle(idle_since_s) if idle_since_s is not None else []
            if self.time_triggers.save_due(now_s, self._queue.current_stretch()):
                keys += self._lane.live.dirty
        for key in keys:
            self._queue.save_live(self._lane, key)

    def accounts(self) -> Accounts:
        """What became of every save: submitted = coalesced + dropped + failed + durable + pending."""
        with self._queue.lock:
            return self._lane.accounts()

    def __repr__(self) -> str:
        return f"<Namespace {self.name!r} of {self._backend.address}>"
