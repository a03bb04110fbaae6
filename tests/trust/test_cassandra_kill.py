"""Cassandra killed and frozen: nothing acknowledged is lost, and the same handle goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.dev import Server
from ckpt.testing import KillConformance, own_server
from tests.effort import effort


@pytest.mark.budget(45)
class TestCassandraKills(KillConformance):
    rounds, writers = effort(1, 10), effort(2, 20)
    timeout_s = 2.0
    silent_says = "did not answer in time"

    @classmethod
    def start_server(cls, folder: Path) -> Server:
        return own_server("cassandra", folder)

    def address(self, server: Server, place: str) -> str:
        return f"{server.address}?prefix={place}"
