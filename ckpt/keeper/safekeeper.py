"""The SafeKeeper: between operators and a backend, asynchronous, with an account of every save.

```
operator ── save ──▶ snapshot ──▶ queue, one slot per key ──▶ writer: serialise, one batch ──▶ backend
    ▲                                                                                             │
    └───────────────────────── future, then callback: durable, or why not ◀───────────────────────┘
```
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import Any, Self

from ckpt.contract.addresses import build_options
from ckpt.contract.backend import Backend
from ckpt.contract.registry import open_backend
from ckpt.errors import BackendUnavailableError, CkptError, ConfigError, UnsupportedError
from ckpt.keeper.acks import Ack, SaveResult
from ckpt.keeper.bounded_calls import Fetcher
from ckpt.keeper.breaker import Breaker
from ckpt.keeper.lanes import Lane
from ckpt.keeper.loading import CheckpointLoader
from ckpt.keeper.metrics import prometheus_text
from ckpt.keeper.namespace import Namespace
from ckpt.keeper.options import KeeperOptions, NamespaceOptions
from ckpt.keeper.queue import SaveQueue
from ckpt.keeper.recovery import HOT_NAMESPACE, Recovery
from ckpt.keeper.triggers import Ticker
from ckpt.keeper.writer import Writer
from ckpt.types import check_namespace
from ckpt.values.envelope import ValueCodec

log = logging.getLogger("ckpt")

_HOT_EVERY_S = 30.0
_JOIN_S = 1.0


class SafeKeeper:
    """Saves states without making operators wait; an acknowledged save is durable.

    Close it, or use it as a context manager: what is still queued when the interpreter exits is not written.

    Parameters
    ----------
    backend
        An address, or an open backend. Only a backend that the keeper opened is closed with it.
    on_result
        Called once for every save, with a `SaveResult`, after its future is done: on the writer's thread, or
        on the caller's if the save was refused. It may save, and must not wait for other saves. An exception
        in it is logged and counted.
    codec
        How states become bytes, unless a namespace says otherwise.
    clock
        Seconds for triggers and eviction. With a clock of your own nothing ticks by itself: call `tick`.
    options
        See `ckpt.keeper.options.KeeperOptions`.

    Examples
    --------
    >>> with SafeKeeper("memory://") as keeper:
    ...     words = keeper.namespace("words", every_events=100)
    ...     ack = words.save("be", {"count": 2})
    ...     ack.result()  # durable
    ...     words.load("be"), words.load("or")
    ({'count': 2}, None)
    """

    def __init__(
        self,
        backend: str | Backend,
        *,
        on_result: Callable[[SaveResult], object] | None = None,
        codec: ValueCodec | None = None,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> None:
        self.options = build_options(KeeperOptions, options, of="SafeKeeper")
        if on_result is not None and not callable(on_result):
            raise ConfigError(f"on_result is a function of one SaveResult, got {type(on_result).__name__}")
        if not isinstance(codec, ValueCodec | None):
            raise ConfigError(f"codec is a ckpt.ValueCodec, got {type(codec).__name__}")
        if not isinstance(backend, str | Backend):
            raise ConfigError(f"a SafeKeeper needs an address or a backend, got {type(backend).__name__}")
        self._owns_backend = isinstance(backend, str)
        self.backend = open_backend(backend) if isinstance(backend, str) else backend
        self._codec = codec or ValueCodec()
        self._clock = clock or time.monotonic
        self._namespaces: dict[str, Namespace] = {}
        self._lanes: list[Lane] = []
        self._life = threading.Lock()
        self._closing = threading.Event()
        self._closed = threading.Event()
        self._loads = dict.fromkeys(("live", "queue", "backend", "missing", "unavailable", "unreadable"), 0)
        self._hot_due_s = self._clock() + _HOT_EVERY_S
        self._queue = SaveQueue(
            limit=self.options.queue_saves,
            overflow=self.options.overflow,
            block_timeout_s=self.options.block_timeout_s,
            clock=self._clock,
            on_result=on_result,
        )
        self._fetcher = Fetcher(
            threads=self.options.fetch_threads,
            waiting=self.options.fetch_queue,
            timeout_s=self.options.fetch_timeout_s,
            name="ckpt-fetch",
        )
        breaker = Breaker(
            failures=self.options.breaker_failures, pause_s=self.options.breaker_pause_s, clock=self._clock
        )
        self._loader = CheckpointLoader(self.backend, self._fetcher, breaker)
        self._writer = Writer(
            self._queue,
            self.backend,
            max_batch_records=self.options.max_batch_records,
            max_batch_bytes=self.options.max_batch_bytes,
            retry_s=self.options.retry_s,
            clock=self._clock,
        )
        self._writer.start()
        self._ticker = Ticker(self.tick, self._next_tick_s) if clock is None else None

    # -- namespaces ------------------------------------------------------------------------------

    def namespace(self, name: str, **options: Any) -> Namespace:
        """One operator's keys and triggers; the keeper becomes the namespace's owner.

        Asked again, it returns the same namespace; other options than the first time are a ConfigError. See
        `ckpt.keeper.options.NamespaceOptions` for the options.
        """
        checked = build_options(NamespaceOptions, options, of="namespace")
        check_namespace(name)
        if name == HOT_NAMESPACE:
            raise ConfigError(f"namespace {HOT_NAMESPACE!r} is reserved; choose another name")
        with self._life:
            if self._closing.is_set():
                raise BackendUnavailableError("the SafeKeeper is closed; open a new one")
            found = self._namespaces.get(name)
            if found is not None:
                if options and checked != found.options:
                    raise ConfigError(f"namespace {name!r} is open with other options; give them only once")
                return found
            if checked.expire_s is not None and not self.backend.capabilities.ttl:
                raise UnsupportedError(
                    f"{self.backend.address} cannot let checkpoints expire; leave expire_s out of {name!r}"
                )
            self._fetcher.call(lambda: self.backend.claim(name))
            lane = Lane(name, checked.codec or self._codec, checked.expire_s)
            made = Namespace(
                lane,
                checked,
                queue=self._queue,
                loader=self._loader,
                backend=self.backend,
                clock=self._clock,
                pause=self._closing.wait,
                loads=self._loads,
            )
            self._lanes.append(lane)
            self._namespaces[name] = made
            if self._ticker is not None and checked.has_triggers:
                self._start(self._ticker)
        return made

    def recover(
        self,
        *,
        eager: bool = True,
        hot_first: bool = True,
        on_progress: Callable[[Recovery], object] | None = None,
    ) -> dict[str, Recovery]:
        """Start the eager recovery of every open namespace; by name. With `eager=False` there is none."""
        begun = {
            name: space.recover(eager=eager, hot_first=hot_first, on_progress=on_progress)
            for name, space in list(self._namespaces.items())
        }
        return {name: recovery for name, recovery in begun.items() if recovery is not None}

    def checkpoint(self) -> list[Ack]:
        """Save every dirty state of every namespace now; their futures. `flush` waits for them."""
        return [ack for space in list(self._namespaces.values()) for ack in space.checkpoint()]

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due by the clock: time triggers, evictions. A thread of the keeper calls this."""
        for space in list(self._namespaces.values()):
            space.tick()
        if self._clock() >= self._hot_due_s:
            self._hot_due_s = self._clock() + _HOT_EVERY_S
            self._store_hot_keys()

    def _next_tick_s(self) -> float:
        now_s = self._clock()
        waits_s = [space.time_triggers.next_s(now_s) for space in list(self._namespaces.values())]
        return min([self._hot_due_s - now_s, *waits_s])

    def _start(self, ticker: Ticker) -> None:
        if ticker.ident is None:
            ticker.start()
        else:
            ticker.wake()  # there may be a shorter interval now

    def _store_hot_keys(self) -> None:
        records = [space.hot_record() for space in list(self._namespaces.values())]
        items = dict(record for record in records if record is not None)
        if items:
            try:
                self._fetcher.call(lambda: self.backend.put_many(HOT_NAMESPACE, items))
            except (CkptError, OSError) as error:
                log.warning("the counts of hot keys were not stored: %s", error)

    # -- the end ---------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything submitted before is durable, and every callback for it has returned.

        Raises if the newest save of some key has failed since the last flush: an error of the first one's
        type that says how many there are. Saves that the overflow policy dropped are not failures. Raises
        BackendUnavailableError if saves are still pending after `timeout_s`.
        """
        lanes = list(self._lanes)
        pending = self._queue.barrier(lanes, timeout_s)
        if pending:
            raise BackendUnavailableError(
                f"{pending} saves to {self.backend.address} are still pending after {timeout_s:g} s; "
                f"flush again to go on waiting"
            )
        if timeout_s is None and not self._closing.is_set():
            self.backend.flush()
        elif not self._closing.is_set():
            self._fetcher.call(self.backend.flush, timeout_s=timeout_s)
        self._raise_failures(lanes)

    def _raise_failures(self, lanes: list[Lane]) -> None:
        failures = self._queue.report_failures(lanes)
        if not failures:
            return
        first = failures[0]
        count = f"{len(failures)} saves failed; the first: " if len(failures) > 1 else "a save failed: "
        kind = type(first) if isinstance(first, CkptError) else CkptError
        raise kind(f"{count}{first}") from first

    def close(self) -> None:
        """Save dirty states, flush, stop every thread, give the namespaces up. Idempotent.

        Waits at most about `close_timeout_s`; what is still pending then fails with BackendUnavailableError.
        Raises, after everything was freed, what `flush` would raise. Later saves fail, later loads raise.
        """
        self._queue.deliveries.forbid_in_callback()
        with self._life:
            first = not self._closing.is_set()
            self._closing.set()
        if not first:
            self._closed.wait()
            return
        try:
            self._close()
        finally:
            self._closed.set()
        self._raise_failures(self._lanes)

    def _close(self) -> None:
        deadline_s = time.monotonic() + self.options.close_timeout_s
        self._queue.refuse_more()
        spaces = list(self._namespaces.values())
        for space in spaces:
            space.stop_recovery()
        if self._ticker is not None:
            self._ticker.stop(_JOIN_S)
        with self._queue.lock:
            dirty = [(lane, key) for lane in self._lanes for key in lane.live.dirty]
        for lane, key in dirty:
            self._queue.save_live(lane, key, force=True)
        patience_s = deadline_s - time.monotonic() if self._writer.is_alive() else 0.0
        pending = self._queue.barrier(self._lanes, patience_s)
        self._queue.stop()
        if pending:
            self._writer.hurry()
        self._writer.join(_JOIN_S)
        stuck = self._writer.is_alive()
        self._writer.give_up()
        error = BackendUnavailableError(
            f"{self.backend.address} did not take this save before close gave up after "
            f"{self.options.close_timeout_s:g} s; raise close_timeout_s, and check the backend"
            if stuck
            else f"{self.backend.address} was not given this save because the writer's thread has ended; "
            f"open a new SafeKeeper and save again"
        )
        self._queue.abandon(self._lanes, error)
        self._leave_backend(stuck)
        self._fetcher.close()

    def _leave_backend(self, stuck: bool) -> None:
        """Give claims up and close the backend, as far as it answers in time."""
        timeout_s = _JOIN_S if stuck else self.options.fetch_timeout_s
        if not stuck:
            self._store_hot_keys()
            self._release_all()
        if self._owns_backend:
            # in any case: a store that stays open may stay locked for the rest of this process
            self._try(self.backend.close, timeout_s)

    def _release_all(self) -> None:
        for name in self._namespaces:
            error = self._try(partial(self.backend.release, name), self.options.fetch_timeout_s)
            if isinstance(error, BackendUnavailableError | OSError):
                return  # the others would wait as long, and in vain

    def _try(self, work: Callable[[], object], timeout_s: float | None) -> Exception | None:
        try:
            self._fetcher.call(work, timeout_s=timeout_s)
        except Exception as error:
            log.warning("%s was not closed cleanly: %s", self.backend.address, error, exc_info=True)
            return error
        return None

    # -- numbers ---------------------------------------------------------------------------------

    def metrics(self) -> dict[str, Any]:
        """Counts and sizes; the accounts of all namespaces are one consistent reading."""
        queue, writer, breaker = self._queue, self._writer, self._loader.breaker
        with queue.lock:
            return {
                "namespaces": {
                    lane.name: {
                        **asdict(lane.accounts()),
                        "live_states": len(lane.live),
                        "dirty_states": len(lane.live.dirty),
                    }
                    for lane in self._lanes
                },
                "queue": {
                    "depth": queue.depth,
                    "limit": self.options.queue_saves,
                    "stretch": queue.stretch,
                    "deferred": queue.deferred,
                },
                "writes": {
                    "bytes": writer.written_bytes,
                    "retries": writer.retries,
                    "batch_records": writer.batch_records.read(),
                    "latency_s": writer.latency_s.read(),
                },
                "loads": dict(self._loads),
                "breaker": {"state": str(breaker.state), "opened": breaker.times_opened},
                "callback_errors": queue.deliveries.callback_errors,
            }

    def prometheus(self) -> str:
        """The same numbers in Prometheus' text format."""
        return prometheus_text(self.metrics())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CkptError as failure:
            if error is None:
                raise
            log.warning("while another error was on its way: %s", failure)

    def __repr__(self) -> str:
        return f"<SafeKeeper {self.backend.address}>"
