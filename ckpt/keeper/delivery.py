"""Telling callers of save: each outcome is delivered exactly once, to its future first, then to callbacks.

Callbacks run without the queue's lock, so that they may use the keeper. A flush waits for the callbacks of
what it waited for; so a delivery is marked as under way (with a *ticket*) while the lock is still held.

Whatever a callback raises is logged and counted and stops nothing, `sys.exit()` included: most callbacks run
on the writer's thread, and without that nothing more would be saved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ckpt.errors import UnsupportedError, shown_key
from ckpt.keeper.acks import Ack, AckCondition, SaveResult, settle_all
from ckpt.keeper.lanes import Lane

log = logging.getLogger("ckpt")

ArgumentT = TypeVar("ArgumentT")
Outcome = tuple[Lane, list[Ack], BaseException | None]
"""Saves that ended alike, in one tuple: one for each would be as many objects as there are saves."""


class Deliveries:
    """Resolves futures and runs callbacks for one queue."""

    def __init__(self, lock: threading.Lock, on_result: Callable[[SaveResult], object] | None) -> None:
        self.acked = AckCondition()
        """What the keeper's acknowledgements share."""
        self.callback_errors = 0
        self._lock = lock
        self._on_result = on_result
        self._delivered = threading.Condition(lock)
        self._tickets: dict[int, int] = {}
        """Deliveries under way, each with the thread that runs its callbacks."""
        self._last_ticket = 0

    def ticket(self) -> int:
        """Mark a delivery as under way; the caller holds the lock."""
        self._last_ticket += 1
        self._tickets[self._last_ticket] = threading.get_ident()
        return self._last_ticket

    def deliver(self, outcomes: list[Outcome], ticket: int) -> None:
        """Resolve the futures of a batch, then run callbacks; the caller does not hold the lock."""
        try:
            for ack in settle_all(self.acked, outcomes):
                for callback in ack.callbacks():
                    self._call("a callback of the future", callback, ack, ack.key)
            if self._on_result is not None:
                for lane, acks, error in outcomes:
                    for ack in acks:
                        result = SaveResult(lane.name, ack.key, error)
                        for _ in range(ack.saves):
                            self._call("on_result", self._on_result, result, ack.key)
        finally:
            with self._lock:
                del self._tickets[ticket]
                self._delivered.notify_all()

    def _call(
        self, what: str, function: Callable[[ArgumentT], object], argument: ArgumentT, key: bytes
    ) -> None:
        try:
            function(argument)
        except BaseException as error:
            self.callback_errors += 1
            log.exception("%s raised for key %s", what, shown_key(key))
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # the user pressed Ctrl-C

    def wait_for(self, acks: Sequence[Ack], timeout_s: float | None) -> int:
        """Wait until these are resolved and callbacks have returned; how many are still pending."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        for index, ack in enumerate(acks):
            if not ack.wait(_remaining(deadline_s)):
                return sum(not late.done() for late in acks[index:])
        with self._lock:
            tickets = set(self._tickets)
            self._delivered.wait_for(lambda: tickets.isdisjoint(self._tickets), _remaining(deadline_s))
        return 0

    def forbid_in_callback(self) -> None:
        """Raise where waiting would never end: on a thread that is running callbacks."""
        with self._lock:
            if threading.get_ident() in self._tickets.values():
                raise UnsupportedError("inside a callback this would wait for itself; do it elsewhere")


def _remaining(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
