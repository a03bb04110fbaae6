"""A sidecar that runs already, reached over TCP: who may use it does, and who cannot is told why."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import ckpt
from ckpt.dev import TlsFiles
from ckpt.sidecar import Door, Sidecar, SidecarOptions, TcpListener, frames
from ckpt.sidecar.frames import HEAD, HELLO, ErrorKind, ResponseStatus, Welcome, encode_error, frame
from ckpt.spark.settings import _holds_a_secret

Serve = Callable[..., Sidecar]


@pytest.fixture
def serve(token: str, tmp_path: Path) -> Callable[..., Any]:
    """Starts a sidecar on TCP for one and the same store."""

    def start(port: int = 0, tls: ssl.SSLContext | None = None, **options: int) -> Sidecar:
        backend, listener = ckpt.open_backend(f"log://{tmp_path}/log"), TcpListener("127.0.0.1", port)
        door = Door(token=token.encode(), tls=tls)
        return Sidecar(backend, listener, SidecarOptions(**options), door=door)

    return start


def settings_of(name: str, **others: str) -> dict[str, str]:
    token = {"sidecar.token": "env:CKPT_TEST_TOKEN"}
    return {"sidecar": name} | token | {key.replace("_", "."): value for key, value in others.items()}


def said_by(provider: Any) -> str:
    """What a store says that cannot reach its sidecar."""
    store = provider.open(0)
    store.put("a", 1, 1)
    with pytest.raises(Py4JJavaError) as caught:
        store.commit()
    store.abort()
    return str(caught.value)


def test_state_is_kept_by_a_sidecar_that_runs(provider_of: Any, serve: Serve, tmp_path: Path) -> None:
    with serve() as sidecar:
        settings = settings_of(sidecar.name)
        store = provider_of(settings=settings).open(0)
        store.put("a", 1, 1)
        first = store.commit()
        assert provider_of(settings=settings).open(1, first).all() == [("a", 1, 1)]
        assert sidecar.stats()["commits"] == 1


def test_a_sidecar_that_is_started_again_is_found(provider_of: Any, serve: Serve) -> None:
    with serve() as sidecar:
        provider = provider_of(settings=settings_of(sidecar.name))
        store = provider.open(0)
        store.put("a", 1, 1)
        first = store.commit()
        store = provider.open(1, first)
        store.put("a", 1, 2)
    with serve(port=int(sidecar.name.rpartition(":")[2])):
        assert provider.open(2, store.commit()).all() == [("a", 1, 2)]


GREETED = b"".join(frame(ResponseStatus.DONE, 0, Welcome(1, 1 << 20, "log:///elsewhere").encode()))
REFUSED = b"".join(
    frame(ResponseStatus.FATAL, 0, encode_error(ErrorKind.UNAVAILABLE, "the sidecar is about to end"))
)


def ending(port: int, *answers: bytes) -> threading.Thread:
    """A sidecar in its last moments: what it says to those who still connect, one after the other."""
    server = socket.create_server(("127.0.0.1", port))

    def answer() -> None:
        with server, ExitStack() as open_until_it_ends:
            for said in answers:
                connection = server.accept()[0]
                if not said:
                    connection.close()
                    continue
                open_until_it_ends.enter_context(connection)
                connection.recv(4096)
                connection.sendall(said)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("answers", [(b"", b""), (REFUSED,), (REFUSED, b"")], ids=["cut", "refused", "both"])
def test_a_sidecar_that_ends_while_clients_connect_is_waited_for(
    provider_of: Any, serve: Serve, answers: tuple[bytes, ...]
) -> None:
    with serve() as sidecar:
        provider = provider_of(settings=settings_of(sidecar.name))
        store = provider.open(0)
        store.put("a", 1, 1)
        store = provider.open(1, store.commit())
        store.put("a", 1, 2)
    port = int(sidecar.name.rpartition(":")[2])
    last = ending(port, *answers)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(store.commit)
        last.join(30)
        with serve(port=port):
            assert provider.open(2, committed.result(60)).all() == [("a", 1, 2)]


@pytest.mark.parametrize(
    "answers", [(GREETED, REFUSED), (GREETED, b"", GREETED, b"")], ids=["refused", "lost twice"]
)
def test_a_sidecar_that_lets_no_request_in_any_more_is_waited_for(
    provider_of: Any, serve: Serve, answers: tuple[bytes, ...]
) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    last = ending(port, *answers)
    provider = provider_of(settings=settings_of(f"127.0.0.1:{port}"))
    store = provider.open(0)
    store.put("a", 1, 1)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(store.commit)
        last.join(30)
        with serve(port=port):
            assert provider.open(1, committed.result(60)).all() == [("a", 1, 1)]


def test_a_newer_sidecar_serves_an_executor_of_the_version_before(
    provider_of: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PROTOCOL_VERSION", frames.PROTOCOL_VERSION + 1)
    with serve() as sidecar:
        settings = settings_of(sidecar.name)
        store = provider_of(settings=settings).open(0)
        store.put("a", 1, 1)
        first = store.commit()
        assert provider_of(settings=settings).open(1, first).all() == [("a", 1, 1)]


@pytest.mark.parametrize("version", [frames.OLDEST_VERSION - 1, frames.PROTOCOL_VERSION + 1])
def test_an_executor_refuses_a_version_that_it_does_not_know(provider_of: Any, version: int) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ending(
        port, b"".join(frame(ResponseStatus.DONE, 0, Welcome(version, 1 << 20, "log:///elsewhere").encode()))
    )
    said = said_by(provider_of(settings=settings_of(f"127.0.0.1:{port}")))
    assert f"speaks version {version} of the protocol" in said


def test_tls_with_whom_the_ca_vouches_for(
    provider_of: Any, serve: Serve, tls_files: Callable[[str], TlsFiles], tmp_path: Path
) -> None:
    files = tls_files("sidecar")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate)
    with serve(tls=context) as sidecar:
        settings = settings_of(sidecar.name, sidecar_ca=files.authority)
        store = provider_of(settings=settings).open(0)
        for number in range(200):
            store.put("a", number, number)
        first = store.commit()
        assert len(provider_of(settings=settings).open(1, first).all()) == 200
        assert "if it wants TLS, set" in said_by(provider_of(settings=settings_of(sidecar.name)))
        elsewhere = settings_of(f"localhost:{sidecar.name.rpartition(':')[2]}", sidecar_ca=files.authority)
        assert "names localhost" in said_by(provider_of(settings=elsewhere))
        nothing = tmp_path / "empty.pem"
        nothing.touch()
        said = said_by(provider_of(settings=settings_of(sidecar.name, sidecar_ca=str(nothing))))
        assert "it holds no certificate" in said
    with serve() as plain:
        said = said_by(provider_of(settings=settings_of(plain.name, sidecar_ca=files.authority)))
        assert "no TLS with the sidecar" in said


def test_a_commit_that_fits_into_no_frame_is_sent_in_parts(provider_of: Any, serve: Serve) -> None:
    with serve(max_frame_bytes=1 << 12, max_commit_bytes=1 << 17) as sidecar:
        settings = settings_of(sidecar.name)
        provider = provider_of(settings=settings)
        store = provider.open(0)
        for number in range(150):
            store.put("a", number, number)
        first = store.commit()
        assert store.metric("ckptCommitBytes") > 2 << 12
        store = provider.open(1, first)
        for number in range(140):
            store.remove("a", number)
        second = store.commit()
        assert len(provider_of(settings=settings).open(1, first).all()) == 150
        assert len(provider_of(settings=settings).open(2, second).all()) == 10
        store = provider.open(2, second)
        for number in range(4):
            store.put("x" * (1 << 12), number, number)
        with pytest.raises(Py4JJavaError, match="one value, or one list of keys, is too long"):
            store.commit()


def test_the_parts_of_a_commit_that_is_refused_go_into_no_other(
    provider_of: Any, serve: Serve, tmp_path: Path
) -> None:
    with serve(max_frame_bytes=1024) as sidecar:
        settings = settings_of(sidecar.name)
        store = provider_of(settings=settings).open(0)
        for number in range(100):
            store.put("a", number, 1)
        store.put("a" * 2000, 1, 1)
        with pytest.raises(Py4JJavaError) as caught:
            store.commit()
        assert "is longer than the sidecar" in str(caught.value)
        other = provider_of(tmp_path / "other", settings=settings)
        store = other.open(0)
        store.put("b", 1, 1)
        first = store.commit()
        fresh = provider_of(tmp_path / "other", settings=settings)
        assert fresh.open(1, first).all() == [("b", 1, 1)]


def test_a_wrong_token_is_said_and_not_shown(provider_of: Any, serve: Serve) -> None:
    with serve() as sidecar:
        wrong = settings_of(sidecar.name, sidecar_token="env:CKPT_TEST_OTHER_TOKEN")
        said = said_by(provider_of(settings=wrong))
    assert "wrong token" in said
    assert "ckpt.sidecar.token" in said
    assert "another one" not in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sidecar": "127.0.0.1"}, "HOST:PORT"),
        ({"sidecar": "127.0.0.1:65536"}, "with a port up to 65535"),
        ({"sidecar": "127.0.0.1:1"}, "needs spark.sql.streaming.stateStore.ckpt.sidecar.token"),
        ({"sidecar": "127.0.0.1:1", "sidecar.token": "hunter2"}, "holds a token, which Spark shows"),
        ({"sidecar": "127.0.0.1:1", "sidecar.token": "env:CKPT_NOT_SET"}, "CKPT_NOT_SET is not set"),
        ({"timeout": "soon"}, "a time such as 120s"),
        ({"address": "redis://ada:hunter2@127.0.0.1:1/0"}, "holds a secret, which Spark shows"),
        ({"address": "fsspec+s3://bucket/path?fs.secret=hunter2"}, "holds a secret, which Spark shows"),
        (
            {
                "address": "redis://ada:hunter2@h/0",
                "sidecar": "127.0.0.1:1",
                "sidecar.token": "env:CKPT_TEST_TOKEN",
            },
            "holds a secret, which Spark shows",
        ),
    ],
)
def test_settings_that_cannot_work(provider_of: Any, settings: dict[str, str], said: str) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        provider_of(settings=settings)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "log:///var/ckpt",
        "log:///var/ckpt?segment_bytes=1MiB",
        "log:///var/a:b@c",
        "redis://host:6379/0",
        "redis://ada@host:6379/0",
        "redis://ada:hush@host:6379/0",
        "redis://:hush@host",
        "redis://ada:x?hush@host/0",
        "redis://ada:hu\nsh@host/0",
        "redis://ada@host/0?password_file=/run/secrets/redis",
        "redis://ada@host/0?password_env=REDIS_PASSWORD",
        "redis://ada@host/0?password=hush",
        "redis://ada@host/0?pass%77ord=hush",
        "redis://ada@host/0?PASSWORD=hush",
        "redis://host/0?tls_key_file=/a",
        "fsspec+s3://bucket/path?fs.secret=hush",
        "fsspec+s3://bucket/path?fs.token=",
        'fsspec+s3://bucket/path?fs.client_kwargs={"aws_secret_access_key":"hush"}',
        "fsspec+s3://bucket/path?fs.client_kwargs=%20%7B%22Token%22:%22hush%22%7D",
        'fsspec+s3://bucket/path?fs.client_kwargs={"region_name":"eu"}',
        "fsspec+gs://bucket/path?fs.project=token",
        "env:CKPT_SPARK_ADDRESS",
    ],
)
def test_provider_and_python_find_secrets_in_the_same_addresses(spark: SparkSession, text: str) -> None:
    assert spark._jvm.ckpt.spark.wire.Settings.holdsASecret(text) == _holds_a_secret(text)


def test_nobody_is_there(provider_of: Any) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{free.getsockname()[1]}"
        said = said_by(provider_of(settings=settings_of(name)))
    assert f"no sidecar answers at {name}" in said
    assert f"ckpt serve ADDRESS --listen {name}" in said
    assert "there is no host" in said_by(provider_of(settings=settings_of("nowhere.invalid:7077")))


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Somebody who greets with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):
                connection.recv(HELLO.size)
                connection.sendall(answer)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def test_what_is_no_sidecar(provider_of: Any) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as name:
        assert "as no sidecar does" in said_by(provider_of(settings=settings_of(name)))


def test_a_sidecar_of_another_version(provider_of: Any) -> None:
    body = struct.pack("<HIH", 2, 1 << 20, 0)
    with answering(HEAD.pack(len(body) + 9, 0, 0) + body) as name:
        said = said_by(provider_of(settings=settings_of(name)))
    assert "speaks version 2 of the protocol, and this provider version 1" in said
