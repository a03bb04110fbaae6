"""Cassandra behind TLS: who is at the other end is checked, and so is who asks."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import ckpt
from ckpt.config import parse_address
from ckpt.errors import BackendUnavailableError, ConfigError


def certificate(folder: Path, name: str, host: str = "127.0.0.1") -> str:
    """A PEM file with a key and a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(pem + signed.public_bytes(serialization.Encoding.PEM))
    return str(path)


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
def terminated(cassandra_keyspace: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a server that speaks TLS, and its certificate; it asks who is there."""
    host, _, port = parse_address(cassandra_keyspace).location.partition("/")[0].partition(":")
    trusted = certificate(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted)
    context.load_verify_locations(certificate(tmp_path, "client"))
    context.verify_mode = ssl.CERT_REQUIRED
    front = Terminator(host, int(port), context)
    yield f"cassandra://127.0.0.1:{front.port}/{cassandra_keyspace.rpartition('/')[2]}?tls=true", trusted
    front.close()


def test_both_ends_are_checked(terminated: tuple[str, str], tmp_path: Path) -> None:
    address, trusted = terminated
    mine = str(tmp_path / "client.pem")
    options = {"timeout_s": 5, "retry_s": 0}
    with ckpt.open_backend(address, tls_ca=trusted, tls_cert=mine, prefix="tls", **options) as backend:
        backend.put_many("words", {b"be": bytes(200_000)})
        assert backend.get_many("words", [b"be"]) == {b"be": bytes(200_000)}
    for other in ({}, {"tls_ca": mine}):
        with pytest.raises(ConfigError, match=r"certificate of .* is not trusted"):
            ckpt.open_backend(address, tls_cert=mine, **other, **options)
    with pytest.raises((ConfigError, BackendUnavailableError), match=r"TLS|cannot be reached|no answer"):
        ckpt.open_backend(address, tls_ca=trusted, **options)


def test_a_certificate_for_another_host_is_refused_unless_told_otherwise(
    cassandra_keyspace: str, tmp_path: Path
) -> None:
    host, _, port = parse_address(cassandra_keyspace).location.partition("/")[0].partition(":")
    trusted = certificate(tmp_path, "server", host="127.0.0.9")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted)
    front = Terminator(host, int(port), context)
    address = f"cassandra://127.0.0.1:{front.port}/{cassandra_keyspace.rpartition('/')[2]}"
    options = {"tls": True, "tls_ca": trusted, "timeout_s": 5, "retry_s": 0}
    try:
        with pytest.raises(ConfigError, match="is for another host"):
            ckpt.open_backend(address, **options)
        with ckpt.open_backend(address, tls_check_host=False, **options) as backend:
            assert backend.namespaces() == []
    finally:
        front.close()
