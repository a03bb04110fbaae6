"""A process for one store at one number of keys, which can be asked, ended, and killed with `kill -9`."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Concatenate, ParamSpec, TypeVar

from ckpt_bench.compare.turns import Job
from ckpt_bench.failing import StoreError, failing_in_words
from ckpt_bench.growth.cell import Cell
from ckpt_bench.interrupts import Interrupts, kept_from_children

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_cells: list[Cell] = []


class CellProcess:
    """A `Cell` elsewhere. What fails there raises StoreError here."""

    def __init__(self, job: Job) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        # Threads of libraries hear Ctrl-C too, and half a process would be started.
        with Interrupts() as interrupts:
            with kept_from_children():
                # A number may come to stand for another process; a descriptor does not.
                self._process = os.pidfd_open(self._pool.submit(os.getpid).result())
            try:
                with interrupts.heard():
                    self._answer(_begin, job)
            except BaseException:
                self.kill()  # nobody else knows of it, and it may be filling the store
                raise

    def ask(
        self, what: Callable[Concatenate[Cell, Given], Answer], *given: Given.args, **named: Given.kwargs
    ) -> Answer:
        """Call a method of the cell."""
        answer: Answer = self._answer(_do, what, *given, **named)
        return answer

    def kill(self) -> None:
        """`kill -9`. What it was doing is lost; what it had done is with the system."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self._leave()

    def end(self) -> None:
        """Close the store, and return when the process has ended."""
        self.ask(Cell.close)
        self._leave()

    def _leave(self) -> None:
        self._pool.shutdown()
        os.close(self._process)

    def _answer(self, call: Callable[..., Answer], *given: object, **named: object) -> Answer:
        try:
            return self._pool.submit(call, *given, **named).result()
        except BrokenProcessPool:
            raise StoreError("its process ended by itself") from None


# -- in the other process ------------------------------------------------------------------------


def _begin(job: Job) -> None:
    with failing_in_words():
        _cells.append(Cell(job))


def _do(what: Callable[..., Answer], *given: object, **named: object) -> Answer:
    with failing_in_words():
        return what(_cells[-1], *given, **named)
