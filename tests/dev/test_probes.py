"""A probe takes nothing for an answer that is none, whatever is at the other end."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.dev import probes

PROBES = {
    "redis": probes.redis_answers,
    "redis with TLS": lambda *at, **options: probes.redis_answers(*at, tls=True, **options),
    "cassandra": probes.cassandra_answers,
    "cassandra with a password": lambda *at, **options: probes.cassandra_answers(
        *at, user="ada", password="secret", **options
    ),
    "hbase": probes.hbase_answers,
    "s3": probes.http_answers,
}


@contextlib.contextmanager
def speaker(*says: bytes) -> Iterator[tuple[str, int]]:
    """A server that says one thing after each thing that it hears, and then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.settimeout(10)
            for word in says:
                connection.recv(1 << 16)
                connection.sendall(word)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def frame(opcode: int, body: bytes = b"") -> bytes:
    return struct.pack(">BBhBI", 0x84, 0, 0, opcode, len(body)) + body


def thrift(kind: int, body: bytes) -> bytes:
    name = b"getTableNames"
    return struct.pack(">HHI", 0x8001, kind, len(name)) + name + struct.pack(">I", 1) + body


NO_TABLES = b"\x0f\x00\x00\x0b\x00\x00\x00\x00\x00"
IO_ERROR = b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("name", "says", "expected"),
    [
        ("redis", [b"+PONG\r\n"], True),
        ("redis", [b"-NOAUTH Authentication required.\r\n"], True),
        ("redis", [b"-LOADING Redis is loading the dataset in memory\r\n"], False),
        ("redis", [b"HTTP/1.1 400 Bad Request\r\n"], False),
        ("cassandra", [frame(0x06, b"\0\0")], True),
        ("cassandra", [frame(0x00, b"\0\0\0\0")], False),
        ("cassandra with a password", [frame(0x06), frame(0x03), frame(0x10)], True),
        ("cassandra with a password", [frame(0x06), frame(0x03), frame(0x00)], False),
        ("cassandra with a password", [frame(0x06), frame(0x02)], False),
        ("hbase", [thrift(2, NO_TABLES)], True),
        ("hbase", [thrift(2, IO_ERROR)], False),
        ("hbase", [thrift(3, NO_TABLES)], False),
        ("s3", [b"HTTP/1.1 403 Forbidden\r\n\r\n"], True),
        ("s3", [b"+PONG\r\n"], False),
    ],
)
def test_what_is_an_answer(name: str, says: list[bytes], expected: bool) -> None:
    with speaker(*says) as at:
        assert PROBES[name](*at) is expected


@pytest.mark.parametrize("name", PROBES)
@settings(max_examples=30, deadline=None)
@given(garbage=st.binary(max_size=64))
def test_garbage_is_no_answer(name: str, garbage: bytes) -> None:
    before = [frame(0x06), frame(0x03)] if "password" in name else []
    with speaker(*before, garbage) as at:
        assert PROBES[name](*at) is False


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_silence_is_no_answer(probe: Callable[..., bool]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert probe(*silent.getsockname(), timeout_s=0.1) is False


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_nobody_is_no_answer(probe: Callable[..., bool]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        at = gone.getsockname()
    assert probe(*at) is False
