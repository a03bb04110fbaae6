"""Redis with users, passwords and TLS, and as a cluster: secrets are told to nobody."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import ckpt
from ckpt.contract.backend import Backend
from ckpt.dev import RedisServer, TlsFiles
from ckpt.errors import ConfigError

SECRET = "correct-horse-battery"
PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
USER = "user " + re.findall(r"^ACL SETUSER (.*)$", PAGE.read_text(), re.MULTILINE)[0].replace(
    "PASSWORD", SECRET
)
"""What the docs tell operators to allow, and no more."""

Start = Callable[..., RedisServer]


def work(backend: Backend) -> None:
    """A bit of everything that a store does."""
    backend.put_many("words", {b"be": b"1", b"or": b"1"}, ttl_s=1000)
    backend.put_many("words", {b"be": b"2"})
    backend.delete_many("words", [b"or"])
    backend.claim("words")
    backend.put_many("words", {b"not": b"3"})
    for version in range(1, 4):
        backend.commit("store", version, {b"k": b"%d" % version}, [b"gone"])
    backend.truncate("store", 3)
    backend.drop("other")
    backend.put_many("other", {b"a": b"1"})
    backend.drop("other")
    assert dict(backend.scan("words")) == {b"be": b"2", b"not": b"3"}
    assert dict(backend.scan("store")) == {b"k": b"3"}
    backend.flush()
    assert backend.namespaces() == ["store", "words"]
    assert list(backend.verify()) == []
    backend.stats()


# -- users and passwords -------------------------------------------------------------------------


@pytest.fixture
def guarded(private_server: Start) -> RedisServer:
    return private_server("redis", users=["user default off", USER])


def location(server: RedisServer, user: str) -> str:
    return f"redis://{user}@{server.host}:{server.port}/0"


def test_a_user_who_may_only_do_what_a_store_needs(guarded: RedisServer) -> None:
    with ckpt.open_backend(location(guarded, f"ada:{SECRET}"), grace_s=0) as backend:
        work(backend)
        assert backend.stats().details["appendfsync"] == "unknown (CONFIG is not permitted)"


def test_a_password_from_the_environment_or_a_file(
    guarded: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    with ckpt.open_backend(location(guarded, "ada"), password_file=str(file)) as backend:
        backend.put_many("words", {b"be": b"1"})
        address = backend.address
    with ckpt.open_backend(address) as again:
        assert again.get_many("words", [b"be"]) == {b"be": b"1"}
    monkeypatch.setenv("CKPT_REDIS_PASSWORD", SECRET)
    with ckpt.open_backend(location(guarded, "ada")) as backend:
        assert backend.get_many("words", [b"be"]) == {b"be": b"1"}


@pytest.mark.parametrize("user", ["ada:hush%68ush", "ada", "eve:hush%68ush", ":hush%68ush"])
def test_a_wrong_password_is_told_at_once_and_without_it(guarded: RedisServer, user: str) -> None:
    with pytest.raises(ConfigError, match="refuses the user or the password") as caught:
        ckpt.open_backend(location(guarded, user))
    assert "hushhush" not in "".join(traceback.format_exception(caught.value))


def test_no_user_at_all(guarded: RedisServer) -> None:
    with pytest.raises(ConfigError, match="refuses the user or the password"):
        ckpt.open_backend(guarded.address)


def test_a_user_who_may_not_is_told_what_to_do(guarded: RedisServer) -> None:
    with (
        ckpt.open_backend(location(guarded, f"ada:{SECRET}"), prefix="else") as backend,
        pytest.raises(ConfigError, match=r"does not permit this user .* ACL SETUSER"),
    ):
        backend.put_many("words", {b"be": b"1"})


def test_secrets_are_in_no_message_log_or_repr(
    guarded: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    with ckpt.open_backend(location(guarded, f"ada:{SECRET}"), retry_s=0, timeout_s=1) as backend:
        backend.put_many("words", {b"be": b"1"})
        told += [backend.address, repr(backend), repr(vars(backend)), str(backend.stats())]
        guarded.kill()
        with pytest.raises(ckpt.BackendUnavailableError) as caught:
            backend.put_many("words", {b"be": b"2"})
        told += traceback.format_exception(caught.value)
        with ckpt.SafeKeeper(backend, retry_s=0.1) as keeper:
            with pytest.raises(ckpt.CkptError) as failed:
                keeper.namespace("words").save("be", {"n": 1}).result(timeout=60)
            told += traceback.format_exception(failed.value)
    assert SECRET not in "".join(told) + caplog.text


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def tls(private_server: Start, tls_files: Callable[[str], TlsFiles]) -> tuple[RedisServer, TlsFiles]:
    files = tls_files("server")
    return private_server("redis", tls=files), files


def test_checkpoints_travel_encrypted(tls: tuple[RedisServer, TlsFiles]) -> None:
    server, files = tls
    with ckpt.open_backend(f"rediss://{server.host}:{server.port}/0?tls_ca={files.authority}") as backend:
        work(backend)
        address = backend.address
    assert address.startswith("rediss://")
    plain = f"redis://{server.host}:{server.port}/0"
    with ckpt.open_backend(plain, tls=True, tls_ca=files.authority) as backend:
        assert dict(backend.scan("store")) == {b"k": b"3"}
    with ckpt.open_backend(address) as backend:
        assert dict(backend.scan("store")) == {b"k": b"3"}


def test_a_certificate_that_nobody_vouches_for_is_refused(
    tls: tuple[RedisServer, TlsFiles], tls_files: Callable[[str], TlsFiles]
) -> None:
    server, _ = tls
    other = tls_files("other")
    for options in ({}, {"tls_ca": other.authority}):
        with pytest.raises(ConfigError, match=r"certificate .* is not trusted"):
            ckpt.open_backend(f"rediss://{server.host}:{server.port}/0", **options)


def test_a_certificate_for_another_host_is_refused(
    private_server: Start, tls_files: Callable[..., TlsFiles]
) -> None:
    files = tls_files("server", host="127.0.0.9")
    server = private_server("redis", tls=files)
    with pytest.raises(ConfigError, match="for another host"):
        ckpt.open_backend(f"rediss://{server.host}:{server.port}/0", tls_ca=files.authority)


def test_plain_talk_to_a_server_that_speaks_tls_ends(tls: tuple[RedisServer, TlsFiles]) -> None:
    server, _ = tls
    with pytest.raises(ckpt.BackendUnavailableError):
        ckpt.open_backend(f"redis://{server.host}:{server.port}/0", retry_s=0, timeout_s=1)


def test_tls_with_a_server_that_speaks_plainly_ends(private_server: Start) -> None:
    server = private_server("redis")
    with pytest.raises((ConfigError, ckpt.BackendUnavailableError)):
        ckpt.open_backend(f"rediss://{server.host}:{server.port}/0", retry_s=0, timeout_s=1)


# -- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_keeps_each_namespace_in_one_slot(private_server: Start) -> None:
    server = private_server("redis", config={"cluster-enabled": "yes", "cluster-require-full-coverage": "no"})
    with redis.Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    address = f"redis://{server.host}:{server.port}/0?cluster=true"
    with ckpt.open_backend(address, grace_s=0, retry_s=30) as backend:
        work(backend)
        for name in ("a{b}", "{}", "}{", "{words}", "é"):
            backend.put_many(name, {b"k": name.encode()})
        server.kill()
        server.start()
        for name in ("a{b}", "{}", "}{", "{words}", "é"):
            assert backend.get_many(name, [b"k"]) == {b"k": name.encode()}
        backend.put_many("words", {b"after": b"1"})


def test_a_cluster_is_asked_again_who_is_responsible(private_server: Start) -> None:
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    one, two = (private_server("redis", config=config) for _ in range(2))
    with redis.Redis(port=one.port) as first, redis.Redis(port=two.port) as second:
        first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        second.execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        first.execute_command("CLUSTER", "MEET", two.host, two.port, two.bus_port)
        # Between two that have just met it takes a moment until each knows the slots of the other.
        address = f"redis://{one.host}:{one.port}/0?cluster=true"
        with ckpt.open_backend(address, retry_s=60) as backend:
            for n in range(20):
                backend.put_many(f"space-{n}", {b"k": b"%d" % n})
            assert len(backend.namespaces()) == 20
            spread = {client.dbsize() > 0 for client in (first, second)}
            assert spread == {True}
            # A slot without keys changes hands; the handle still knows its former owner.
            slot = first.cluster("KEYSLOT", "ckpt:{moved}:ledger")
            backend.get_many("moved", [b"k"])
            owner, heir = (first, second) if slot < 8192 else (second, first)
            heir_id = heir.execute_command("CLUSTER", "MYID")
            for client in (heir, owner):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", heir_id)
            backend.put_many("moved", {b"k": b"1"})
            assert heir.exists("ckpt:{moved}:ledger") or heir.exists("ckpt:{moved}:rows:0.0")
            assert backend.get_many("moved", [b"k"]) == {b"k": b"1"}
