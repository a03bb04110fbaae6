"""The indexed log: the contract, with ordinary and with tiny segments, so that every test also collects garbage."""

from __future__ import annotations

import ckpt
from ckpt.backend import Backend
from ckpt.testing import BackendConformance, backend_machine

TINY = "segment_bytes=16KiB&recent_records=50"


class TestLog(BackendConformance):
    scheme = "log"
    reopens = True

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"log://{self.directory}/log", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestTinyLog(TestLog):
    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"log://{self.directory}/log?{TINY}", clock=self.clock)


class TestLogMachine(
    backend_machine(lambda directory: ckpt.open_backend(f"log://{directory}/log"), max_examples=40)
):
    pass


class TestTinyLogMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(f"log://{directory}/log?segment_bytes=16KiB&recent_records=5"),
        max_examples=60,
    )
):
    pass
