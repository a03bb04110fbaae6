"""Asking a server again: growing pauses with jitter, and an end. No call waits longer than it was told to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ckpt_backends.cells.options import CellOptions
from ckpt_backends.cells.server import NotNowError

AnswerT = TypeVar("AnswerT")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Patience:
    """Repeats what raises NotNowError until `retry_s` is over or the handle is closed."""

    def __init__(self, retry_s: float, closed: threading.Event) -> None:
        self._retry_s = retry_s
        self._closed = closed
        # Not for secrets: clients that lost the same server should not come back at the same moment.
        self._random = random.Random()

    @classmethod
    def of(cls, options: CellOptions) -> Patience:
        """That of a store that is being opened, and cannot be closed meanwhile."""
        return cls(options.retry_s, threading.Event())

    def call(self, ask: Callable[[], AnswerT]) -> AnswerT:
        """The answer; the last NotNowError if there is none in time."""
        deadline_s = time.monotonic() + self._retry_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except NotNowError:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or self._closed.wait(min(left_s, self._random.uniform(pause_s / 2, pause_s))):
                    raise
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
