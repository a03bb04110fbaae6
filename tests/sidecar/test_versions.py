"""The highest version of the protocol that both sides know is spoken, whichever side is the newer one."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from ckpt.errors import ConfigError
from ckpt.sidecar import SidecarClient, client, frames
from ckpt.sidecar.frames import HELLO, MAGIC, ErrorKind, ResponseStatus, Welcome, frame
from tests.sidecar.conftest import Raw, Start

NOW = frames.PROTOCOL_VERSION
NEXT = NOW + 1


def answered(connection: Raw, version: int) -> tuple[int, int]:
    """The status and the first number of the answer to a hello with this version."""
    connection.say(HELLO.pack(MAGIC, version, 0, 0))
    status, request_id, body = connection.answer()
    assert request_id == 0
    return status, struct.unpack_from("<H", body)[0]


@pytest.mark.parametrize(("said", "spoken"), [(NOW, NOW), (NEXT, NOW), (0xFFFF, NOW)])
def test_a_newer_client_is_answered_with_our_version(
    start: Start, raw: Callable[..., Raw], said: int, spoken: int
) -> None:
    assert answered(raw(start(), hello=None), said) == (ResponseStatus.DONE, spoken)


@pytest.mark.parametrize(("said", "spoken"), [(NOW, NOW), (NEXT, NEXT), (NEXT + 1, NEXT)])
def test_an_older_client_is_answered_with_its_own(
    start: Start, raw: Callable[..., Raw], monkeypatch: pytest.MonkeyPatch, said: int, spoken: int
) -> None:
    monkeypatch.setattr(frames, "PROTOCOL_VERSION", NEXT)
    assert answered(raw(start(), hello=None), said) == (ResponseStatus.DONE, spoken)


def test_a_version_before_the_oldest_is_refused(start: Start, raw: Callable[..., Raw]) -> None:
    connection = raw(start(), hello=None)
    assert answered(connection, frames.OLDEST_VERSION - 1) == (ResponseStatus.FATAL, ErrorKind.PROTOCOL)
    assert connection.ends()


@contextmanager
def greeting_with(version: int, folder: object) -> Iterator[str]:
    """A server that answers every hello with that version, and nothing else."""
    name = f"{folder}/greeter.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()

    def greet() -> None:
        with closing(server), closing(server.accept()[0]) as connection:
            connection.recv(4096)
            connection.sendall(
                b"".join(frame(ResponseStatus.DONE, 0, Welcome(version, 1 << 20, "log:///x").encode()))
            )
            connection.recv(1)

    thread = threading.Thread(target=greet)
    thread.start()
    yield name
    thread.join(20)


def test_a_client_speaks_with_an_older_sidecar(folder: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PROTOCOL_VERSION", NEXT)
    with greeting_with(NOW, folder) as name, SidecarClient(name, timeout_s=20) as made, made.lifeline():
        pass


@pytest.mark.parametrize("version", [frames.OLDEST_VERSION - 1, NEXT])
def test_a_client_refuses_a_version_that_it_does_not_know(folder: object, version: int) -> None:
    refused = pytest.raises(ConfigError, match=f"speaks version {version} .* install the same ckpt")
    with greeting_with(version, folder) as name, SidecarClient(name, timeout_s=20) as made, refused:
        made.ping()
