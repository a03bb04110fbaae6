"""Cassandra, the real server: the whole contract, and a model to agree with."""

from __future__ import annotations

import hashlib
import os

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from tests.effort import effort

_ADDRESS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _address(cassandra_keyspace: str) -> None:
    _ADDRESS[:] = [cassandra_keyspace]


def store_in(directory: str | os.PathLike[str], **extra: object) -> Backend:
    """A store of its own for each directory: a keyspace takes a second to make, a prefix takes nothing."""
    return ckpt.open_backend(_ADDRESS[0], prefix=hashlib.sha256(os.fsencode(directory)).hexdigest(), **extra)


class TestCassandra(BackendConformance):
    scheme = "cassandra"

    def open_backend(self) -> Backend:
        return store_in(self.directory, clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestCassandraMachine(backend_machine(store_in, max_examples=effort(3, 60), steps=25)):
    pass
