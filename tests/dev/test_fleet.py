"""Shared servers: tests that overlap share one, the last of them stops it, and a user's server stays."""

from __future__ import annotations

import socket
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt.dev import MissingToolError, fleet
from ckpt.dev.fleet import Lease
from ckpt.testing import servers


@pytest.fixture
def redis(own_cache: Path, require: Callable[..., None]) -> str:
    require("redis")
    return "redis"


def test_the_last_lease_stops_it(redis: str) -> None:
    first = Lease(redis)
    [pid] = fleet.status()[redis].pids
    second = Lease(redis)
    assert second.address == first.address
    first.release()
    assert fleet.status()[redis].pids == [pid]
    second.release()
    assert fleet.status() == {}


def test_what_a_user_started_stays(redis: str) -> None:
    fleet.up(redis)
    with Lease(redis) as lease:
        assert lease.address == fleet.status()[redis].address
    assert redis in fleet.status()
    assert fleet.down(redis)


def test_what_a_user_asks_for_meanwhile_stays(redis: str) -> None:
    with Lease(redis):
        fleet.up(redis)
    assert redis in fleet.status()


def test_tests_begin_with_an_empty_server(redis: str, ask: Callable[..., bytes]) -> None:
    for _ in range(2):
        with Lease(redis) as lease:
            assert ask(lease.server, "GET", "k") == b"$-1\r\n"
            ask(lease.server, "SET", "k", "v")


@pytest.mark.parametrize("since", ["before", "meanwhile"])
def test_the_data_of_a_user_stays(redis: str, ask: Callable[..., bytes], since: str) -> None:
    if since == "before":
        fleet.up(redis)
        ask(fleet.shared(redis), "SET", "k", "v")
        fleet.down(redis)
    with Lease(redis) as lease:
        if since == "meanwhile":
            fleet.up(redis)
            ask(lease.server, "SET", "k", "v")
            fleet.down(redis)
    with Lease(redis) as lease:
        assert ask(lease.server, "GET", "k") == b"$1\r\nv\r\n"


def test_down_is_the_users_word(redis: str) -> None:
    with Lease(redis):
        assert fleet.down(redis)
        assert fleet.status() == {}
    assert not fleet.down(redis)


def test_after_down_a_lease_decides_again(redis: str) -> None:
    fleet.up(redis)
    fleet.down(redis)
    with Lease(redis):
        assert redis in fleet.status()
    assert fleet.status() == {}


class TestForTests:
    @pytest.fixture(autouse=True)
    def _own_leases(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(servers, "_leases", {})
        yield
        servers.release_servers()

    def test_an_address_that_answers_even_if_it_was_killed_before(self, redis: str) -> None:
        address = servers.server_address(redis)
        fleet.shared(redis).kill()
        assert servers.server_address(redis) == address
        with socket.create_connection((fleet.shared(redis).host, fleet.shared(redis).port)):
            pass
        servers.release_servers()
        assert fleet.status() == {}

    @pytest.mark.usefixtures("empty_cache")
    def test_a_server_that_cannot_be_had_skips_and_in_ci_fails(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("CI", "")
        with pytest.raises(unittest.SkipTest, match="redis-server is missing"):
            servers.server_address("redis")
        with pytest.raises(unittest.SkipTest, match="redis-server is missing"):
            servers.own_server("redis", tmp_path)
        monkeypatch.setenv("CI", "true")
        with pytest.raises(MissingToolError, match="redis-server is missing"):
            servers.server_address("redis")
