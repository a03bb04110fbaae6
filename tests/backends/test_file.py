"""The file backend: the contract at both durability levels, and what is its own."""

from __future__ import annotations

import ckpt
from ckpt.backend import Backend
from ckpt.testing import BackendConformance, backend_machine


class TestFile(BackendConformance):
    scheme = "file"
    durability = "fsync"

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"file://{self.directory}?durability={self.durability}", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestFileInPageCache(TestFile):
    durability = "os"


class TestFileMachine(
    backend_machine(lambda directory: ckpt.open_backend(f"file://{directory}?durability=os"))
):
    pass
