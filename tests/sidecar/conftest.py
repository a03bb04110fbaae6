"""A sidecar in this process with a client; raw sockets that say what no client would; sidecar processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.sidecar import Sidecar, SidecarClient, SidecarOptions, UnixListener
from ckpt.sidecar.frames import HEAD, encode_hello

Start = Callable[..., Sidecar]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: that of a socket has at most 107 bytes."""
    made = tempfile.mkdtemp(prefix="ckpt-")
    yield Path(made)
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a sidecar over a backend or an address; it ends with the test."""
    with ExitStack() as stack:

        def start_one(backend: ckpt.Backend | str = "memory://", **options: Any) -> Sidecar:
            opened = ckpt.open_backend(backend) if isinstance(backend, str) else backend
            listener = UnixListener(f"{folder}/sidecar-{len(os.listdir(folder))}.sock")
            return stack.enter_context(Sidecar(opened, listener, SidecarOptions(**options)))

        yield start_one


@pytest.fixture
def connect() -> Iterator[Callable[..., SidecarClient]]:
    """Clients that are closed with the test."""
    with ExitStack() as stack:

        def connect_one(to: Sidecar | str, **options: Any) -> SidecarClient:
            name = to if isinstance(to, str) else to.name
            return stack.enter_context(SidecarClient(name, timeout_s=30, **options))

        yield connect_one


@pytest.fixture
def client(start: Start, connect: Callable[..., SidecarClient]) -> SidecarClient:
    """A client of a sidecar in memory."""
    return connect(start())


class Raw:
    """A connection that says exactly what it is told to."""

    def __init__(self, name: str, *, hello: bytes | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(name)
        if hello is not None:
            self.say(hello)
            assert self.answer()[0] == 0

    def say(self, data: bytes) -> None:
        """Send bytes, as far as the other side still takes them."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def answer(self) -> tuple[int, int, bytes]:
        """Status, request id and body of the next frame; ConnectionError at the end."""
        length, status, request_id = HEAD.unpack(self._exactly(HEAD.size))
        return status, request_id, self._exactly(length - HEAD.size + 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise ConnectionError("the end")
            data += got
        return data

    def ends(self) -> bool:
        """Whether the other side closes the connection, whatever it says before."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


@pytest.fixture
def raw() -> Iterator[Callable[..., Raw]]:
    """Raw connections, let in unless `hello` says otherwise."""
    opened: list[Raw] = []

    def open_one(to: Sidecar, *, hello: bytes | None = encode_hello()) -> Raw:
        opened.append(Raw(to.name, hello=hello))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.socket.close()


class Process:
    """A `ckpt serve` of its own."""

    def __init__(self, *args: str, env: dict[str, str], stdin_line: str | None = None) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "ckpt", "serve", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )
        if stdin_line is not None:
            self.stdin.write(stdin_line + "\n")
            self.stdin.flush()

    @property
    def stdin(self) -> Any:
        """Its standard input."""
        return self.popen.stdin

    def ready(self) -> str:
        """Where it is, once it says so."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            _, errors = self.popen.communicate(timeout=30)
            raise AssertionError(f"no READY: {errors}")
        word, _, name = line.strip().partition(" ")
        assert word == "READY"
        return name

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said on standard error, once it has ended."""
        _, errors = self.popen.communicate(timeout=60)
        return self.popen.returncode, errors

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.popen.wait(60)


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Process]]:
    """Start `ckpt serve` processes; those that still run are killed with the test."""
    started: list[Process] = []
    environment = {"XDG_RUNTIME_DIR": str(folder)}

    def serve_one(*args: str, env: dict[str, str] | None = None, **more: Any) -> Process:
        started.append(Process(*args, env={**environment, **(env or {})}, **more))
        return started[-1]

    yield serve_one
    for process in started:
        if process.popen.poll() is None:
            process.kill()
        for stream in (process.popen.stdin, process.popen.stdout, process.popen.stderr):
            if stream is not None:
                stream.close()
