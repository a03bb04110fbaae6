"""Redis killed, failed over, frozen and filled: nothing acknowledged is lost, and the same handle goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import ckpt
from ckpt.dev import RedisServer, SentinelServer
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.testing import KillConformance, own_server
from ckpt.testing.load import StoreLoad
from ckpt.testing.outcomes import PATIENT_S, begin, outcome
from tests.effort import effort


class TestRedisKills(KillConformance):
    rounds, writers = effort(3, 100), effort(2, 50)
    timeout_s = 0.2
    writer_s = 0.25
    silent_says = "did not answer in time"

    @classmethod
    def start_server(cls, folder: Path) -> RedisServer:
        return own_server("redis", folder)

    def address(self, server: RedisServer, place: str) -> str:
        return f"{server.address}?prefix={place}"


def test_a_failover_loses_nothing_that_a_replica_has_confirmed(private_server: Callable[..., object]) -> None:
    primary = private_server("redis")
    assert isinstance(primary, RedisServer)
    for _ in range(2):
        private_server("redis", replica_of=primary)
    sentinel = private_server("sentinel", watch=primary)
    assert isinstance(sentinel, SentinelServer)
    address = f"redis://{sentinel.host}:{sentinel.port}/0?sentinel={sentinel.service}"
    wait_until_watched(sentinel)
    with (
        ckpt.open_backend(address, retry_s=PATIENT_S, timeout_s=5, wait=1, wait_timeout_s=1) as backend,
        ckpt.open_backend(address, retry_s=PATIENT_S, timeout_s=5) as reader,
    ):
        assert backend.stats().details["replicas"] == 2
        load = StoreLoad(backend)
        load.wait_for_more()
        primary.kill()
        load.wait_for_more()
        load.stop()
        load.require_exactly(reader)
        assert sentinel_says(sentinel, "address") != (primary.host, primary.port)


def sentinel_says(sentinel: SentinelServer, what: str) -> object:
    with redis.Redis(host=sentinel.host, port=sentinel.port) as client:
        if what == "address":
            return client.sentinel_get_master_addr_by_name(sentinel.service)
        return client.sentinel_master(sentinel.service)["num-slaves"]


def wait_until_watched(sentinel: SentinelServer) -> None:
    """Until the sentinel knows both replicas, without which it has nobody to promote."""
    for _ in range(600):
        if sentinel_says(sentinel, "replicas") == 2:
            return
        threading.Event().wait(0.1)
    pytest.fail("the sentinel has not found the replicas")


def test_a_write_that_too_few_replicas_confirm_is_an_error_that_says_so(
    private_server: Callable[..., RedisServer],
) -> None:
    server = private_server("redis")
    options = {"wait": 1, "wait_timeout_s": 0.05, "retry_s": 0}
    with (
        ckpt.open_backend(server.address, **options) as backend,
        pytest.raises(BackendUnavailableError, match=r"0 of 1 replicas have confirmed .* may be there"),
    ):
        backend.put_many("words", {b"be": b"1"})
    with ckpt.open_backend(server.address) as backend:
        backend.put_many("words", {b"be": b"2"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"2"}


def test_a_commit_counts_only_when_replicas_have_it_also_at_the_second_attempt(
    private_server: Callable[..., RedisServer],
) -> None:
    server = private_server("redis")
    replica = private_server("redis", replica_of=server)
    options = {"wait": 1, "wait_timeout_s": 0.2, "timeout_s": 5}
    with ckpt.open_backend(server.address, retry_s=PATIENT_S, **options) as backend:
        backend.commit("store", 1, {b"k": b"1"})
        replica.freeze()
        call = begin(backend.commit, "store", 2, {b"k": b"2"})
        # Several attempts fail: the record is there after the first, and is not taken for an answer.
        with pytest.raises(TimeoutError):
            call.result(timeout=1.0)
        replica.thaw()
        assert isinstance(outcome(call), str)
        assert [commit.version for commit in backend.versions("store")] == [1, 2]


def test_a_full_server_refuses_writes_reads_on_and_can_be_emptied(
    private_server: Callable[..., RedisServer],
) -> None:
    server = private_server("redis", maxmemory="6mb")
    with ckpt.open_backend(server.address, retry_s=0) as backend:
        backend.commit("store", 1, {b"k": bytes(100_000)})

        def fill() -> None:
            for n in range(100):
                backend.put_many("words", {b"%d" % n: bytes(200_000)})

        with pytest.raises(BackendUnavailableError, match=r"its maxmemory .* raise maxmemory, delete"):
            fill()
        written = len(backend.get_many("words", [b"%d" % i for i in range(100)]))
        assert written >= 1
        with pytest.raises(BackendUnavailableError, match="maxmemory"):
            backend.commit("store", 2, {b"k": bytes(100_000)})
        assert [commit.version for commit in backend.versions("store")] == [1]
    # What frees memory works when there is none, also through a handle that was opened after.
    with ckpt.open_backend(server.address, retry_s=0) as backend:
        backend.delete_many("words", [b"0"])
        backend.drop("words")
        backend.drop("store")
        backend.put_many("words", {b"again": bytes(200_000)})
        assert backend.namespaces() == ["words"]


def test_a_value_that_the_server_does_not_take_is_named(private_server: Callable[..., RedisServer]) -> None:
    server = private_server("redis", config={"proto-max-bulk-len": "1mb"})
    with ckpt.open_backend(server.address, retry_s=0) as backend:
        with pytest.raises(ConfigError, match=r"key b'big' of namespace 'words' .*proto-max-bulk-len"):
            backend.put_many("words", {b"small": b"1", b"big": bytes(2 << 20)})
        with pytest.raises(ConfigError, match="key b'big' of namespace 'store'"):
            backend.commit("store", 1, {b"big": bytes(2 << 20)})
        assert backend.namespaces() == []
        backend.put_many("words", {b"%d" % n: bytes(900_000) for n in range(3)})
        assert len(backend.get_many("words", [b"0", b"1", b"2"])) == 3


def test_a_server_that_evicts_checkpoints_is_refused(private_server: Callable[..., RedisServer]) -> None:
    server = private_server("redis", maxmemory="20mb", config={"maxmemory-policy": "allkeys-lru"})
    with pytest.raises(ConfigError, match=r"evicts any key .*allkeys-lru.* noeviction"):
        ckpt.open_backend(server.address)


def test_a_replica_takes_no_writes(private_server: Callable[..., RedisServer]) -> None:
    replica = private_server("redis", replica_of=private_server("redis"))
    with (
        ckpt.open_backend(replica.address, retry_s=0.1) as backend,
        pytest.raises(BackendUnavailableError, match="READONLY"),
    ):
        backend.put_many("words", {b"be": b"1"})


def test_a_server_that_has_lost_records_says_so(private_server: Callable[..., RedisServer]) -> None:
    server = private_server("redis")
    with ckpt.open_backend(server.address, retry_s=0) as backend:
        backend.commit("store", 1, {b"k": b"1"})
        with redis.Redis.from_url(server.address) as client:
            client.flushall()
        with pytest.raises(
            BackendUnavailableError, match=r"lost records of namespace 'store'.*open the store"
        ):
            backend.commit("store", 2, {b"k": b"2"})


def test_what_a_server_says_about_itself_is_shown(private_server: Callable[..., RedisServer]) -> None:
    server = private_server("redis", appendfsync="everysec")
    with ckpt.open_backend(server.address) as backend:
        backend.flush()
        details = backend.stats().details
    assert details["appendonly"] == "yes"
    assert details["appendfsync"] == "everysec"
    assert details["role"] == "master"
