"""Acknowledgements: one `concurrent.futures.Future` per queued save, resolved exactly once.

All acknowledgements of a keeper share one condition. That makes them cheap to create, and a whole batch is
resolved under one lock with one wake-up. `concurrent.futures.wait` and `as_completed`, `asyncio.wrap_future`
and `add_done_callback` work as on any other future; a save cannot be cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

_PENDING, _FINISHED = "PENDING", "FINISHED"


class _Deleted:
    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = _Deleted()
"""What stands in the place of a state when the save is a delete."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """How one save (or delete) ended; given to `on_result` exactly once for each."""

    namespace: str
    key: bytes
    error: BaseException | None
    """None: durable. QueueFullError: dropped by the overflow policy. Anything else: failed."""


class AckCondition(threading.Condition):
    """What the acknowledgements of one keeper share.

    Its lock is re-entrant, since the standard library's `wait` locks several futures at once.
    """

    def __init__(self) -> None:
        super().__init__(threading.RLock())
        self.waits_begun = 0
        """How often a caller has begun to wait for a save, or asked to be called when it is done."""


class Ack(Future[None]):
    """Done when the save is durable, or with the error that says why it is not.

    A save that replaces a queued one of the same key joins its acknowledgement: both callers hold the same
    future, which resolves when the newer state is durable.

    Examples
    --------
    >>> import ckpt
    >>> from concurrent.futures import wait
    >>> with ckpt.SafeKeeper("memory://") as keeper:
    ...     words = keeper.namespace("words")
    ...     acks = [words.save(word, 1) for word in ("to", "be")]
    ...     done, pending = wait(acks)
    >>> len(done), len(pending)
    (2, 0)
    """

    _condition: AckCondition
    _state = _PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _watched = False

    # What the keeper needs to know about a queued save. The acknowledgement is its own queue entry, because
    # one object per save is measurably cheaper than two.
    saves = 1
    """How many saves it stands for: the newest and those it replaced."""
    entry: Any = None
    """The live state it was taken from, and that state's generation."""
    generation = 0

    def __init__(self, condition: AckCondition, key: bytes, payload: Any, enqueued_s: float) -> None:
        # Future.__init__ would create a condition of its own, which costs more than the rest of a save.
        self._condition = condition
        self.key = key
        self.payload = payload
        self.enqueued_s = enqueued_s

    def __getattr__(self, name: str) -> Any:
        """The lists of waiters and callbacks that the standard library fills, made when it first asks.

        Most saves are only waited for with `result`, and two lists less per save halve what the garbage
        collector has to look at.
        """
        if name not in ("_waiters", "_done_callbacks"):
            raise AttributeError(name)
        made: list[Any] = []
        setattr(self, name, made)
        self._watched = True
        self._condition.waits_begun += 1
        return made

    def cancel(self) -> bool:
        """False: a save cannot be taken back, only replaced by a newer one."""
        return False

    def result(self, timeout: float | None = None) -> None:
        """Return when the save is durable; raise its error, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                # break the cycle of this frame and the error's traceback, as the standard library does
                del error, self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error of the save, None once it is durable; raises TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError
        return self._exception

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the save is durable or has failed; whether it is."""
        if self._state == _FINISHED:  # for good: no lock is needed to see that
            return True
        with self._condition:
            if self._is_finished():
                return True
            self._condition.waits_begun += 1
            # the condition is shared: a wake-up may belong to another save
            return self._condition.wait_for(self._is_finished, timeout)

    def _is_finished(self) -> bool:
        return self._state == _FINISHED

    def settle(self, error: BaseException | None) -> bool:
        """Record the outcome and tell waiters; the caller holds the shared condition and notifies it.

        Returns whether callbacks were added, for the caller to run once it has let the condition go.
        """
        if error is not None:
            self._exception = error
        if self.entry is not None:
            self.entry = None
        self.payload = None
        self._state = _FINISHED
        if not self._watched:
            return False
        for waiter in self._waiters:
            if error is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
        return bool(self._done_callbacks)

    def callbacks(self) -> list[Callable[[Future[None]], object]]:
        """What `add_done_callback` was given before the save was resolved, to be called once each."""
        return list(self._done_callbacks)


def settle_all(
    condition: AckCondition, outcomes: Iterable[tuple[object, Iterable[Ack], BaseException | None]]
) -> list[Ack]:
    """Resolve groups of (whatever, acknowledgements, their error) under one lock with one wake-up.

    Returns those whose callbacks are to be run.
    """
    with condition:
        called = [ack for _, acks, error in outcomes for ack in acks if ack.settle(error)]
        condition.notify_all()
    return called
