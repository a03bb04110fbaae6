"""Redis killed, failed over, frozen and filled: nothing acknowledged is lost, and the same handle goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable

import pytest
import redis

import ckpt
from ckpt.dev import RedisServer, SentinelServer
from ckpt.errors import BackendUnavailableError, ConfigError, UnsupportedError

KEYS = [b"key-%02d" % n for n in range(20)]
PATIENT_S = 60.0
ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "20"))


class Writer:
    """Writes numbered batches and commits through one handle, and notes what was acknowledged."""

    def __init__(self, backend: ckpt.Backend) -> None:
        self._backend = backend
        self._stop = threading.Event()
        self.moved = threading.Condition()
        self.put = self.put_begun = self.committed = self.commit_begun = 0
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,)) for work in (self._puts, self._commits)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
                with self.moved:
                    self.moved.notify_all()
        except BaseException as error:  # noqa: BLE001 whatever it is fails the test
            self.errors.append(error)

    def _puts(self) -> None:
        self.put_begun += 1
        self._backend.put_many("words", dict.fromkeys(KEYS, b"%d" % self.put_begun))
        self.put = self.put_begun

    def _commits(self) -> None:
        self.commit_begun += 1
        self._backend.commit("store", self.commit_begun, dict.fromkeys(KEYS[:5], b"%d" % self.commit_begun))
        self.committed = self.commit_begun

    def wait_for_more(self) -> None:
        """Until both kinds of writes were acknowledged again."""
        put, committed = self.put, self.committed
        with self.moved:
            went_on = self.moved.wait_for(
                lambda: self.errors or (self.put > put + 2 and self.committed > committed + 2), PATIENT_S
            )
        assert went_on, "writing does not go on"
        assert not self.errors, self.errors

    def require_nothing_lost(self, backend: ckpt.Backend) -> None:
        """What is there is what was acknowledged, or something newer, and whole."""
        put, committed = self.put, self.committed
        found = set(backend.get_many("words", KEYS).values())
        assert len(found) == 1
        assert int(found.pop()) >= put
        tip = backend.history("store").tip
        assert tip is not None
        assert tip.version >= committed
        seen = backend.get_many("store", KEYS[:5], version=tip.version)
        assert set(seen.values()) == {b"%d" % tip.version}

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENT_S)
        assert not self.errors, self.errors


@pytest.mark.crash
def test_killed_servers_lose_nothing(private_server: Callable[..., RedisServer]) -> None:
    server = private_server("redis")
    choose = random.Random(4)
    with (
        ckpt.open_backend(server.address, retry_s=PATIENT_S, timeout_s=5) as backend,
        ckpt.open_backend(server.address, retry_s=PATIENT_S, timeout_s=5) as reader,
    ):
        writer = Writer(backend)
        for _ in range(ROUNDS):
            writer.wait_for_more()
            threading.Event().wait(choose.random() * 0.02)
            server.kill()
            server.start()
            writer.require_nothing_lost(reader)
        writer.wait_for_more()
        writer.stop()
        writer.require_nothing_lost(reader)
        assert list(reader.verify()) == []
    assert writer.put > 3 * ROUNDS


@pytest.mark.crash
def test_killed_writers_lose_nothing(dev_server: Callable[[str], str]) -> None:
    prefix = f"crash-{uuid.uuid4().hex[:12]}"
    address = dev_server("redis")
    command = [sys.executable, "-m", "ckpt.testing.crash", "--rounds", "8", "--address"]
    try:
        ran = subprocess.run(
            [*command, f"{address}?prefix={prefix}"], capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "none lost" in ran.stdout
    finally:
        with redis.Redis.from_url(address) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.unlink(key)


@pytest.mark.crash
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
        writer = Writer(backend)
        writer.wait_for_more()
        primary.kill()
        writer.wait_for_more()
        writer.stop()
        writer.require_nothing_lost(reader)
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
        outcome: list[object] = []
        thread = threading.Thread(target=lambda: outcome.append(backend.commit("store", 2, {b"k": b"2"})))
        thread.start()
        # Several attempts fail: the record is there after the first, and is not taken for an answer.
        thread.join(1.0)
        assert not outcome
        replica.thaw()
        thread.join(PATIENT_S)
        assert outcome
        assert [commit.version for commit in backend.versions("store")] == [1, 2]


def test_a_frozen_server_is_waited_for_and_nothing_is_written_twice(
    private_server: Callable[..., RedisServer],
) -> None:
    server = private_server("redis")
    with ckpt.open_backend(server.address, timeout_s=0.2, retry_s=0.1) as backend:
        backend.put_many("words", {b"be": b"1"})
        server.freeze()
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            backend.put_many("words", {b"be": b"2"})
        with pytest.raises(BackendUnavailableError):
            backend.get_many("words", [b"be"])
        server.thaw()
        backend.put_many("words", {b"be": b"3"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"3"}


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
        with pytest.raises(UnsupportedError, match=r"key b'big' of namespace 'words' .*proto-max-bulk-len"):
            backend.put_many("words", {b"small": b"1", b"big": bytes(2 << 20)})
        with pytest.raises(UnsupportedError, match="key b'big' of namespace 'store'"):
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
