"""Time triggers: a dirty state is saved within `every_s` of its update, an idle one evicted after `ttl_s`.

The other triggers need no thread: `every_events` and `max_states` are checked by the update that reaches
them. Under the overflow policy `adapt` intervals are multiplied by the queue's stretch factor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("ckpt")

_SHORTEST_S, _LONGEST_S = 0.005, 30.0


class TimeTriggers:
    """When the dirty states of one namespace are due, and which states have been idle for too long."""

    def __init__(self, *, every_s: float | None, ttl_s: float | None, now_s: float) -> None:
        self._every_s = every_s
        self._ttl_s = ttl_s
        self._saved_s = now_s

    def save_due(self, now_s: float, stretch: float) -> bool:
        """Whether dirty states are to be saved now; if so, the interval begins again."""
        if self._every_s is None or now_s < self._saved_s + self._every_s * stretch:
            return False
        self._saved_s = now_s
        return True

    def idle_since_s(self, now_s: float) -> float | None:
        """States last used before that are to be evicted."""
        return None if self._ttl_s is None else now_s - self._ttl_s

    def next_s(self, now_s: float) -> float:
        """How long until it is worth looking again."""
        save_s = self._saved_s + self._every_s - now_s if self._every_s is not None else _LONGEST_S
        if save_s <= 0 and self._every_s is not None:
            save_s = self._every_s  # it was put off by the stretch factor
        idle_s = self._ttl_s / 4 if self._ttl_s is not None else _LONGEST_S
        return min(save_s, idle_s)


class Ticker(threading.Thread):
    """Calls `tick` whenever `next_s` says so, until stopped."""

    def __init__(self, tick: Callable[[], object], next_s: Callable[[], float]) -> None:
        super().__init__(name="ckpt-ticker", daemon=True)
        self._tick = tick
        self._next_s = next_s
        self._wake = threading.Event()
        self._stopped = False

    def run(self) -> None:
        """Tick; an error is logged and does not end the ticking."""
        while True:
            self._wake.wait(min(max(self._next_s(), _SHORTEST_S), _LONGEST_S))
            self._wake.clear()
            if self._stopped:
                return
            try:
                self._tick()
            except Exception:
                log.exception("a time trigger failed")

    def wake(self) -> None:
        """Look again now: there is a new interval."""
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        if self.ident is not None and self is not threading.current_thread():
            self.join(timeout_s)
