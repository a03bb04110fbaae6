"""HBase killed under load: nothing acknowledged is lost, and the same handles go on when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt.dev import Server
from ckpt.testing import KillConformance, own_server
from tests.effort import effort, rotated


@pytest.mark.budget(45)
class TestHBaseKills(KillConformance):
    rounds, writers = effort(1, 9), effort(2, 20)
    victims = rotated((("thrift",), ("master",), ("thrift", "master")))
    writer_s = 1.5

    @classmethod
    def start_server(cls, folder: Path) -> Server:
        return own_server("hbase", folder)

    def address(self, server: Server, place: str) -> str:
        return f"{server.address}?prefix={place}"
