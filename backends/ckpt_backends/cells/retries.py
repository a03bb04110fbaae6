"""Asking a server again: growing pauses with jitter, and an end. No call waits longer than it was told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ckpt.contract.pauses import pauses_until
from ckpt_backends.cells.options import CellOptions
from ckpt_backends.cells.server import NotNowError

AnswerT = TypeVar("AnswerT")


class Retries:
    """Repeats what raises NotNowError until `retry_s` is over or the handle is closed."""

    def __init__(self, retry_s: float, closed: threading.Event) -> None:
        self._retry_s = retry_s
        self._closed = closed

    @classmethod
    def of(cls, options: CellOptions) -> Retries:
        """That of a store that is being opened, and cannot be closed meanwhile."""
        return cls(options.retry_s, threading.Event())

    def call(self, ask: Callable[[], AnswerT]) -> AnswerT:
        """The answer; the last NotNowError if there is none in time."""
        pauses = pauses_until(time.monotonic() + self._retry_s)
        while True:
            try:
                return ask()
            except NotNowError:
                pause_s = next(pauses, None)
                if pause_s is None or self._closed.wait(pause_s):
                    raise
