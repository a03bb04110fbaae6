"""Whoever breaks the rules is cut and costs nothing, and no other connection is disturbed."""

from __future__ import annotations

import os
import random
import socket
import stat
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ckpt
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar import Door, Sidecar, SidecarClient, SidecarOptions, UnixListener
from ckpt.sidecar.frames import (
    HEAD,
    MAGIC,
    ErrorKind,
    ProtocolError,
    RequestCode,
    ResponseStatus,
    decode_error,
    encode_hello,
    frame,
)
from tests.effort import effort

Start, Connect = Callable[..., Sidecar], Callable[..., SidecarClient]
OpenRaw = Callable[..., Any]


def told(answer: tuple[int, int, bytes]) -> tuple[ResponseStatus, str]:
    """Status and message of an error frame."""
    return ResponseStatus(answer[0]), str(decode_error(memoryview(answer[2])))


def bytes_of(buffers: list[Any]) -> bytes:
    return b"".join(bytes(b) for b in buffers)


def kind(answer: tuple[int, int, bytes]) -> ErrorKind:
    return ErrorKind(struct.unpack_from("<H", answer[2])[0])


@pytest.fixture
def sidecar(start: Start) -> Sidecar:
    """One with a small frame limit and little patience."""
    return start(max_frame_bytes=1 << 20, frame_timeout_s=0.3)


@pytest.fixture
def bystander(sidecar: Sidecar, connect: Connect) -> SidecarClient:
    """A good client, connected before and asked after."""
    client = connect(sidecar)
    client.commit("store", 1, {b"k": b"v"})
    return client


@pytest.fixture(autouse=True)
def _nobody_else_noticed(request: pytest.FixtureRequest) -> Any:
    if "bystander" not in request.fixturenames:
        yield
        return
    client = request.getfixturevalue("bystander")
    yield
    assert dict(client.scan("store")) == {b"k": b"v"}
    assert client.stats()["commits"] == 1


# -- hello -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 4, bytes(64)]
)
def test_another_protocol_is_told_so_and_cut(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw, hello: bytes
) -> None:
    connection = raw(sidecar, hello=None)
    connection.say(hello)
    status, message = told(connection.answer())
    assert status is ResponseStatus.FATAL
    assert "another protocol" in message
    assert connection.ends()
    assert bystander.stats()["refused"] == 1


def test_a_token_that_is_too_long_is_not_even_read(sidecar: Sidecar, raw: OpenRaw) -> None:
    connection = raw(sidecar, hello=None)
    connection.say(MAGIC + struct.pack("<HHH", 1, 0, 1025))
    assert kind(connection.answer()) is ErrorKind.PROTOCOL
    assert connection.ends()


def test_a_token_on_a_unix_socket_must_be_empty(sidecar: Sidecar, connect: Connect) -> None:
    with pytest.raises(ConfigError, match="wrong token"):
        connect(sidecar, token="guess").ping()


# -- requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HEAD.pack(8, 1, 7)[:13], "too short"),
        (HEAD.pack(0, 0, 0), "too short"),
        (HEAD.pack(9, 0, 7), "no operation 0"),
        (HEAD.pack(9, 200, 7), "no operation 200"),
        (HEAD.pack(0xFFFFFFFF, RequestCode.COMMIT, 7), "over the limit"),
        (HEAD.pack((1 << 20) + 1, RequestCode.COMMIT, 7), "over the limit"),
        (HEAD.pack(9 + (256 << 10) + 1, RequestCode.PING, 7), "over the limit"),
        (HEAD.pack(10, RequestCode.PING, 7) + b"x", "too many"),
        (HEAD.pack(13, RequestCode.DROP, 7) + b"\xff\xff\x00\x00", "ends behind"),
        (HEAD.pack(13, RequestCode.DROP, 7) + b"\x02\x00\xff\xfe", "not UTF-8"),
    ],
)
def test_a_frame_that_breaks_the_rules_is_told_why_and_cut(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw, data: bytes, why: str
) -> None:
    connection = raw(sidecar)
    connection.say(data)
    answer = connection.answer()
    assert kind(answer) is ErrorKind.PROTOCOL
    assert told(answer)[0] is ResponseStatus.FATAL
    assert why in told(answer)[1]
    assert connection.ends()


def test_an_announced_length_costs_no_memory(start: Start, raw: OpenRaw) -> None:
    sidecar = start(max_frame_bytes=0xFFFFFFFF)
    before = _resident_bytes()
    for _ in range(4):
        raw(sidecar).say(HEAD.pack(0xFFFFFFFF, RequestCode.COMMIT, 7) + b"only a little of it")
    while sidecar.stats()["connections"] < 4:
        pass
    assert _resident_bytes() - before < 1 << 28


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_lifeline_that_asks_for_something_is_cut(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw
) -> None:
    connection = raw(sidecar, hello=encode_hello(lifeline=True))
    connection.say(bytes_of(frame(RequestCode.PING, 1)))
    assert "carries no requests" in told(connection.answer())[1]
    assert connection.ends()
    while bystander.stats()["lifelines"]:
        pass


@given(st.binary(max_size=300))
@settings(
    deadline=None, max_examples=effort(20, 300), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_garbage_after_the_hello_never_harms(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw, garbage: bytes
) -> None:
    connection = raw(sidecar)
    connection.say(garbage)
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.ends()
    connection.socket.close()
    bystander.ping()


@pytest.mark.parametrize("seed", range(3))
def test_frames_with_random_bodies_never_harm(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        connection = raw(sidecar)
        operation = rng.choice([o for o in RequestCode if o is not RequestCode.DROP])
        body = rng.randbytes(rng.randrange(40))
        connection.say(bytes_of(frame(operation, rng.getrandbits(64), [body])))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.ends()
        connection.socket.close()


# -- slow and stuck peers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x20",
        HEAD.pack(100, RequestCode.COMMIT, 1),
        HEAD.pack(100_000, RequestCode.COMMIT, 1) + b"x" * 70_000,
    ],
)
def test_half_a_frame_is_cut_in_the_end(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw, data: bytes
) -> None:
    connection = raw(sidecar)
    connection.say(data)
    assert connection.ends()
    assert bystander.stats()["slow"] == 1


def test_a_byte_now_and_then_does_not_keep_a_frame_alive(
    sidecar: Sidecar, bystander: SidecarClient, raw: OpenRaw
) -> None:
    connection = raw(sidecar)
    connection.say(HEAD.pack(9 + 1000, RequestCode.COMMIT, 1))
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            connection.say(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    assert connection.ends()
    stop.set()
    thread.join()
    assert bystander.stats()["slow"] == 1


def test_a_client_that_takes_no_answer_is_cut(sidecar: Sidecar, connect: Connect, raw: OpenRaw) -> None:
    client = connect(sidecar)
    for version in range(1, 11):
        client.commit("store", version, {b"%02d-%04d" % (version, n): b"v" * 5000 for n in range(150)})
    connection = raw(sidecar)
    body = struct.pack("<H", 5) + b"store" + b"\xff" * 8 + b"\0\0" + struct.pack("<I", 1 << 16)
    connection.say(bytes_of(frame(RequestCode.LOAD, 1, [body])))
    while client.stats()["slow"] < 1:
        pass
    assert sum(1 for _ in client.scan("store")) == 1500


def test_silence_between_frames_is_no_fault(sidecar: Sidecar, raw: OpenRaw) -> None:
    connection = raw(sidecar)
    threading.Event().wait(1.0)  # three times the patience inside a frame
    connection.say(bytes_of(frame(RequestCode.PING, 5)))
    assert connection.answer()[:2] == (0, 5)


def test_who_says_nothing_holds_no_place_for_long(folder: Path, connect: Connect, raw: OpenRaw) -> None:
    with Sidecar(
        ckpt.open_backend("memory://"),
        UnixListener(str(folder / "s")),
        SidecarOptions(max_waiting=2),
        door=Door(timeout_s=0.5),
    ) as sidecar:
        silent = [raw(sidecar, hello=None) for _ in range(5)]
        connect(sidecar).ping()
        assert all(connection.ends() for connection in silent)


def test_a_crowd_that_comes_at_once_is_let_in(start: Start, connect: Connect) -> None:
    client = connect(start(max_waiting=4))
    together = threading.Barrier(100)

    def ping(_: int) -> None:
        together.wait(30)
        client.ping()

    with ThreadPoolExecutor(100) as pool:
        list(pool.map(ping, range(100)))


def test_a_host_without_threads_or_memory_loses_a_connection_and_not_the_sidecar(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar = start()
    with monkeypatch.context() as scarce:

        def no_thread(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        scarce.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(BackendUnavailableError):
            connect(sidecar).ping()
    while "can't start new thread" not in caplog.text:  # said by a thread of the sidecar
        pass
    with monkeypatch.context() as scarce:

        def no_memory(*_: Any, **__: Any) -> None:
            raise MemoryError

        scarce.setattr("ckpt.sidecar.wire.Wire.wait", no_memory)
        with pytest.raises(BackendUnavailableError):
            connect(sidecar).ping()
    while "nobody foresaw" not in caplog.text:
        pass
    connect(sidecar).ping()
    while sidecar.stats()["connections_open"] != 1:
        pass


def test_connections_are_bounded(start: Start, connect: Connect, raw: OpenRaw) -> None:
    sidecar = start(max_connections=3)
    held = [raw(sidecar) for _ in range(3)]
    with pytest.raises(BackendUnavailableError, match="3 connections already"):
        connect(sidecar).ping()
    held[0].socket.close()
    while sidecar.stats()["connections_open"] == 3:
        pass
    connect(sidecar).ping()


def test_a_client_believes_no_server_that_announces_too_much(folder: Path, connect: Connect) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "liar"))
        server.listen()

        def lie() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(HEAD.pack(0xFFFFFFFF, 0, 0))

        thread = threading.Thread(target=lie)
        thread.start()
        with pytest.raises(ProtocolError, match="is it a sidecar"):
            connect(str(folder / "liar")).ping()
        thread.join()


# -- who may connect ---------------------------------------------------------------------------------


def test_the_socket_and_its_folder_are_the_users_alone(folder: Path) -> None:
    listener = UnixListener(str(folder / "new" / "s.sock"))
    try:
        assert stat.S_IMODE(os.stat(listener.path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(folder / "new").st_mode) == 0o700
    finally:
        listener.stop()
    assert not os.path.exists(listener.path)


def test_nobody_can_connect_before_the_mode_is_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chmod, seen = os.chmod, []

    def try_to_connect(path: str, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as early:
            seen.append(early.connect_ex(path))
        chmod(path, mode)

    monkeypatch.setattr(os, "chmod", try_to_connect)
    UnixListener(str(folder / "s.sock")).stop()
    assert seen[0] != 0


def test_another_user_is_not_let_in(start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar = start()
    connect(sidecar).ping()
    # As if the sidecar ran as somebody else, who is not root: then we are the other user.
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr("ckpt.sidecar.listeners._ROOT", 54322)
    with pytest.raises(BackendUnavailableError):
        connect(sidecar).ping()
    assert sidecar.stats()["refused"] == 1


def test_the_operating_system_keeps_other_users_out(start: Start) -> None:
    sidecar = start()
    os.chmod(os.path.dirname(sidecar.name), 0o755)
    assert stat.S_IMODE(os.stat(sidecar.name).st_mode) == 0o600
    if os.geteuid() == 0:  # only root can become somebody else for a moment
        os.seteuid(65534)
        try:
            with socket.socket(socket.AF_UNIX) as other, pytest.raises(PermissionError):
                other.connect(sidecar.name)
        finally:
            os.seteuid(0)


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    (folder / "open").mkdir()
    os.chmod(folder / "open", 0o777)
    with pytest.raises(ConfigError, match="mode 0700"):
        UnixListener(str(folder / "open" / "s.sock"))
    os.chmod(folder / "open", 0o1777)
    UnixListener(str(folder / "open" / "s.sock")).stop()


def test_what_is_no_socket_is_not_replaced(folder: Path) -> None:
    (folder / "precious").write_text("data")
    with pytest.raises(ConfigError, match="is no socket"):
        UnixListener(str(folder / "precious"))
    assert (folder / "precious").read_text() == "data"
    with pytest.raises(ConfigError, match="shorter"):
        UnixListener(str(folder / ("x" * 120)))
