"""Cassandra behind a network that misbehaves: every call ends, every save is accounted for, work goes on."""

from __future__ import annotations

import uuid

import pytest

from ckpt.testing import NetworkConformance


class TestCassandraNetwork(NetworkConformance):
    timeout_s, retry_s = 1.5, 0.5
    reconnects_later = True
    resumes_scans = False

    @pytest.fixture
    def address(self, cassandra_keyspace: str) -> str:
        return f"{cassandra_keyspace}?prefix={uuid.uuid4().hex}"
