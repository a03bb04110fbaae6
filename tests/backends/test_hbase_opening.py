"""Opening HBase: the table is made once and well, mistakes are named, TLS works; memory stays bounded."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import happybase
import pytest

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.dev import TlsFiles, fleet, ports
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.hbase import HBaseBackend


@pytest.fixture
def server(dev_server: Callable[[str], str]) -> tuple[str, int]:
    """Where the Thrift server listens."""
    host, _, port = parse_address(dev_server("hbase")).location.partition("/")[0].partition(":")
    return host, int(port)


@pytest.fixture
def driver(server: tuple[str, int]) -> Iterator[happybase.Connection]:
    connection = happybase.Connection(*server, timeout=60_000)
    yield connection
    connection.close()


@pytest.fixture
def new_table(driver: happybase.Connection) -> Iterator[str]:
    """The name of a table that does not exist yet, and does not afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    if name.encode() in driver.tables():
        driver.delete_table(name, disable=True)


def test_a_table_is_made_by_many_at_once_with_the_right_options(
    server: tuple[str, int], new_table: str, driver: happybase.Connection
) -> None:
    address = f"hbase://{server[0]}:{server[1]}/{new_table}?compression=gz"

    def write(number: int) -> None:
        with ckpt.open_backend(address) as backend:
            backend.put_many("words", {b"%d" % number: b"1"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    with ckpt.open_backend(address) as backend:
        assert sorted(dict(backend.scan("words"))) == [b"0", b"1", b"2", b"3"]
    families = driver.table(new_table).families()
    assert {name: family["max_versions"] for name, family in families.items()} == {
        b"data": 5,
        b"cells": 2**31 - 1,
        b"meta": 1,
    }
    for family in families.values():
        assert family["bloom_filter_type"] == b"ROW"
        assert family["block_cache_enabled"]
        assert family["compression"] == b"GZ"


def test_a_table_that_would_forget_checkpoints_is_refused(
    server: tuple[str, int], new_table: str, driver: happybase.Connection
) -> None:
    driver.create_table(new_table, {"data": {"max_versions": 5}, "cells": {}, "meta": {}})
    with pytest.raises(ConfigError, match=r"family 'cells' has to keep .* alter"):
        ckpt.open_backend(f"hbase://{server[0]}:{server[1]}/{new_table}")


def test_a_namespace_of_hbase_that_is_not_there_is_named(server: tuple[str, int]) -> None:
    with pytest.raises(ConfigError, match="create_namespace"):
        ckpt.open_backend(f"hbase://{server[0]}:{server[1]}/nowhere:table")


def test_who_only_reads_makes_nothing(
    server: tuple[str, int], hbase_table: str, driver: happybase.Connection
) -> None:
    with pytest.raises(ConfigError, match="there is no store in table 'test_nowhere'"):
        ckpt.open_backend(f"hbase://{server[0]}:{server[1]}/test_nowhere?mode=read")
    assert b"test_nowhere" not in driver.tables()
    prefix = uuid.uuid4().hex
    with ckpt.open_backend(hbase_table):
        pass
    with pytest.raises(ConfigError, match="check the address and its prefix"):
        ckpt.open_backend(hbase_table, prefix=prefix, mode="read")
    with ckpt.open_backend(hbase_table, prefix=prefix) as backend:
        backend.put_many("words", {b"be": b"2"})
        with ckpt.open_backend(hbase_table, prefix=prefix, mode="read") as reader:
            assert dict(reader.scan("words")) == {b"be": b"2"}


def test_the_address_of_a_backend_opens_it_again(hbase_table: str) -> None:
    with ckpt.open_backend(hbase_table, prefix=f"ä/&?{uuid.uuid4().hex}", timeout_s=20.0) as backend:
        backend.put_many("words", {b"be": b"2"})
        assert backend.address.startswith(hbase_table)
        with ckpt.open_backend(backend.address) as again:
            assert dict(again.scan("words")) == {b"be": b"2"}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hbase://", "no host can be read"),
        ("hbase://host:port/table", "no host can be read"),
        ("hbase://user:secret@host:9090/table", "no user and no password"),
        ("hbase://host:99999/table", "no host can be read"),
        ("hbase://one,two/table", "one Thrift server"),
        ("hbase://host:9090/a b", "no name of an HBase table"),
        (
            "hbase://host:9090/table?time_out_s=1",
            "hbase has no option 'time_out_s'; did you mean 'timeout_s'",
        ),
        ("hbase://host:9090/table?transport=frame", "is one of buffered, framed"),
        ("hbase://host:9090/table?connections=0", "connections is a whole number from 1"),
        ("hbase://host:9090/table?tls_ca=/ca.pem", "need tls=true"),
        ("hbase://host:9090/table?tls=true&tls_key=/key.pem", "give both"),
        ("hbase://host:9090/table?tls=true&tls_ca=/no/such.pem", "tls_ca /no/such.pem cannot be used"),
        (f"hbase://host:9090/table?prefix={'p' * 300}", "at most 255"),
    ],
)
def test_mistakes_in_an_address_are_named(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ckpt.open_backend(address)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_named() -> None:
    port = ports.free_port()
    with pytest.raises(BackendUnavailableError, match=rf"HBase at 127.0.0.1:{port} cannot be reached"):
        ckpt.open_backend(f"hbase://127.0.0.1:{port}/table?retry_s=0.2")


def test_a_missing_driver_is_one_sentence() -> None:
    code = """
import sys
sys.modules["happybase"] = None
import ckpt
try:
    ckpt.open_backend("hbase://host:9090/table")
except ckpt.ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install it with: pip install 'ckpt[hbase]'" in ran.stdout


# -- other ways to speak -------------------------------------------------------------------------


@pytest.fixture
def framed_server(server: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """A second Thrift server of the shared HBase, which speaks the other transport and protocol."""
    shared = fleet.shared("hbase")
    port = ports.free_port()
    command = [str(port) if word == str(server[1]) else word for word in shared._commands()["thrift"]]
    process = subprocess.Popen(
        [*command, "--framed", "--compact"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield server[0], port
    process.kill()
    process.wait()


def test_framed_transport_and_compact_protocol(
    framed_server: tuple[str, int], server: tuple[str, int], hbase_table: str
) -> None:
    host, port = framed_server
    table = hbase_table.rpartition("/")[2]
    options = {"prefix": uuid.uuid4().hex, "transport": "framed", "protocol": "compact", "retry_s": 60}
    with ckpt.open_backend(f"hbase://{host}:{port}/{table}", **options) as backend:
        backend.put_many("words", {b"be": b"2", b"big": b"b" * (3 << 20)})
        assert sorted(dict(backend.scan("words"))) == [b"be", b"big"]
        with ckpt.open_backend(hbase_table, prefix=options["prefix"]) as other:
            assert other.get_many("words", [b"be"]) == {b"be": b"2"}
    # A client that frames differently would wait for ever; here it is told.
    with pytest.raises(BackendUnavailableError, match=r"transport and protocol|cannot be reached"):
        ckpt.open_backend(f"hbase://{server[0]}:{server[1]}/{table}?transport=framed&timeout_s=0.5&retry_s=0")


class TlsProxy:
    """Ends TLS in front of a server, as stunnel or HAProxy would; asks for a certificate of the client."""

    def __init__(self, upstream: tuple[str, int], context: ssl.SSLContext) -> None:
        self._upstream, self._context = upstream, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tls-proxy", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="tls-link", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with (
                self._context.wrap_socket(client, server_side=True) as near,
                socket.create_connection(self._upstream) as far,
            ):
                back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
                back.start()
                self._copy(near, far)
                back.join()
        except OSError:
            client.close()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()


def test_tls_with_certificates_of_both_sides(
    server: tuple[str, int], hbase_table: str, tls_files: Callable[[str], TlsFiles]
) -> None:
    client, front = tls_files("client"), tls_files("server")
    ours, theirs = client.certificate, front.authority
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(front.certificate)
    context.load_verify_locations(client.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    proxy = TlsProxy(server, context)
    address = f"hbase://127.0.0.1:{proxy.port}/{hbase_table.rpartition('/')[2]}?retry_s=0&timeout_s=5"
    try:
        options = {"prefix": uuid.uuid4().hex, "tls": True, "tls_ca": theirs, "tls_cert": ours}
        with ckpt.open_backend(address, **options) as backend:
            backend.put_many("words", {b"be": b"2", b"big": b"b" * (3 << 20)})
            for _ in range(3):
                assert sorted(dict(backend.scan("words"))) == [b"be", b"big"]
            assert isinstance(backend, HBaseBackend)
            with ckpt.open_backend(backend.address) as again:
                assert again.get_many("words", [b"be"]) == {b"be": b"2"}
        with pytest.raises(ConfigError, match=r"certificate of .* is not trusted .* tls_ca"):
            ckpt.open_backend(address, tls=True)
        with pytest.raises(ckpt.CkptError, match=r"TLS connection .* asks for a certificate of the client"):
            ckpt.open_backend(address, tls=True, tls_ca=theirs)
        with pytest.raises(BackendUnavailableError):
            ckpt.open_backend(address)
    finally:
        proxy.close()


# -- memory --------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_keys(hbase_table: str) -> None:
    def peak_bytes(keys: int) -> int:
        with ckpt.open_backend(hbase_table, prefix=uuid.uuid4().hex) as backend:
            for start in range(0, keys, 2000):
                backend.put_many("words", {b"key-%06d" % n: b"v" * 200 for n in range(start, start + 2000)})
            backend.commit("store", 1, {b"key-%06d" % n: b"v" * 200 for n in range(keys)})
            tracemalloc.start()
            try:
                for namespace in ("words", "store"):
                    assert sum(1 for _ in backend.scan(namespace)) == keys
                backend.drop("words")
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    small, large = peak_bytes(2000), peak_bytes(10_000)
    assert large < 1.5 * small + (1 << 20)


def test_a_scan_of_large_values_holds_a_few_at_a_time(hbase_table: str) -> None:
    with ckpt.open_backend(hbase_table, prefix=uuid.uuid4().hex) as backend:
        for number in range(16):
            backend.put_many("words", {b"%02d" % number: bytes(2 << 20)})
        tracemalloc.start()
        try:
            assert sum(len(value) for _, value in backend.scan("words")) == 32 << 20
            assert tracemalloc.get_traced_memory()[1] < 24 << 20
        finally:
            tracemalloc.stop()
