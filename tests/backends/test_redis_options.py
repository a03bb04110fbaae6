"""Redis addresses: what they mean, what is wrong with them in one sentence, where passwords never are."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.cells.access import read_location
from ckpt_backends.redis import RedisOptions
from ckpt_backends.redis.errors import translated
from ckpt_backends.redis.options import RedisTarget, read_target


def target(address: str, **options: object) -> RedisTarget:
    return read_target(read_location(parse_address(address)), RedisOptions(**options))


def test_an_address_names_host_port_database_and_user() -> None:
    found = target("redis://ada:p%40ss%2Fword@db.example:7000/3")
    assert found.hosts == (("db.example", 7000),)
    assert (found.database, found.username, found.password) == (3, "ada", "p@ss/word")


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("redis://db", (("db", 6379),)),
        ("redis://db/", (("db", 6379),)),
        ("redis://[::1]:7000/0", (("::1", 7000),)),
        ("redis://10.0.0.1:1", (("10.0.0.1", 1),)),
    ],
)
def test_what_is_left_out_has_a_default(address: str, hosts: object) -> None:
    assert target(address).hosts == hosts


def test_sentinels_are_several_hosts_with_their_own_port() -> None:
    found = target("redis://one,two:7000/1", sentinel="main")
    assert found.hosts == (("one", 7000), ("two", 7000))
    assert found.shown == "redis://one:7000,two:7000/1?sentinel=main"
    assert target("redis://one:1,two", sentinel="main").hosts == (("one", 1), ("two", 26379))


@pytest.mark.parametrize(
    "address", ["redis://ada:secret@db", "redis://:secret@db", "redis://:s%65cret@db:1/2"]
)
def test_the_password_is_shown_nowhere(address: str) -> None:
    found = target(address)
    assert found.password == "secret"
    assert "secret" not in found.shown + repr(found)


def test_the_address_of_a_store_opens_it_again_with_the_same_options(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    options = {"prefix": "a/b", "wait": 2, "tls": True, "password_file": str(secret)}
    found = target("redis://ada:unused@db/2", **options)
    again = parse_address(found.shown)
    assert dict(again.options) == {
        "prefix": "a/b",
        "wait": "2",
        "tls": "true",
        "password_file": str(secret),
    }
    assert target(found.shown, **options).password == "from a file"


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPT_REDIS_PASSWORD", "usual")
    monkeypatch.setenv("OTHER", "other")
    assert target("redis://db").password == "usual"
    assert target("redis://db", password_env="OTHER").password == "other"
    assert target("redis://:given@db").password == "given"
    monkeypatch.delenv("CKPT_REDIS_PASSWORD")
    assert target("redis://db").password is None


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("redis://db?prefx=a", "redis has no option 'prefx'; did you mean 'prefix'"),
        ("redis://db?wait=many", "redis option wait is a whole number"),
        ("redis://db?wait=-1", "wait is a number of replicas from 0"),
        ("redis://db?wait=1&wait_timeout_s=10", "wait_timeout_s is above 0 and below timeout_s"),
        ("redis://db?prefix=a{b}", "prefix is text without white space and braces"),
        ("redis://db?prefix=", "prefix is text"),
        ("redis://db?timeout_s=0", "timeout_s is a positive number"),
        ("redis://one,two", "several hosts need sentinel=NAME"),
        ("redis://one?sentinel=a&cluster=true", "exclude each other"),
        ("redis://one/3?cluster=true", "only database 0"),
        ("redis://db/words", "the number of a database"),
        ("redis://db:port", "no host can be read from this redis address; write redis://host:port"),
        ("redis://db:70000", "no host can be read from this redis address; write redis://host:port"),
        ("redis://", "no host can be read from this redis address; write redis://host:port"),
        ("redis://db?password_file=/nowhere/at/all", "password_file /nowhere/at/all cannot be read"),
        ("redis://db?tls_ca=/nowhere.pem&tls=true", "tls_ca /nowhere.pem cannot be used: No such file"),
    ],
)
def test_mistakes_are_named(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ckpt.open_backend(address, retry_s=0)


@pytest.mark.parametrize(
    "address", ["redis://ada:hush/hush@db", "redis://ada:hush:hush@db", "redis://a@hush@b"]
)
def test_a_password_that_needs_escapes_is_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError, match="percent escapes") as caught:
        ckpt.open_backend(address)
    assert "hush" not in str(caught.value)


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(
        BackendUnavailableError, match=r"redis://ada@127.0.0.1:9/0 cannot be reached .*check"
    ) as caught:
        ckpt.open_backend("redis://ada:hush@127.0.0.1:9", retry_s=0, timeout_s=1)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("tls", [False, True])
def test_sentinels_that_are_not_there_are_named(tls: bool) -> None:
    with pytest.raises(
        BackendUnavailableError, match=r"no sentinel of redis://127.0.0.1:9/0 names a primary"
    ):
        ckpt.open_backend("redis://127.0.0.1:9/0?sentinel=main", retry_s=0, timeout_s=1, tls=tls)


def test_a_missing_driver_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.partition(".")[0] == "redis" or "_backends.redis" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"redis backend needs a package .*pip install 'ckpt\[redis\]'"):
        ckpt.open_backend("redis://127.0.0.1:9")


def test_a_message_of_the_server_ends_where_it_quotes() -> None:
    import redis

    error = redis.ResponseError("ERR unknown command 'HSET', with args beginning with: 'key' 'secret value'")
    shown = str(translated(error, "redis://db"))
    assert shown == "redis://db answered with an error: ERR unknown command; look at its log"


def test_options_can_be_sent_to_another_process() -> None:
    options = RedisOptions(wait=1)
    assert pickle.loads(pickle.dumps(options)) == options
