"""A clock that moves only when a test says so, for time to live and triggers."""

from __future__ import annotations

import threading


class ManualClock:
    """Returns the same time until it is advanced; pass it wherever a backend takes `clock=`.

    Examples
    --------
    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock()
    102.5
    """

    def __init__(self, now_s: float = 1_000_000_000.0) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """The time in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on; time never goes back."""
        if seconds < 0:
            raise ValueError(f"time does not go back, got {seconds}")
        with self._lock:
            self._now_s += seconds
