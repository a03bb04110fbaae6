"""How long to wait before asking again: growing pauses with jitter, and an end. Every retry here waits so."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


def pauses_until(deadline_s: float) -> Iterator[float]:
    """Pauses for as long as `time.monotonic()` is before the deadline, which none of them reaches beyond.

    Half of each is random, so that calls that failed together are not repeated together.

    Examples
    --------
    >>> list(pauses_until(time.monotonic()))
    []
    >>> 0 < next(pauses_until(time.monotonic() + 60)) <= 0.05
    True
    """
    pause_s = _FIRST_PAUSE_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        yield min(left_s, pause_s * random.uniform(0.5, 1.0))
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
