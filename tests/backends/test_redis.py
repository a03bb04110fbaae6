"""Redis, the real server: the whole contract, and a model to agree with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import ckpt
from ckpt.contract.backend import Backend, Compacts
from ckpt.dev import Server
from ckpt.errors import BackendUnavailableError, ConfigError, CorruptRecordError
from ckpt.testing import BackendConformance, SlowBackend, backend_machine
from ckpt.testing.servers import server_address
from ckpt_backends.redis import requests as redis_requests
from tests.effort import effort


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


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with ckpt.open_backend(server_address("redis"), prefix=prefix_of(tmp_path), grace_s=0) as opened:
        yield opened


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_address("redis")) as connected:
        yield connected


def test_a_changed_byte_is_reported(backend: Backend, client: redis.Redis, tmp_path: Path) -> None:
    backend.put_many("words", {b"be": b"2", b"or": b"1"})
    backend.commit("store", 1, {b"k": b"1", b"l": b"1"})
    for key in (f"{prefix_of(tmp_path)}:{{words}}:rows:0.0", f"{prefix_of(tmp_path)}:{{store}}:cells"):
        field, value = min(client.hgetall(key).items())
        client.hset(key, field, value[:-1] + bytes([value[-1] ^ 1]))
    with pytest.raises(CorruptRecordError, match=r"key b'be' of namespace 'words' .* checksum"):
        backend.get_many("words", [b"be"])
    assert backend.get_many("words", [b"or"]) == {b"or": b"1"}
    with pytest.raises(CorruptRecordError, match="key b'k' of namespace 'store'"):
        list(backend.scan("store"))
    assert [bad.key for bad in backend.verify()] == [b"k", b"be"]


def test_what_a_crashed_commit_has_left_is_never_seen_and_goes(
    backend: Backend, client: redis.Redis, tmp_path: Path
) -> None:
    """Only a commit of hundreds of megabytes leaves anything: it is written in parts."""
    for version in (1, 2):
        backend.commit("store", version, {b"k": b"%d" % version, b"l": b"1"})
    server = backend._server  # type: ignore[attr-defined]
    server.write_cells("store", server.new_stamp("store", 0), {b"k": b"left", b"only left": b"left"})
    assert dict(backend.scan("store")) == backend.get_many("store", [b"k", b"l", b"only left"])
    backend.commit("store", 3, {b"k": b"3"})
    assert dict(backend.scan("store")) == {b"k": b"3", b"l": b"1"}
    backend.truncate("store", 3)
    assert isinstance(backend, Compacts)
    backend.compact()
    assert dict(backend.scan("store")) == {b"k": b"3", b"l": b"1"}
    assert client.hlen(f"{prefix_of(tmp_path)}:{{store}}:cells") == 2


def test_a_state_that_is_too_large_fails_alone(private_server: Callable[..., Server], tmp_path: Path) -> None:
    small = private_server("redis", config={"proto-max-bulk-len": "1mb"})
    with ckpt.open_backend(small.address) as opened:
        gate = SlowBackend(opened, methods=["write_many"])
        with ckpt.SafeKeeper(gate, retry_s=0) as keeper:
            words = keeper.namespace("words")
            words.save("first", 0)
            gate.wait_for_calls(1)
            states = {"a": 1, "big": bytes(2 << 20), "z": 2}
            acks = {key: words.save(key, state) for key, state in states.items()}
            gate.open_gate()
            with pytest.raises(ConfigError, match=r"key b'big' of namespace 'words' .* split the state"):
                acks.pop("big").result(10)
            for ack in acks.values():
                ack.result(10)
            assert {*dict(opened.scan("words"))} == {b"first", b"a", b"z"}
            with pytest.raises(ConfigError, match="'big'"):
                keeper.flush()


def test_a_keeper_splits_a_batch_that_is_too_large_for_one_request(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_requests, "_LARGEST_REQUEST_BYTES", 1000)
    gate = SlowBackend(backend, methods=["write_many"])
    with ckpt.SafeKeeper(gate, retry_s=0) as keeper:
        words = keeper.namespace("words")
        words.save("first", 0)
        gate.wait_for_calls(1)
        acks = [words.save(f"{n}", bytes(90)) for n in range(50)]
        gate.open_gate()
        for ack in acks:
            ack.result(10)
    assert len(dict(backend.scan("words"))) == 51


def test_who_only_reads_needs_a_store_and_writes_nothing(backend: Backend, tmp_path: Path) -> None:
    address = f"{server_address('redis')}?prefix={prefix_of(tmp_path)}"
    with pytest.raises(ConfigError, match="there is no store with prefix 'test-"):
        ckpt.open_backend(address, mode="read")
    backend.put_many("words", {b"be": b"2"})
    with ckpt.open_backend(address, mode="read") as reader:
        assert dict(reader.scan("words")) == {b"be": b"2"}
        with pytest.raises(BackendUnavailableError, match="open for reading"):
            reader.put_many("words", {b"be": b"3"})


class TestRedisMachine(
    backend_machine(
        lambda directory: ckpt.open_backend(server_address("redis"), prefix=prefix_of(directory)),
        max_examples=effort(5, 300),
    )
):
    pass
