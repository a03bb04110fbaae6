"""What goes wrong with a Cassandra address: one clear error each, and no secret in any of them."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from cassandra import AuthenticationFailed, Unavailable
from cassandra.cluster import NoHostAvailable

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend
from ckpt.dev import Server
from ckpt.dev.ports import free_port
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.testing.servers import own_server
from ckpt_backends.cassandra import CassandraBackend, CassandraOptions
from ckpt_backends.cassandra.errors import translated
from ckpt_backends.cassandra.options import read_target
from ckpt_backends.cells import NotNowError
from ckpt_backends.cells.access import read_location

SECRET = "hush/hush@home"
ESCAPED = "hush%2Fhush%40home"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for a password, and knows the user `ada`."""
    started = own_server(
        "cassandra", tmp_path_factory.mktemp("cassandra") / "node", authenticator="PasswordAuthenticator"
    )
    with ckpt.open_backend(started.address.replace("://", "://cassandra:cassandra@"), prefix="root") as root:
        assert isinstance(root, CassandraBackend)
        run = root._server._link.run
        run(f"CREATE ROLE ada WITH PASSWORD = '{SECRET}' AND LOGIN = true")
        run("CREATE ROLE eve WITH PASSWORD = 'eve' AND LOGIN = true")
        run("GRANT ALL ON KEYSPACE {} TO ada")
        run("GRANT SELECT ON KEYSPACE {} TO eve")
    yield started
    started.kill()


def address_for(server: Server, who: str) -> str:
    return server.address.replace("://", f"://{who}@")


def use(backend: Backend) -> None:
    backend.put_many("words", {b"be": b"1"})
    assert backend.get_many("words", [b"be"]) == {b"be": b"1"}


def test_a_password_by_address_environment_or_file_and_shown_nowhere(
    guarded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ckpt.open_backend(address_for(guarded, f"ada:{ESCAPED}")) as backend:
        use(backend)
        shown = backend.address
        texts = [shown, repr(backend), str(backend.stats()), str(vars(backend))]
    assert shown == address_for(guarded, "ada")
    monkeypatch.setenv("CKPT_CASSANDRA_PASSWORD", SECRET)
    with ckpt.open_backend(shown) as backend:
        use(backend)
        assert backend.address == shown
    monkeypatch.delenv("CKPT_CASSANDRA_PASSWORD")
    monkeypatch.setenv("OTHER", SECRET)
    with ckpt.open_backend(shown, password_env="OTHER") as backend:
        use(backend)
        assert backend.address == f"{shown}?password_env=OTHER"
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    with ckpt.open_backend(f"{shown}?password_file={secret}") as backend:
        use(backend)
    for wrong in (shown, address_for(guarded, "ada:wrong"), address_for(guarded, f"nobody:{ESCAPED}")):
        with pytest.raises(ConfigError, match="refuses the user or the password; put them") as raised:
            ckpt.open_backend(wrong)
        texts.append(str(raised.value))
    with pytest.raises(ConfigError, match="refuses the user or the password"):
        ckpt.open_backend(guarded.address)
    for text in [*texts, caplog.text]:
        assert "hush" not in text
        assert "wrong" not in text


def test_a_user_who_may_only_read_is_told_what_is_missing(guarded: Server) -> None:
    with ckpt.open_backend(address_for(guarded, "eve:eve"), mode="read") as backend:
        assert backend.namespaces() in ([], ["words"])
    with (
        ckpt.open_backend(address_for(guarded, "eve:eve"), prefix="hers") as backend,
        pytest.raises(ConfigError, match=r"does not permit this user .* grant SELECT and MODIFY"),
    ):
        backend.put_many("words", {b"be": b"1"})


def test_a_command_hides_the_password_from_its_output(guarded: Server) -> None:
    address = address_for(guarded, f"ada:{ESCAPED}x")
    ran = subprocess.run(
        [sys.executable, "-m", "ckpt", "ls", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode != 0
    assert "refuses the user or the password" in ran.stdout + ran.stderr
    assert "hush" not in ran.stdout + ran.stderr


def test_a_store_that_is_only_read_must_be_there(cassandra_keyspace: str) -> None:
    missing = cassandra_keyspace.rpartition("/")[0] + "/not_there"
    with pytest.raises(ConfigError, match=r"there is no store in keyspace .*not_there.* once"):
        ckpt.open_backend(missing, mode="read")
    with ckpt.open_backend(cassandra_keyspace, prefix="there") as backend:
        backend.put_many("words", {b"be": b"2"})
    with pytest.raises(ConfigError, match="there is no store with prefix 'not there'"):
        ckpt.open_backend(cassandra_keyspace, mode="read", prefix="not there")
    with ckpt.open_backend(cassandra_keyspace, mode="read", prefix="there") as reader:
        assert reader.get_many("words", [b"be"]) == {b"be": b"2"}


def test_hosts_that_have_no_address_are_named() -> None:
    with pytest.raises(
        BackendUnavailableError, match=r"host.invalid:9042 cannot be reached .* names"
    ) as raised:
        ckpt.open_backend(f"cassandra://ada:{ESCAPED}@no.such.host.invalid/ckpt", retry_s=0)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_server_that_is_not_there_is_named_when_the_store_is_opened() -> None:
    port = free_port()
    with pytest.raises(BackendUnavailableError, match=rf"{port} cannot be reached .* check that it runs"):
        ckpt.open_backend(f"cassandra://127.0.0.1:{port}/ckpt", timeout_s=2, retry_s=0.2)


def test_speaking_tls_to_a_server_without_it_says_so(cassandra_keyspace: str) -> None:
    with pytest.raises((ConfigError, BackendUnavailableError), match=r"TLS|cannot be reached"):
        ckpt.open_backend(cassandra_keyspace, tls=True, timeout_s=3, retry_s=0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("cassandra://host:9042/ckpt?bucket=3", "no option 'bucket'; did you mean 'buckets'"),
        ("cassandra://host:9042/ckpt?consistency=most", "one of one, local_one, quorum"),
        ("cassandra://host:9042/ckpt?serial_consistency=quorum", "one of serial, local_serial"),
        ("cassandra://host:9042/ckpt?buckets=0", "buckets is a whole number from 1"),
        ("cassandra://host:9042/ckpt?replication=none at all", "replication is a number such as 3, or dc1:3"),
        ("cassandra://host:9042/ckpt?prefix=", "prefix is text of 1 to 256 bytes"),
        ("cassandra://host:9042/ckpt?deleted_s=0", "deleted_s is a number of seconds"),
        ("cassandra://host:9042/ckpt?tls_ca=/ca.pem", "need tls=true"),
        (
            "cassandra://host:9042/ckpt?tls=true&tls_ca=/not/there.pem",
            "tls_ca /not/there.pem cannot be used: No such file",
        ),
        ("cassandra://host:9042/two/parts", "is a keyspace"),
        ("cassandra:///ckpt", "no host can be read"),
        ("cassandra://host:99999/ckpt", "no host can be read"),
        ("cassandra://:hush@host/ckpt", "a password needs a user"),
        ("cassandra://ada:hu@sh@host/ckpt", "as percent escapes"),
        ("cassandra://ada@host/ckpt?password_file=/not/there", "password_file /not/there cannot be read"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_one(wrong: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        ckpt.open_backend(wrong)
    assert "hush" not in str(raised.value)


def test_hosts_share_the_last_port() -> None:
    options = CassandraOptions()
    assert read_target(read_location(parse_address("cassandra://a,b:1,[::1]:2/k")), options).hosts == (
        ("a", 2),
        ("b", 1),
        ("::1", 2),
    )
    assert (
        read_target(read_location(parse_address("cassandra://a,b")), options).shown
        == "cassandra://a:9042,b:9042/ckpt"
    )


def test_failures_of_the_driver_say_what_to_do() -> None:
    refused = NoHostAvailable("no", {"127.0.0.1": AuthenticationFailed("bad")})
    assert "refuses the user" in str(translated(refused, "here"))
    too_few = translated(Unavailable("few", 1, 2, 1), "here")
    assert isinstance(too_few, NotNowError)
    assert "too few replicas" in str(too_few)
    other = translated(RuntimeError("a key or a value"), "here")
    assert isinstance(other, NotNowError)
    assert "value" not in str(other)


def test_without_the_driver_the_command_that_installs_it_is_shown() -> None:
    code = (
        "import sys; sys.modules['cassandra'] = None\n"
        "import ckpt\n"
        "try: ckpt.open_backend('cassandra://host/ckpt')\n"
        "except ckpt.ConfigError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'ckpt[cassandra]'" in ran.stdout
