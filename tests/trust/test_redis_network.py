"""Redis behind a network that misbehaves: every call ends, every save is accounted for, work goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from ckpt.testing import NetworkConformance, server_address


class TestRedisNetwork(NetworkConformance):
    timeout_s, retry_s = 0.3, 0.2
    reply_bytes = 3
    silent_says = "did not answer in time"

    @pytest.fixture
    def address(self) -> Iterator[str]:
        prefix = f"net-{uuid.uuid4().hex[:16]}"
        yield f"{server_address('redis')}?prefix={prefix}"
        with redis.Redis.from_url(server_address("redis")) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.unlink(key)
