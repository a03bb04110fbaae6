"""An answer of the sidecar is the backend's: a round trip beside a bare socket that echoes as many bytes.

Server and client are threads of one process in both rows of a table, and the backend is in memory.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ckpt
from ckpt.sidecar import Sidecar, SidecarClient, UnixListener
from ckpt.sidecar.frames import HEAD
from ckpt.sidecar.requests import CommitRequest, GetRequest
from ckpt.types import Block
from ckpt_bench.stores import NAMESPACE
from tests.benchmarks.work import batches, one_batch

ROWS, VALUE_BYTES = 100, 100
PING = "sidecar: round trip with nothing in it"
COMMIT = f"sidecar: commit {ROWS} x {VALUE_BYTES} B, in memory"
GET = f"sidecar: get {ROWS} x {VALUE_BYTES} B, in memory"

Exchange = Callable[[bytes], bytes]
StartEcho = Callable[[int, bytes], Exchange]


@pytest.fixture
def client(folder: Path) -> Iterator[SidecarClient]:
    """A client of a sidecar that has answered once."""
    listener = UnixListener(str(folder / "ckpt.sock"))
    with Sidecar(ckpt.open_backend("memory://"), listener), SidecarClient(listener.path) as connected:
        connected.ping()
        yield connected


@pytest.fixture
def start_echo() -> Iterator[StartEcho]:
    """Starts a thread that takes requests of one length from a socket and gives each the same answer."""
    with ExitStack() as stack:

        def start(request_bytes: int, answer: bytes) -> Exchange:
            ours, theirs = socket.socketpair()

            def serve() -> None:
                with theirs:
                    while received(theirs, request_bytes):
                        theirs.sendall(answer)

            def exchange(request: bytes) -> bytes:
                ours.sendall(request)
                return received(ours, len(answer))

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join)
            stack.enter_context(ours)
            return exchange

        yield start


def received(end: socket.socket, size: int) -> bytes:
    """Exactly so many bytes, or none at the end."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = end.recv_into(view[at:])
        if not got:
            return b""
        at += got
    return bytes(data)


@pytest.mark.benchmark(group=PING)
def test_ping(benchmark: BenchmarkFixture, client: SidecarClient) -> None:
    benchmark(client.ping)
    assert client.stats()["connections"] == 1  # no answer was waited for in vain


@pytest.mark.benchmark(group=PING)
def test_echo_of_a_ping(benchmark: BenchmarkFixture, start_echo: StartEcho) -> None:
    head = bytes(range(HEAD.size))
    assert benchmark(start_echo(len(head), head), head) == head


@pytest.mark.benchmark(group=COMMIT)
def test_commit(benchmark: BenchmarkFixture, client: SidecarClient) -> None:
    following, versions = batches(records=ROWS, value_bytes=VALUE_BYTES), itertools.count(1)

    def commit() -> tuple[int, dict[bytes, bytes]]:
        version, rows = next(versions), next(following)
        client.commit(NAMESPACE, version, rows)
        return version, rows

    version, rows = benchmark(commit)
    assert client.get_many(NAMESPACE, rows, version=version) == rows


@pytest.mark.benchmark(group=COMMIT)
def test_commit_without_a_sidecar(benchmark: BenchmarkFixture) -> None:
    following, versions = batches(records=ROWS, value_bytes=VALUE_BYTES), itertools.count(1)
    with ckpt.open_backend("memory://") as backend:

        def commit() -> tuple[int, dict[bytes, bytes]]:
            version, rows = next(versions), next(following)
            backend.commit(NAMESPACE, version, rows)
            return version, rows

        version, rows = benchmark(commit)
        assert backend.get_many(NAMESPACE, rows, version=version) == rows


@pytest.mark.benchmark(group=COMMIT)
def test_echo_of_a_commit(benchmark: BenchmarkFixture, start_echo: StartEcho) -> None:
    rows = one_batch(records=ROWS, value_bytes=VALUE_BYTES)
    request = b"".join(CommitRequest(NAMESPACE, 1, None, "0" * 32, Block.of(rows.items()), ()).encode())
    answer = bytes(range(HEAD.size))
    assert benchmark(start_echo(len(request), answer), request) == answer


@pytest.mark.benchmark(group=GET)
def test_get(benchmark: BenchmarkFixture, client: SidecarClient) -> None:
    rows = one_batch(records=ROWS, value_bytes=VALUE_BYTES)
    client.commit(NAMESPACE, 1, rows)
    assert benchmark(client.get_many, NAMESPACE, list(rows)) == rows


@pytest.mark.benchmark(group=GET)
def test_get_without_a_sidecar(benchmark: BenchmarkFixture) -> None:
    rows = one_batch(records=ROWS, value_bytes=VALUE_BYTES)
    with ckpt.open_backend("memory://") as backend:
        backend.commit(NAMESPACE, 1, rows)
        assert benchmark(backend.get_many, NAMESPACE, list(rows)) == rows


@pytest.mark.benchmark(group=GET)
def test_echo_of_a_get(benchmark: BenchmarkFixture, start_echo: StartEcho) -> None:
    rows = one_batch(records=ROWS, value_bytes=VALUE_BYTES)
    request = b"".join(GetRequest(NAMESPACE, None, None, list(rows)).encode())
    answer = b"".join(rows) + b"".join(rows.values())
    assert benchmark(start_echo(len(request), answer), request) == answer
