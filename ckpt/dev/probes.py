"""Whether a server really answers, asked in its own protocol by a few bytes and without any driver.

A probe returns False as long as the server is not there yet, refuses, is still loading, or says something
that is not an answer. It never waits longer than `timeout_s` for a single byte.

```
Redis      PING                            +PONG, or an error that only a server that works can give
Cassandra  OPTIONS frame, protocol v4      SUPPORTED; with passwords also STARTUP, AUTH_RESPONSE
HBase      Thrift binary getTableNames     REPLY with a list
S3         GET /                           any HTTP status
```
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable

_CASSANDRA_STARTUP, _CASSANDRA_AUTHENTICATE = 0x01, 0x03
_CASSANDRA_OPTIONS, _CASSANDRA_SUPPORTED = 0x05, 0x06
_CASSANDRA_AUTH_RESPONSE, _CASSANDRA_AUTH_SUCCESS = 0x0F, 0x10

Exchange = Callable[[socket.socket], bool]


def redis_answers(host: str, port: int, *, tls: bool = False, timeout_s: float = 5.0) -> bool:
    """Whether Redis, or a sentinel, takes commands; one that wants a password or is replicating does."""

    def ping(connection: socket.socket) -> bool:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n")
        answer = connection.recv(256)
        return answer.startswith((b"+PONG", b"-NOAUTH", b"-NOPERM", b"-MASTERDOWN"))

    return _ask(host, port, ping, timeout_s=timeout_s, tls=tls)


def cassandra_answers(
    host: str, port: int, *, user: str = "", password: str = "", timeout_s: float = 5.0
) -> bool:
    """Whether Cassandra speaks CQL; with a user, only once that user exists."""

    def options(connection: socket.socket) -> bool:
        if _cassandra_call(connection, _CASSANDRA_OPTIONS, b"")[0] != _CASSANDRA_SUPPORTED:
            return False
        return not user or log_in(connection)

    def log_in(connection: socket.socket) -> bool:
        startup = struct.pack(">H", 1) + _short_string("CQL_VERSION") + _short_string("3.0.0")
        if _cassandra_call(connection, _CASSANDRA_STARTUP, startup)[0] != _CASSANDRA_AUTHENTICATE:
            return False
        token = f"\0{user}\0{password}".encode()
        answer = _cassandra_call(connection, _CASSANDRA_AUTH_RESPONSE, struct.pack(">i", len(token)) + token)[
            0
        ]
        return answer == _CASSANDRA_AUTH_SUCCESS

    return _ask(host, port, options, timeout_s=timeout_s)


def hbase_answers(host: str, port: int, *, timeout_s: float = 10.0) -> bool:
    """Whether HBase lists its tables through its Thrift server, so that both work."""

    def table_names(connection: socket.socket) -> bool:
        call = struct.pack(">I", 0x80010001) + struct.pack(">i", 13) + b"getTableNames"
        connection.sendall(call + struct.pack(">i", 1) + b"\0")
        header = _exactly(connection, 4 + 4 + 13 + 4)
        # REPLY, then the first field of its body: number 0 is a result, number 1 an error.
        return header[:4] == b"\x80\x01\x00\x02" and _exactly(connection, 3) == b"\x0f\x00\x00"

    return _ask(host, port, table_names, timeout_s=timeout_s)


def http_answers(host: str, port: int, *, timeout_s: float = 5.0) -> bool:
    """Whether anything answers in HTTP, whatever its status."""

    def get(connection: socket.socket) -> bool:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        return _exactly(connection, 5) == b"HTTP/"

    return _ask(host, port, get, timeout_s=timeout_s)


def _ask(host: str, port: int, exchange: Exchange, *, timeout_s: float, tls: bool = False) -> bool:
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            if not tls:
                return exchange(connection)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # A probe asks whether a server answers, and tells no secret.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(connection) as encrypted:
                return exchange(encrypted)
    except OSError:
        return False


def _cassandra_call(connection: socket.socket, opcode: int, body: bytes) -> tuple[int, bytes]:
    connection.sendall(struct.pack(">BBhBI", 0x04, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBhBI", _exactly(connection, 9))
    return answer, _exactly(connection, min(length, 1 << 16))


def _short_string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("closed in the middle of an answer")
        received += chunk
    return received
