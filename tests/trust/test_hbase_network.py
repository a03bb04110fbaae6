"""HBase behind a network that misbehaves: calls end in time, nothing acknowledged is lost, fences hold."""

from __future__ import annotations

import uuid

import pytest

from ckpt.testing import NetworkConformance
from ckpt.testing.outcomes import PATIENT_S, begin, outcome


class TestHBaseNetwork(NetworkConformance):
    timeout_s, retry_s = 0.5, 1.0

    @pytest.fixture
    def address(self, hbase_table: str) -> str:
        return f"{hbase_table}?prefix={uuid.uuid4().hex}"

    def test_connections_that_died_while_idle_cost_no_error(self) -> None:
        backend = self.through(retry_s=0.0)
        for number in range(3):
            backend.put_many("words", {b"a": b"%d" % number})
            self.proxy.drop()
            assert backend.get_many("words", [b"a"]) == {b"a": b"%d" % number}
            self.proxy.half_close("to_client")

    def test_a_handle_has_no_more_connections_than_it_may(self) -> None:
        backend = self.through(connections=2, timeout_s=PATIENT_S / 4)
        calls = [begin(backend.put_many, f"n{n % 5}", {b"a": b"1"}) for n in range(20)]
        assert [outcome(call) for call in calls] == [None] * 20
        assert self.proxy.connections <= 2
