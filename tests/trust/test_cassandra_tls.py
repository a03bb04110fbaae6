"""Cassandra behind TLS: who is at the other end is checked, and so is who asks."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.dev import TlsFiles
from ckpt.errors import BackendUnavailableError, ConfigError


class Terminator:
    """Ends TLS in front of a server, as Cassandra itself would with `client_encryption_options`."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._upstream, self._context = (host, port), context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ckpt-tls")
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(30)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
            await asyncio.gather(self._pump(reader, upstream_writer), self._pump(upstream_reader, writer))
        self._tasks.discard(task)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.1)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def client(tls_files: Callable[[str], TlsFiles]) -> TlsFiles:
    """The certificate of a client, which the server asks for."""
    return tls_files("client")


@pytest.fixture
def terminated(
    cassandra_keyspace: str, client: TlsFiles, tls_files: Callable[[str], TlsFiles]
) -> Iterator[tuple[str, str]]:
    """The address of a server that speaks TLS, and the authority of its certificate."""
    host, _, port = parse_address(cassandra_keyspace).location.partition("/")[0].partition(":")
    server = tls_files("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate)
    context.load_verify_locations(client.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    front = Terminator(host, int(port), context)
    keyspace = cassandra_keyspace.rpartition("/")[2]
    yield f"cassandra://127.0.0.1:{front.port}/{keyspace}?tls=true", server.authority
    front.close()


def test_both_ends_are_checked(terminated: tuple[str, str], client: TlsFiles) -> None:
    address, trusted = terminated
    mine = client.certificate
    options = {"timeout_s": 5, "retry_s": 0}
    with ckpt.open_backend(address, tls_ca=trusted, tls_cert=mine, prefix="tls", **options) as backend:
        backend.put_many("words", {b"be": bytes(200_000)})
        assert backend.get_many("words", [b"be"]) == {b"be": bytes(200_000)}
    for other in ({}, {"tls_ca": client.authority}):
        with pytest.raises(ConfigError, match=r"certificate of .* is not trusted"):
            ckpt.open_backend(address, tls_cert=mine, **other, **options)
    with pytest.raises((ConfigError, BackendUnavailableError), match=r"TLS|cannot be reached|no answer"):
        ckpt.open_backend(address, tls_ca=trusted, **options)


def test_a_certificate_for_another_host_is_refused_unless_told_otherwise(
    cassandra_keyspace: str, tls_files: Callable[..., TlsFiles]
) -> None:
    host, _, port = parse_address(cassandra_keyspace).location.partition("/")[0].partition(":")
    server = tls_files("server", host="127.0.0.9")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate)
    front = Terminator(host, int(port), context)
    address = f"cassandra://127.0.0.1:{front.port}/{cassandra_keyspace.rpartition('/')[2]}"
    options = {"tls": True, "tls_ca": server.authority, "timeout_s": 5, "retry_s": 0}
    try:
        with pytest.raises(ConfigError, match="is for another host"):
            ckpt.open_backend(address, **options)
        with ckpt.open_backend(address, tls_check_host=False, **options) as backend:
            assert backend.namespaces() == []
    finally:
        front.close()
