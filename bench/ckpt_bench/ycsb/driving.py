"""Waiting for a phase so that it can be watched and interrupted: threads, the last flush, the closing.

The first Ctrl-C ends the operations under way; what is written is made durable. One more gives that up, too,
also operations that do not end, though told to. There are results in each case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ckpt_bench.interrupts import Interrupts
from ckpt_bench.ycsb.bindings import Binding
from ckpt_bench.ycsb.client import Client
from ckpt_bench.ycsb.settings import Settings
from ckpt_bench.ycsb.status import Status
from ckpt_bench.ycsb.upkeep import Upkeep

_PATIENCE_S = 2.0


class Driver:
    """Drives the threads of one phase. `stop` ends operations, `cancelled` all that can be left out."""

    def __init__(self, settings: Settings, say: Callable[[str], object], interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.stop = threading.Event()
        self.cancelled = threading.Event()
        self.left_open = False
        """Whether nobody waits until the store is closed, since somebody may still use it."""
        self._limit_s = settings.maxexecutiontime
        self._say = say

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.cancelled.is_set()

    def interrupt(self, said: str) -> None:
        """Do as Ctrl-C asks, and say what that means now."""
        self.cancelled.set()
        self.stop.set()
        self._say(f"interrupted: {said}")

    def operate(
        self, clients: Sequence[Client], upkeep: Upkeep | None, status: Status, total: int | None
    ) -> None:
        """Until all clients are done, or were told to stop and have."""
        status.show(0, total)
        started_s = shown_s = time.monotonic()
        for thread in (*clients, upkeep):
            if thread is not None:
                thread.start()
        while not all(client.ended.is_set() for client in clients):
            try:
                now_s = time.monotonic()
                if self._limit_s and now_s - started_s >= self._limit_s:
                    self.stop.set()
                if now_s - shown_s >= status.every_s:
                    shown_s = now_s
                    status.show(_done(clients), total)
                wake_s = shown_s + status.every_s
                if self._limit_s and not self.stop.is_set():
                    wake_s = min(wake_s, started_s + self._limit_s)
                with self.interrupts.heard():
                    _wait_for(clients, wake_s)
            except KeyboardInterrupt:
                if self.interrupted:
                    self.interrupt("not waiting for the operations under way")
                    self.left_open = True
                    break
                self.interrupt("ending the operations under way (again: at once)")
        status.show(_done(clients), total)

    def finish(
        self, binding: Binding, clients: Sequence[Client], status: Status, total: int | None
    ) -> Exception | None:
        """Until everything written is durable; what the store raised, if it did."""
        if self.left_open:
            binding.abandon()
            return None
        flushing = _Background(binding.finish)

        def show() -> None:
            left = binding.pending()
            note = f"{left:,} writes are not durable yet" if left else "flushing"
            status.show(_done(clients), total, note)

        try:
            with self.interrupts.heard():
                flushing.wait(status.every_s, show)
        except KeyboardInterrupt:
            self.interrupt(
                f"{binding.pending():,} writes are not durable yet; closing the store (again: at once)"
            )
            binding.abandon()
            return None
        if flushing.waited and flushing.error is None:
            status.show(_done(clients), total, "all writes are durable")
        return flushing.error

    def close(self, *closes: Callable[[], None]) -> Exception | None:
        """Until all of these have returned; what the first that failed raised."""
        if self.left_open:
            return None

        def work() -> None:
            for close in closes:
                close()

        closing = _Background(work)
        try:
            with self.interrupts.heard():
                closing.wait(_PATIENCE_S, lambda: self._say("still closing the store"))
        except KeyboardInterrupt:
            self.interrupt("not waiting until the store is closed")
            self.left_open = True
        return closing.error

    def let(self, work: Callable[[], None]) -> None:
        """Do what heeds `cancelled`; Ctrl-C ends it early, and another one at once."""
        if self.left_open:
            return
        try:
            with self.interrupts.heard():
                work()
        except KeyboardInterrupt:
            self.interrupt("ending what is under way (again: at once)")
            try:
                with self.interrupts.heard():
                    work()
            except KeyboardInterrupt:
                self.interrupt("not waiting for what is under way")
                self.left_open = True


class _Background(threading.Thread):
    """One call that may take long, which the main thread watches, for a lock that it waits for itself could
    not be interrupted everywhere."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="ckpt-bench-background", daemon=True)
        self._work = work
        self.error: Exception | None = None
        self.waited = False
        """Whether it took so long that it was shown."""

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - whoever waits decides what it means
            self.error = error

    def wait(self, every_s: float, show: Callable[[], object]) -> None:
        """Return when it is done; show something now and then."""
        self.start()
        while True:
            self.join(every_s)
            if not self.is_alive():
                return
            self.waited = True
            show()


def _done(clients: Sequence[Client]) -> int:
    return sum(client.done for client in clients)


def _wait_for(clients: Sequence[Client], wake_s: float) -> None:
    for client in clients:
        if not client.ended.wait(max(wake_s - time.monotonic(), 0.001)):
            return
