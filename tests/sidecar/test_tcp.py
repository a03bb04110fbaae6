"""Over TCP nobody gets in without the token, and with TLS nobody in between reads or changes anything."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ckpt
from ckpt.cli import main
from ckpt.dev import TlsFiles
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar import Door, Sidecar, SidecarClient, SidecarOptions, TcpListener
from ckpt.sidecar.frames import MAGIC

Connect = Callable[..., SidecarClient]
TOKEN = "a token with ünïcode and spaces"


@pytest.fixture
def files(tls_files: Callable[[str], TlsFiles]) -> TlsFiles:
    return tls_files("sidecar")


@pytest.fixture
def server_tls(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate)
    return context


@pytest.fixture
def client_tls(files: TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.authority)


@pytest.fixture
def plain() -> Iterator[Sidecar]:
    """A sidecar on TCP with a token."""
    door = Door(token=TOKEN.encode(), timeout_s=0.5)
    with Sidecar(ckpt.open_backend("memory://"), TcpListener("127.0.0.1", 0), door=door) as sidecar:
        yield sidecar


@pytest.fixture
def encrypted(server_tls: ssl.SSLContext) -> Iterator[Sidecar]:
    """A sidecar on TCP with a token and TLS."""
    door = Door(token=TOKEN.encode(), tls=server_tls, timeout_s=2)
    options = SidecarOptions(frame_timeout_s=0.5)
    with Sidecar(ckpt.open_backend("memory://"), TcpListener("127.0.0.1", 0), options, door=door) as sidecar:
        yield sidecar


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_silent_connections_do_not_keep_others_out(
    connect: Connect, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, secured: bool
) -> None:
    door = Door(token=TOKEN.encode(), tls=server_tls if secured else None, timeout_s=600)
    options = SidecarOptions(max_waiting=4)
    with (
        Sidecar(ckpt.open_backend("memory://"), TcpListener("127.0.0.1", 0), options, door=door) as sidecar,
        ExitStack() as silent,
    ):
        port = int(sidecar.name.rpartition(":")[2])
        held = [silent.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(10)]
        for one in held[::2]:
            one.sendall(MAGIC[:2])  # nor does who begins to speak and stops
        connect(sidecar, token=TOKEN, tls=client_tls if secured else None).ping()
        while held[1].recv(100):  # with TLS it is told why before it is cut
            pass


def test_with_the_token_everything_works(plain: Sidecar, connect: Connect) -> None:
    client = connect(plain, token=TOKEN)
    rows = {b"%05d" % n: b"v" * 100 for n in range(20_000)}
    client.commit("store", 1, rows)
    assert dict(client.scan("store")) == rows


@pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * 1024])
def test_without_it_nothing_does(plain: Sidecar, connect: Connect, token: str) -> None:
    with pytest.raises(ConfigError, match="wrong token") as caught:
        connect(plain, token=token).ping()
    assert TOKEN not in str(caught.value)
    with pytest.raises(ConfigError, match="wrong token"), connect(plain, token=token).lifeline():
        pass
    assert plain.stats()["connections"] == 0
    assert plain.stats()["refused"] == 2


def test_nothing_is_answered_before_the_token(plain: Sidecar) -> None:
    with socket.create_connection(("127.0.0.1", int(plain.name.rpartition(":")[2])), 20) as silent:
        silent.sendall(MAGIC + struct.pack("<HHH", 1, 0, 30) + b"half of it")
        assert silent.recv(100) == b""


def test_no_token_no_listener() -> None:
    listener = TcpListener("127.0.0.1", 0)
    with ckpt.open_backend("memory://") as backend, pytest.raises(ConfigError, match="needs a token"):
        Sidecar(backend, listener)
    listener.stop()


def test_a_port_in_use_is_one_clear_error(plain: Sidecar) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        TcpListener("127.0.0.1", int(plain.name.rpartition(":")[2]))


def test_ipv6_has_a_name_that_a_client_understands(connect: Connect) -> None:
    try:
        listener = TcpListener("::1", 0)
    except ConfigError:
        return  # a host without IPv6 has nothing to show here
    with Sidecar(ckpt.open_backend("memory://"), listener, door=Door(token=b"t")) as sidecar:
        assert sidecar.name.startswith("[::1]:")
        connect(sidecar, token="t").ping()


def test_tls_from_end_to_end(encrypted: Sidecar, connect: Connect, client_tls: ssl.SSLContext) -> None:
    client = connect(encrypted, token=TOKEN, tls=client_tls)
    rows = {b"%05d" % n: b"v" * 100 for n in range(20_000)}
    client.commit("store", 1, rows)
    assert dict(client.scan("store", block_bytes=1 << 16)) == rows
    with pytest.raises(ConfigError, match="wrong token"):
        connect(encrypted, token="guess", tls=client_tls).ping()


def test_silence_between_encrypted_frames_is_no_fault(
    encrypted: Sidecar, connect: Connect, client_tls: ssl.SSLContext
) -> None:
    client = connect(encrypted, token=TOKEN, tls=client_tls)
    client.ping()
    with client.lifeline():
        threading.Event().wait(1.2)  # more than twice the patience inside a frame
        client.ping()
        assert client.stats()["lifelines"] == 1
        assert client.stats()["connections"] == 2


def test_a_client_without_tls_does_not_get_through(encrypted: Sidecar, connect: Connect) -> None:
    with pytest.raises(BackendUnavailableError):
        connect(encrypted, token=TOKEN).ping()
    assert encrypted.stats()["connections"] == 0


def test_a_client_trusts_no_unknown_certificate(encrypted: Sidecar, connect: Connect) -> None:
    with pytest.raises(BackendUnavailableError, match="certificate"):
        connect(encrypted, token=TOKEN, tls=ssl.create_default_context()).ping()


def test_what_is_under_way_is_finished_encrypted(
    encrypted: Sidecar, connect: Connect, client_tls: ssl.SSLContext
) -> None:
    client = connect(encrypted, token=TOKEN, tls=client_tls)
    backend: Any = encrypted._service.backend
    inside, go_on, commit = threading.Event(), threading.Event(), backend.commit

    def slow_commit(*args: Any, **kwargs: Any) -> Any:
        inside.set()
        assert go_on.wait(20)
        return commit(*args, **kwargs)

    backend.commit = slow_commit
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(client.commit, "store", 1, {b"k": b"v"}, commit_id="one")
        assert inside.wait(20)
        closing = pool.submit(encrypted.close)
        while not encrypted._closed:
            pass
        go_on.set()
        assert answer.result(20) == "one"
        closing.result(20)


class TestCommand:
    """`ckpt serve --listen`."""

    def test_token_from_a_file_with_tls(
        self,
        serve: Callable[..., object],
        connect: Connect,
        tmp_path: Path,
        files: TlsFiles,
        client_tls: ssl.SSLContext,
    ) -> None:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        options = ["--token-file", str(tmp_path / "token")]
        options += ["--tls-cert", files.certificate, "--tls-key", files.key]
        process = serve(f"log://{tmp_path}/log", "--listen", "127.0.0.1:0", *options)
        client = connect(process.ready(), token=TOKEN, tls=client_tls)
        client.commit("store", 1, {b"k": b"v"})
        process.popen.terminate()
        assert process.end() == (0, "")

    def test_token_from_the_environment(
        self, serve: Callable[..., object], connect: Connect, tmp_path: Path
    ) -> None:
        process = serve(f"log://{tmp_path}/log", "--listen", "127.0.0.1:0", env={"CKPT_TOKEN": TOKEN})
        name = process.ready()
        connect(name, token=TOKEN).ping()
        with pytest.raises(ConfigError, match="wrong token"):
            connect(name).ping()

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (["--listen", "127.0.0.1:0"], "needs a token"),
            (["--listen", "nowhere", "--token-file", "TOKEN"], "HOST:PORT"),
            (["--listen", "127.0.0.1:0", "--token-file", "EMPTY"], "needs a token"),
            (["--listen", "127.0.0.1:0", "--token-file", "MISSING"], "name a file that holds one"),
            (["--listen", "127.0.0.1:65536", "--token-file", "TOKEN"], "HOST:PORT"),
            (["--listen", "127.0.0.1:0", "--token-file", "LONG"], "at most 1024"),
            (["--listen", "127.0.0.1:0", "--token-file", "TOKEN", "--tls-cert", "TOKEN"], "no TLS with"),
            (["--listen", "127.0.0.1:0", "--token-file", "TOKEN", "--tls-key", "TOKEN"], "needs --tls-cert"),
            (["--listen", "127.0.0.1:0", "--token-file", "TOKEN", "--on-demand"], "goes without"),
            (["--token-file", "TOKEN"], "belong to --listen"),
        ],
    )
    def test_wrong_use_is_told_in_one_line(self, tmp_path: Path, options: list[str], why: str) -> None:
        for name, text in (("TOKEN", "secret"), ("EMPTY", "\n"), ("LONG", "x" * 2000)):
            (tmp_path / name).write_text(text)
        args = [str(tmp_path / o) if o.isupper() else o for o in options]
        result = CliRunner().invoke(main, ["serve", "memory://", *args], prog_name="ckpt")
        assert result.exit_code == 2
        assert why in result.output
        assert result.output.count("\n") == 1
        assert "secret" not in result.output
