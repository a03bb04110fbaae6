"""Redis, the real server: the whole contract, and a model to agree with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import ckpt
from ckpt.backend import Backend
from ckpt.testing import BackendConformance, backend_machine
from ckpt.testing.servers import server_address


def prefix_of(directory: Path) -> str:
    """A prefix of its own for each test."""
    return f"test-{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}"


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    with redis.Redis.from_url(server_address("redis")) as client:
        for key in client.scan_iter(match="test-*", count=1000):
            client.unlink(key)


class TestRedis(BackendConformance):
    scheme = "redis"

    def open_backend(self) -> Backend:
        prefix = prefix_of(self.directory)
        return ckpt.open_backend(server_address("redis"), prefix=prefix, clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestRedisMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(server_address("redis"), prefix=prefix_of(directory)),
        max_examples=15,
    )
):
    pass
