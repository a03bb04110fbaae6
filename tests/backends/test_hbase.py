"""HBase, the real server: the whole contract, and a model to agree with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ckpt
from ckpt.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from ckpt.testing.servers import server_address


def prefix_of(directory: Path | str) -> str:
    """A prefix of its own for each test: making a table takes a second or two, a prefix takes nothing."""
    return hashlib.sha256(str(directory).encode()).hexdigest()[:16]


class TestHBase(BackendConformance):
    scheme = "hbase"

    def open_backend(self) -> Backend:
        prefix = prefix_of(self.directory)
        return ckpt.open_backend(server_address("hbase"), prefix=prefix, clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestHBaseMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(server_address("hbase"), prefix=prefix_of(directory)),
        max_examples=8,
    )
):
    pass
