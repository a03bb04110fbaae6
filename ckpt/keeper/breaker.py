"""A circuit breaker: a store that keeps failing is left alone for a while, then asked once before all return.

```
            N failures in a row                    pause_s passed
  closed ───────────────────────▶ open ───────────────────────────▶ half-open
    ▲                              ▲                                   │  one probe
    │                              └────────── it failed ──────────────┤
    └───────────────────────────────────────── it succeeded ───────────┘
```

Only a store that does not answer is a failure; a missing key and a corrupt record are answers.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable


class BreakerState(enum.StrEnum):
    """Whether calls go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Lets every call through while closed, none while open, and exactly one at a time while half-open.

    Examples
    --------
    >>> now = 0.0
    >>> breaker = Breaker(failures=2, pause_s=10.0, clock=lambda: now)
    >>> for _ in range(2):
    ...     assert breaker.allows()
    ...     breaker.failed()
    >>> breaker.allows()
    False
    >>> now = 10.0
    >>> breaker.allows(), breaker.allows()
    (True, False)
    >>> breaker.succeeded()
    >>> breaker.allows()
    True
    """

    def __init__(self, *, failures: int, pause_s: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._in_a_row = 0
        self._opened_s = 0.0
        self.times_opened = 0
        self.untroubled = True
        """Closed, and the last call succeeded: `allows` would say yes and `succeeded` would change nothing.

        A caller that sees it may leave out both, and with them two locks for each call to a healthy store.
        """

    @property
    def state(self) -> BreakerState:
        """Where the breaker stands. Open turns into half-open when a call is allowed, not by itself."""
        return self._state

    def remaining_s(self) -> float:
        """How long until an open breaker lets a probe through."""
        with self._lock:
            if self._state is not BreakerState.OPEN:
                return 0.0
            return max(0.0, self._opened_s + self._pause_s - self._clock())

    def allows(self) -> bool:
        """Whether this call may go through; if so, report `succeeded` or `failed` afterwards."""
        with self._lock:
            if self._state is BreakerState.CLOSED:
                return True
            if self._state is BreakerState.OPEN and self._clock() - self._opened_s >= self._pause_s:
                self._state = BreakerState.HALF_OPEN
                return True
            return False

    def succeeded(self) -> None:
        """The store answered."""
        with self._lock:
            self._in_a_row = 0
            self._state = BreakerState.CLOSED
            self.untroubled = True

    def failed(self, *, counts: bool = True) -> None:
        """The store did not answer. With `counts=False` that says something only of a half-open breaker.

        So a call that is to be tried again may report each attempt, and counts once, when it gives up.
        """
        with self._lock:
            self._in_a_row += counts
            self.untroubled = self._state is BreakerState.CLOSED and not self._in_a_row
            if self._state is BreakerState.HALF_OPEN or (
                self._state is BreakerState.CLOSED and self._in_a_row >= self._limit
            ):
                self._state = BreakerState.OPEN
                self.untroubled = False
                self._opened_s = self._clock()
                self.times_opened += 1
