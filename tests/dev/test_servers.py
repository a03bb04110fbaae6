"""A server of one's own can be killed, frozen and started again on its data; its secrets stay its own."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.dev import Server, TlsFiles, cassandra, probes
from ckpt.dev.state import ServerState
from ckpt.errors import BackendUnavailableError, ConfigError

Ask = Callable[..., bytes]
Start = Callable[..., Server]


def test_killed_it_comes_back_with_its_data_on_its_port(private_server: Start, ask: Ask) -> None:
    redis = private_server("redis")
    port, [pid] = redis.port, redis.pids.values()
    assert redis.address == f"redis://127.0.0.1:{port}/0"
    ask(redis, "SET", "k", "kept")
    redis.kill()
    assert not redis.running
    assert redis.pids == {}
    with pytest.raises(ConnectionRefusedError):
        ask(redis, "PING")
    assert redis.start() is redis
    assert redis.port == port
    assert list(redis.pids.values()) != [pid]
    assert ask(redis, "GET", "k") == b"$4\r\nkept\r\n"


def test_frozen_it_accepts_and_does_not_answer(private_server: Start, ask: Ask) -> None:
    redis = private_server("redis")
    redis.freeze()
    assert redis.running
    assert not probes.redis_answers(redis.host, redis.port, timeout_s=0.2)
    redis.thaw()
    assert ask(redis, "PING") == b"+PONG\r\n"


def test_as_a_context_it_is_stopped(private_server: Start) -> None:
    with private_server("redis") as redis:
        assert redis.running
    assert not redis.running


def test_a_role_that_it_does_not_have(private_server: Start) -> None:
    with pytest.raises(ConfigError, match="redis has no role 'thrift'; it has redis"):
        private_server("redis").kill("thrift")


def test_a_port_that_another_has_taken_meanwhile(private_server: Start) -> None:
    redis = private_server("redis")
    redis.kill()
    with (
        socket.create_server((redis.host, redis.port)),
        pytest.raises(BackendUnavailableError, match=f"port {redis.port} again, which another process"),
    ):
        redis.start()


def test_nodes_of_a_cluster_talk_on_a_port_of_their_own(private_server: Start) -> None:
    server = private_server("redis", config={"cluster-enabled": "yes"})
    server.stop()
    with socket.socket() as other:
        other.bind((server.host, server.port + 10_000))  # which Redis would have taken
        other.listen(1)
        assert server.start().running


def test_dead_at_its_start_it_says_why(private_server: Start, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError) as raised:
        private_server("redis", config={"no-such-directive": "1"})
    assert "Bad directive or wrong number of arguments" in str(raised.value)
    assert str(raised.value).endswith(f"see {tmp_path}/redis-0/redis.log")


def test_settings_are_those_of_the_server(private_server: Start, ask: Ask) -> None:
    redis = private_server("redis", appendfsync="everysec", maxmemory="7mb", config={"databases": "3"})
    for name, value in {"appendfsync": "everysec", "maxmemory": str(7 << 20), "databases": "3"}.items():
        assert f"\r\n{value}\r\n".encode() in ask(redis, "CONFIG", "GET", name)


def test_secrets_are_in_no_command_line_and_in_no_readable_file(private_server: Start, ask: Ask) -> None:
    redis = private_server(
        "redis",
        users=["user default off", "user ada on >horse-battery ~* +@all"],
        config={"masterauth": "staple"},
    )
    assert ask(redis, "PING").startswith(b"-NOAUTH")
    assert ask(redis, "AUTH", "ada", "horse-battery") == b"+OK\r\n"
    for pid in redis.pids.values():
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert b"horse-battery" not in shown
        assert b"staple" not in shown
    assert "horse-battery" not in repr(redis)
    for path in Path(redis.folder).rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_tls_and_nothing_else(private_server: Start, tls_files: Callable[[str], TlsFiles]) -> None:
    tls = tls_files("server")
    redis = private_server("redis", tls=tls)
    assert redis.address == f"rediss://127.0.0.1:{redis.port}/0"
    assert not probes.redis_answers(redis.host, redis.port)
    context = ssl.create_default_context(cafile=tls.authority)
    with (
        socket.create_connection((redis.host, redis.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
    ):
        encrypted.sendall(b"PING\r\n")
        assert encrypted.recv(100) == b"+PONG\r\n"


def test_a_sentinel_makes_the_replica_the_primary(private_server: Start, ask: Ask) -> None:
    primary = private_server("redis")
    replica = private_server("redis", replica_of=primary)
    sentinel = private_server("sentinel", watch=primary)
    eventually(lambda: b"\r\nconnected\r\n" in ask(replica, "ROLE"))
    eventually(lambda: str(replica.port).encode() in ask(sentinel, "SENTINEL", "REPLICAS", "ckpt"))
    ask(primary, "SET", "k", "kept")
    eventually(lambda: ask(replica, "GET", "k") == b"$4\r\nkept\r\n")
    primary.kill()
    eventually(lambda: b"\r\nmaster\r\n" in ask(replica, "ROLE"))
    # Redis has written its new role into its configuration, which a restart must not undo.
    replica.kill()
    replica.start()
    assert b"\r\nmaster\r\n" in ask(replica, "ROLE")
    assert ask(replica, "GET", "k") == b"$4\r\nkept\r\n"


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it is so; the test's own time limit is the only one."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.05)


def test_it_does_not_outlive_a_test_that_was_killed(private_server: Start, tmp_path: Path) -> None:
    private_server("redis").stop()  # skips where there is no Redis
    code = (
        "import sys, time\n"
        "from ckpt.testing import own_server\n"
        f"own_server('redis', {str(tmp_path / 'theirs')!r})\n"
        "print('ready', flush=True)\n"
        "time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        assert test.stdout.readline() == b"ready\n"
        redis = ServerState.load(str(tmp_path / "theirs")).processes["redis"]
        assert redis.alive
        os.kill(test.pid, signal.SIGKILL)
    assert redis.wait(60)


def test_s3_keeps_its_objects(private_server: Start) -> None:
    s3 = private_server("s3")
    objects = Path(s3.folder, "data", "ckpt")
    assert objects.is_dir()
    (objects / "one").write_bytes(b"kept")
    address = s3.address
    s3.kill()
    assert s3.start().address == address
    assert probes.http_answers(s3.host, s3.port)
    assert (objects / "one").read_bytes() == b"kept"


@pytest.mark.proof
def test_cassandra_asks_for_a_password_from_its_first_answer_on(private_server: Start) -> None:
    server = private_server("cassandra", authenticator="PasswordAuthenticator")
    assert logs_in(server, cassandra.PASSWORD)
    assert not logs_in(server, "wrong")
    server.kill()
    server.start()
    assert logs_in(server, cassandra.PASSWORD)


def logs_in(server: Server, password: str) -> bool:
    return probes.cassandra_answers(server.host, server.port, user=cassandra.SUPERUSER, password=password)


@pytest.mark.proof
def test_each_process_of_hbase_can_be_killed_alone(private_server: Start) -> None:
    hbase = private_server("hbase")
    before = hbase.pids
    for role in ("thrift", "master"):
        other = {"thrift": "master", "master": "thrift"}[role]
        hbase.kill(role)
        assert list(hbase.pids) == [other]
        assert not hbase.running
        hbase.start()
        assert hbase.pids[other] == before[other]
        assert hbase.pids[role] != before[role]
        assert probes.hbase_answers(hbase.host, hbase.port)
        before = hbase.pids
