"""Cassandra, a real one: the whole contract, and a model to agree with."""

from __future__ import annotations

import os

import ckpt
from ckpt.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from ckpt.testing.servers import server_address


def open_store(directory: str) -> Backend:
    """A store of its own: a prefix in the keyspace that all tests share."""
    return ckpt.open_backend(server_address("cassandra"), prefix=os.fspath(directory)[-200:])


class TestCassandra(BackendConformance):
    scheme = "cassandra"

    def open_backend(self) -> Backend:
        return ckpt.open_backend(
            server_address("cassandra"), prefix=str(self.directory)[-200:], grace_s=0, clock=self.clock
        )

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestCassandraMachine(backend_machine(open_store, max_examples=12, steps=25)):
    pass
