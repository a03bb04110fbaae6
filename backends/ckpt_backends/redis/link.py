"""Connections to Redis: one round trip for any number of commands, an end to every wait, and no repetition.

The driver brings connections, TLS, passwords, sentinels and cluster maps. Two things it does not bring are
here: requests are packed in a tenth of the time that its own packer needs, and nothing is ever sent twice
without our knowledge, because only the caller of a request knows whether it may be repeated.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, ConnectionPool, SSLConnection
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from ckpt.errors import BackendUnavailableError
from ckpt_backends.cells.access import tls_context
from ckpt_backends.redis.errors import ASK_ELSEWHERE, code_of, translated
from ckpt_backends.redis.options import RedisOptions, RedisTarget

Command = Sequence[bytes]

_MOST_CONNECTIONS = 10_000
_READ_BYTES = 256 << 10
_MOST_HEADS = 10_000
_PIECE_ARGUMENTS = 500


class _Heads(dict[int, bytes]):
    """What stands before an argument of so many bytes; of a batch many have the same length."""

    def __missing__(self, length: int) -> bytes:
        head = b"\r\n$%d\r\n" % length
        if len(self) < _MOST_HEADS:
            self[length] = head
        return head


_head = _Heads().__getitem__


def packed(commands: Iterable[Command]) -> Iterator[bytes]:
    r"""The bytes of commands in the protocol of Redis, in pieces: one is sent while the next is packed.

    Examples
    --------
    >>> b"".join(packed([[b"GET", b"key"]]))
    b'*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n'
    """
    parts: list[bytes] = []
    for arguments in commands:
        parts.append(b"*%d" % len(arguments))
        # Nothing here loops in Python: a batch has thousands of arguments.
        parts += chain.from_iterable(zip(map(_head, map(len, arguments)), arguments, strict=True))
        parts.append(b"\r\n")
        if len(parts) > _PIECE_ARGUMENTS:
            yield b"".join(parts)
            parts = []
    yield b"".join(parts)


class RedisLink(ABC):
    """Asks the server that is responsible for a key; usable from several threads, one connection for each."""

    def __init__(self, at: str) -> None:
        self.at = at
        """The server as messages name it, without secrets."""
        self._closed = threading.Event()

    def ask(self, key: bytes, *commands: Command) -> list[Any]:
        """The answers to commands about keys of one slot, sent together; raises if one is an error."""
        try:
            pool = self._pool(key)
            connection = pool.get_connection()
        except (RedisError, RedisClusterException, OSError) as error:
            self._look_again()
            raise translated(error, self.at) from error
        answers: list[Any] = []
        try:
            connection.send_packed_command(packed(commands))
            for _ in commands:
                try:
                    answers.append(connection.read_response())
                except ResponseError as error:
                    answers.append(error)
        except BaseException as error:
            # Whatever is still to come on this connection would be taken for the answer to something else.
            connection.disconnect()
            if not isinstance(error, (RedisError, OSError)):
                raise
            # Others that were opened to the same server before are likely to be as dead.
            self._drop_idle(pool)
            self._look_again()
            raise translated(error, self.at) from error
        finally:
            if self._closed.is_set():
                connection.disconnect()
            pool.release(connection)
        failures = [error for answer in answers for error in _failures(answer)]
        if failures:
            # An aborted transaction is a consequence of the first command that was refused.
            cause = next((e for e in failures if code_of(e) != "EXECABORT"), failures[0])
            if code_of(cause) in ASK_ELSEWHERE:
                self._drop_idle(pool)
                self._look_again()
            raise translated(cause, self.at) from cause
        return answers

    def close(self) -> None:
        """Close connections that no call uses; the others close when their call ends."""
        self._closed.set()

    @abstractmethod
    def _pool(self, key: bytes) -> ConnectionPool:
        """The connections to the server that holds this key."""

    def _look_again(self) -> None:
        """Something failed: the known map of which server is responsible for which key may be out of date."""
        return

    @staticmethod
    def _drop_idle(pool: ConnectionPool) -> None:
        with contextlib.suppress(RedisError, OSError):
            pool.disconnect(inuse_connections=False)


class ServerLink(RedisLink):
    """One server, or whichever is the primary according to sentinels."""

    def __init__(self, target: RedisTarget, options: RedisOptions) -> None:
        super().__init__(target.at)
        settings = _settings(target, options)
        kind = settings.pop("connection_class")
        self._sentinel: Sentinel | None = None
        if options.sentinel is None:
            ((host, port),) = target.hosts
            self._connections = ConnectionPool(connection_class=kind, host=host, port=port, **settings)
        else:
            # The database and its user are those of the servers, not of the sentinels.
            asking = {
                k: settings[k] for k in ("socket_timeout", "socket_connect_timeout", "retry", "protocol")
            }
            self._sentinel = Sentinel(target.hosts, sentinel_kwargs=asking)
            for client in self._sentinel.sentinels:
                client.connection_pool.connection_class = kind
            managed = type("Managed", (SentinelManagedConnection, kind), {})
            self._connections = SentinelConnectionPool(
                options.sentinel, self._sentinel, connection_class=managed, **settings
            )

    def _pool(self, key: bytes) -> ConnectionPool:
        del key  # one server holds them all
        return self._connections

    def close(self) -> None:
        super().close()
        self._drop_idle(self._connections)
        if self._sentinel is not None:
            for client in self._sentinel.sentinels:
                client.close()


class ClusterLink(RedisLink):
    """A cluster: each namespace lives on the server that its slot belongs to."""

    def __init__(self, target: RedisTarget, options: RedisOptions) -> None:
        super().__init__(target.at)
        self._hosts = target.hosts
        self._settings = _settings(target, options)
        self._settings.pop("db")
        self._cluster: RedisCluster | None = None
        self._is_stale = False
        self._lock = threading.Lock()

    def _pool(self, key: bytes) -> ConnectionPool:
        with self._lock:
            if self._cluster is None:
                self._cluster = self._found()
            elif self._is_stale:
                self._cluster.nodes_manager.initialize()
            self._is_stale = False
            node = self._cluster.get_node_from_key(key)
            if node is None:
                raise BackendUnavailableError(f"{self.at} has no server for this slot; mend the cluster")
            return self._cluster.get_redis_connection(node).connection_pool

    def _found(self) -> RedisCluster:
        # The driver takes a kind of connection only where the first host comes as a URL.
        (host, port), *others = self._hosts
        return RedisCluster(
            url=f"redis://[{host}]:{port}" if ":" in host else f"redis://{host}:{port}",
            startup_nodes=[ClusterNode(*other) for other in others],
            **self._settings,
        )

    def _look_again(self) -> None:
        with self._lock:
            self._is_stale = True

    def close(self) -> None:
        super().close()
        with self._lock:
            if self._cluster is not None:
                for node in self._cluster.get_nodes():
                    if node.redis_connection is not None:
                        self._drop_idle(node.redis_connection.connection_pool)


def open_link(target: RedisTarget, options: RedisOptions) -> RedisLink:
    """The kind of link that the options ask for; nothing is connected yet."""
    return ClusterLink(target, options) if options.cluster else ServerLink(target, options)


def _failures(answer: Any) -> list[Exception]:
    if isinstance(answer, Exception):
        return [answer]
    return [part for part in answer if isinstance(part, Exception)] if isinstance(answer, list) else []


def _settings(target: RedisTarget, options: RedisOptions) -> dict[str, Any]:
    context = tls_context(options)
    return {
        "connection_class": Connection if context is None else _connections_in(context),
        "db": target.database,
        "username": target.username,
        "password": target.password,
        "socket_timeout": options.timeout_s,
        "socket_connect_timeout": options.timeout_s,
        "socket_keepalive": True,
        "socket_read_size": _READ_BYTES,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "max_connections": _MOST_CONNECTIONS,
    }


def _connections_in(context: ssl.SSLContext) -> type[SSLConnection]:
    """Connections that trust the authorities of `context` only; the driver's own also trust the system's."""

    class TlsConnection(SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname=self.host)

    return TlsConnection
