"""Calls that are never waited for longer than agreed: a store that does not answer cannot hang its caller.

A synchronous call cannot be interrupted, so it runs on one of a few daemon threads while the caller waits
with a timeout. A call that never returns keeps its thread until it does; the number of threads and of waiting
calls is bounded, so a dead store costs a bounded amount of memory and every caller gets its error in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from ckpt.errors import BackendUnavailableError

ResultT = TypeVar("ResultT")
_JOIN_S = 1.0


class Fetcher:
    """Runs calls with a timeout on at most `threads` daemon threads, started as they are needed."""

    def __init__(self, *, threads: int, waiting: int, timeout_s: float | None, name: str) -> None:
        self._limit = threads
        self._waiting = waiting
        self._timeout_s = timeout_s
        self._name = name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._outstanding = 0
        self._closed = False

    @property
    def has_no_timeout(self) -> bool:
        """Whether a call without a timeout of its own runs on the caller's thread."""
        return self._timeout_s is None

    def call(self, work: Callable[[], ResultT], *, timeout_s: float | None = None) -> ResultT:
        """What `work` returns or raises; BackendUnavailableError if that takes too long.

        With no timeout, here or in the constructor, the call runs on the caller's own thread.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if limit_s is None:
            return work()
        job: Future[ResultT] = Future()
        with self._lock:
            if self._closed:
                raise BackendUnavailableError("the SafeKeeper is closed; open a new one")
            if self._outstanding >= self._limit + self._waiting:
                raise BackendUnavailableError(
                    f"{self._outstanding} calls already wait for the backend; try again later, "
                    f"or raise fetch_threads or fetch_queue"
                )
            self._outstanding += 1
            if self._outstanding > len(self._threads) and len(self._threads) < self._limit:
                thread = threading.Thread(
                    target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
        self._jobs.put((job, work))
        try:
            return job.result(limit_s)
        except TimeoutError:
            if job.done():  # it ended just now, or the call itself raised TimeoutError
                return job.result()
            job.cancel()  # if no thread has begun it yet, none will
            raise BackendUnavailableError(
                f"the backend did not answer within {limit_s:g} s; try again later, or raise fetch_timeout_s"
            ) from None

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, work = item
            try:
                if job.set_running_or_notify_cancel():
                    try:
                        job.set_result(work())
                    except BaseException as error:  # noqa: BLE001 - it is raised again where the caller waits
                        job.set_exception(error)
            finally:
                del item, job, work
                with self._lock:
                    self._outstanding -= 1

    def close(self) -> None:
        """End the threads; one that is stuck in a call is left behind and ends when the call does."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        deadline_s = time.monotonic() + _JOIN_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
