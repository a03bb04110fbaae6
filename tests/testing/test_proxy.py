"""The proxy passes everything on unchanged, and breaks a connection in exactly the way it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.testing import TcpProxy

Connect = Callable[[], socket.socket]


class EchoServer:
    """Sends everything back, and says goodbye when it has read the end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._echo, args=(connection,)))
                self._threads[-1].start()

    def _echo(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                connection.sendall(data)
            connection.sendall(b"goodbye")

    def close(self) -> None:
        # Closing alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[TcpProxy]:
    with TcpProxy(*echo.address) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy: TcpProxy) -> Iterator[Connect]:
    """Opens connections through the proxy, which are closed at the end."""
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((proxy.host, proxy.port), timeout=10))


def exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        assert chunk, f"the end after {len(received)} of {count} bytes"
        received += chunk
    return received


def echoed(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return exactly(connection, len(data))


def is_silent(connection: socket.socket) -> bool:
    """Nothing comes for a while, and not the end either."""
    connection.settimeout(0.2)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)
    return False


def test_connections_pass_and_are_counted(proxy: TcpProxy, connect: Connect) -> None:
    one, other = connect(), connect()
    assert echoed(one, b"one") == b"one"
    assert echoed(other, b"other") == b"other"
    assert (proxy.connections, proxy.open_connections) == (2, 2)


def test_an_orderly_end_passes_in_both_directions(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert exactly(client, 17) == b"last wordsgoodbye"
    assert client.recv(1) == b""


def test_much_data_passes_while_nobody_reads(connect: Connect) -> None:
    client, data = connect(), bytes(range(256)) * (64 << 10)
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    assert exactly(client, len(data)) == data
    sender.join()


@settings(max_examples=20, deadline=None)
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=100_000), max_size=8), delay_s=st.sampled_from([0, 0.005])
)
def test_what_arrives_is_what_was_sent(chunks: list[bytes], delay_s: float) -> None:
    server = EchoServer()
    with TcpProxy(*server.address) as proxy:
        proxy.delay(delay_s)
        with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
            for chunk in chunks:
                assert echoed(client, chunk) == chunk
    server.close()


def test_delay_holds_back_and_restore_ends_it(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    assert echoed(client, b"quick") == b"quick"
    proxy.delay(3600)
    client.sendall(b"slow")
    assert is_silent(client)
    proxy.restore()
    other = connect()
    assert echoed(other, b"quick") == b"quick"


def test_cut_resets_and_refuses_until_restore(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    assert echoed(client, b"one") == b"one"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect()
    assert proxy.open_connections == 0
    proxy.restore()
    assert echoed(connect(), b"two") == b"two"


def test_cut_at_once_after_a_connect(proxy: TcpProxy, connect: Connect) -> None:
    """A connection that the proxy has hardly seen is reset like any other."""
    for _ in range(20):
        client = connect()
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        proxy.restore()
    assert proxy.open_connections == 0


def test_drop_resets_and_goes_on(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    assert echoed(client, b"one") == b"one"
    proxy.drop()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert echoed(connect(), b"two") == b"two"


@pytest.mark.parametrize("count", [0, 1, 7, 100_000])
def test_an_answer_breaks_off_after_so_many_bytes(proxy: TcpProxy, connect: Connect, count: int) -> None:
    client = connect()
    assert echoed(client, b"whole") == b"whole"
    proxy.cut_after(count)
    data = bytes(range(250)) * 1000
    sender = threading.Thread(target=send_quietly, args=(client, data))
    sender.start()
    assert exactly(client, count) == data[:count]
    # Only one of the two threads is told of the reset; the other meets the end.
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    sender.join()
    assert echoed(connect(), b"whole again") == b"whole again"


def send_quietly(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_a_request_breaks_off_on_its_way_to_the_server(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    proxy.cut_after(4, "to_server")
    client.sendall(b"request")
    with pytest.raises(ConnectionResetError):
        exactly(client, 8)


def test_half_closed_to_the_client(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    assert echoed(client, b"one") == b"one"
    proxy.half_close("to_client")
    assert client.recv(1) == b""
    client.sendall(b"still accepted")
    assert proxy.open_connections == 1
    assert echoed(connect(), b"two") == b"two"


def test_half_closed_to_the_server(proxy: TcpProxy, connect: Connect) -> None:
    client = connect()
    assert echoed(client, b"one") == b"one"
    proxy.half_close("to_server")
    assert exactly(client, 7) == b"goodbye"
    assert client.recv(1) == b""


def test_frozen_connections_are_silent_and_lose_nothing(proxy: TcpProxy, connect: Connect) -> None:
    before = connect()
    assert echoed(before, b"one") == b"one"
    proxy.freeze()
    after = connect()
    for client in (before, after):
        client.sendall(b"two")
        assert is_silent(client)
    proxy.thaw()
    for client in (before, after):
        assert exactly(client, 3) == b"two"


def test_a_server_that_is_not_there_is_a_reset(echo: EchoServer) -> None:
    with TcpProxy(*echo.address) as proxy:
        echo.close()
        # The reset may come before the connect has returned.
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection((proxy.host, proxy.port), timeout=10) as client,
        ):
            client.recv(1)


def test_closed_it_leaves_nothing(echo: EchoServer) -> None:
    proxy = TcpProxy(*echo.address)
    with socket.create_connection((proxy.host, proxy.port), timeout=10) as client:
        assert echoed(client, b"one") == b"one"
        proxy.close()
        proxy.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port), timeout=10)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ckpt-proxy")]
    with pytest.raises(ConfigError, match="closed"):
        proxy.freeze()


def test_a_negative_number_of_bytes_is_refused(proxy: TcpProxy) -> None:
    with pytest.raises(ConfigError, match="not below 0"):
        proxy.cut_after(-1)
