"""Ctrl-C is heard where somebody waits for it, and kept until then elsewhere, so that no result gets lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Self


class Interrupts:
    """While this is entered, KeyboardInterrupt is raised within `heard()` only.

    A second Ctrl-C before the first was heard is raised at once. Where Ctrl-C means something else already,
    or in another thread than the main one, nothing is changed.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._waiting = self._missed = False

    def __enter__(self) -> Self:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _pressed(self, *_: object) -> None:
        if self._waiting or self._missed:
            self._waiting = self._missed = False
            raise KeyboardInterrupt
        self._missed = True

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raises KeyboardInterrupt while it is entered, also for what came before."""
        self._waiting = True
        try:
            if self._missed:
                self._missed = False
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started within never hear Ctrl-C, from their first instruction on: whoever started
    them hears it, and ends them."""
    resource_tracker.ensure_running()  # whoever starts it first lets the signal through again
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
