"""Connections to a Thrift server: a request ends in bounded time, and a connection that failed is not reused.

A Thrift connection that broke off in the middle of an answer would give the rest of it to the next request.
So only a connection whose last answer was read whole goes back into the pool; every other one is closed. A
connection that has been idle for long, or that the server has closed, is not used again either.
"""

from __future__ import annotations

import importlib
import re
import select
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any

from happybase.connection import THRIFT_PROTOCOLS, THRIFT_TRANSPORTS
from thriftpy2.thrift import TApplicationException, TClient

from ckpt.errors import BackendUnavailableError, CkptError, ConfigError
from ckpt_backends.cells.access import tls_context
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase.options import HBaseOptions, Transport

thrift: Any = importlib.import_module("Hbase_thrift")
"""HBase's Thrift interface as happybase has loaded it."""

_BUFFER_BYTES = 64 << 10
_IDLE_S = 30.0
"""Below the 60 seconds after which a Thrift server closes a connection by default."""
_SHOWN_CHARACTERS = 200
_ASKS_FOR_CERTIFICATE = "and whether it asks for a certificate of the client (tls_cert, tls_key)"
_TLS_REFUSAL = re.compile("ALERT|WRONG_VERSION|UNSUPPORTED_PROTOCOL|NO_SHARED_CIPHER")
_REFUSED = ("KeyValue size too large", "keyvalue.maxsize", "NoSuchColumnFamilyException", "AccessDenied")
"""What HBase says to requests that will not be accepted the next time either."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a Thrift server listens, and how it is spoken to."""

    host: str
    port: int
    options: HBaseOptions
    context: ssl.SSLContext | None

    @classmethod
    def of(cls, host: str, port: int, options: HBaseOptions) -> Endpoint:
        """The endpoint; certificates are read now."""
        return cls(host, port, options, tls_context(options))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Socket:
    """What thriftpy2 calls a transport: a socket on which everything has to be done by one deadline."""

    def __init__(self, endpoint: Endpoint, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.sock: socket.socket = socket.create_connection(
            (endpoint.host, endpoint.port), timeout=self._left_s()
        )
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.context is not None:
                self.sock.settimeout(self._left_s())
                self.sock = endpoint.context.wrap_socket(self.sock, server_hostname=endpoint.host)
        except BaseException:
            self.sock.close()
            raise

    def _left_s(self) -> float:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def read(self, size: int) -> bytes:
        """Some bytes, at most `size`."""
        self.sock.settimeout(self._left_s())
        data = self.sock.recv(size)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def write(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.settimeout(self._left_s())
        self.sock.sendall(data)

    def flush(self) -> None:
        """Nothing is kept back here."""

    def close(self) -> None:
        """Free the descriptor."""
        self.sock.close()


class _ThriftConnection:
    """One connection and the client that speaks over it."""

    def __init__(self, endpoint: Endpoint, deadline_s: float) -> None:
        self._socket = _Socket(endpoint, deadline_s)
        if endpoint.options.transport is Transport.BUFFERED:
            transport = THRIFT_TRANSPORTS["buffered"](self._socket, _BUFFER_BYTES)
        else:
            transport = THRIFT_TRANSPORTS["framed"](self._socket)
        protocol = THRIFT_PROTOCOLS[endpoint.options.protocol.value](transport, decode_response=False)
        self._client = TClient(thrift.Hbase, protocol)
        self.idle_since_s = 0.0

    def call(self, method: str, arguments: tuple[object, ...], deadline_s: float) -> Any:
        self._socket.deadline_s = deadline_s
        return getattr(self._client, method)(*arguments)

    def is_usable(self) -> bool:
        """Nothing was heard of it since its last answer, not even that it was closed."""
        if time.monotonic() - self.idle_since_s > _IDLE_S:
            return False
        poll = select.poll()
        poll.register(self._socket.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


class Connections:
    """A bounded number of connections to one Thrift server, for any number of threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._timeout_s = endpoint.options.timeout_s
        self._free = threading.BoundedSemaphore(endpoint.options.connections)
        self._idle: list[_ThriftConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, method: str, *arguments: object) -> Any:
        """The server's answer; NotNowError if there is none by the deadline."""
        deadline_s = time.monotonic() + self._timeout_s
        if not self._free.acquire(timeout=self._timeout_s):
            raise NotNowError(
                f"every connection to HBase at {self.endpoint} was busy for {self._timeout_s:g} s; "
                "raise connections, or try again later"
            )
        try:
            return self._call(method, arguments, deadline_s)
        finally:
            self._free.release()

    def _call(self, method: str, arguments: tuple[object, ...], deadline_s: float) -> Any:
        connection: _ThriftConnection | None = None
        is_whole = False
        try:
            connection = self._taken() or _ThriftConnection(self.endpoint, deadline_s)
            answer = connection.call(method, arguments, deadline_s)
            is_whole = True
        except (thrift.IOError, thrift.IllegalArgument, thrift.AlreadyExists) as error:
            is_whole = True
            raise self._refusal(error) from error
        except CkptError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        finally:
            if connection is not None:
                self._put_back(connection, is_usable=is_whole)
        return answer

    def _taken(self) -> _ThriftConnection | None:
        while True:
            with self._lock:
                if self._closed:
                    raise BackendUnavailableError(
                        f"the connections to HBase at {self.endpoint} are closed; open the backend again"
                    )
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()

    def _put_back(self, connection: _ThriftConnection, *, is_usable: bool) -> None:
        connection.idle_since_s = time.monotonic()
        with self._lock:
            if is_usable and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _refusal(self, error: Any) -> CkptError:
        """What the server said, which may be a Java stack trace, as one line."""
        message = (
            error.message.decode("utf-8", "replace") if isinstance(error.message, bytes) else error.message
        )
        said = (message or type(error).__name__).strip().splitlines()[0][:_SHOWN_CHARACTERS]
        if isinstance(error, thrift.AlreadyExists):
            return AlreadyThereError(said)
        if "TableNotFoundException" in (message or ""):
            return NoTableError(f"HBase at {self.endpoint} has no such table: {said}")
        if "NamespaceNotFoundException" in (message or ""):
            return ConfigError(
                f"HBase at {self.endpoint} has no such namespace for a table ({said}); make it in the HBase "
                "shell with create_namespace, or name a table without one"
            )
        if any(word in (message or "") for word in _REFUSED):
            return ConfigError(
                f"HBase at {self.endpoint} refuses this request: {said}; check the table's families, its "
                "permissions, and hbase.client.keyvalue.maxsize (at least 2 MiB)"
            )
        return NotNowError(f"HBase at {self.endpoint} could not do it now: {said}; try again later")

    def _failure(self, error: Exception) -> CkptError:
        """What it means that there was no whole answer."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return ConfigError(
                f"the certificate of {self.endpoint} is not trusted ({error.verify_message}); "
                "give the authority that signed it with tls_ca"
            )
        if isinstance(error, ssl.SSLError) and error.reason and _TLS_REFUSAL.search(error.reason):
            return ConfigError(
                f"{self.endpoint} refuses this TLS connection ({error.reason}); check that it speaks TLS, "
                f"{_ASKS_FOR_CERTIFICATE}"
            )
        if isinstance(error, TApplicationException):
            return ConfigError(
                f"{self.endpoint} does not know a request of HBase's Thrift interface ({error}); "
                "start `hbase thrift`, not `hbase thrift2`"
            )
        if isinstance(error, TimeoutError):
            return NotNowError(
                f"HBase at {self.endpoint} did not answer within {self._timeout_s:g} s; check that its "
                "Thrift server and its region servers run, and that transport and protocol are the server's"
            )
        reason = str(error) or type(error).__name__
        is_refused = isinstance(error, ConnectionRefusedError)
        if self.endpoint.context is not None and isinstance(error, OSError) and not is_refused:
            # A proxy that refuses a client without a certificate may just hang up.
            return NotNowError(
                f"HBase at {self.endpoint} ended a TLS connection ({reason[:_SHOWN_CHARACTERS]}); check that "
                f"the Thrift server runs, {_ASKS_FOR_CERTIFICATE}"
            )
        return NotNowError(
            f"HBase at {self.endpoint} cannot be reached ({reason[:_SHOWN_CHARACTERS]}); check the "
            "address, and that the Thrift server runs"
        )

    def close(self) -> None:
        """Close what is idle now, and what is busy when it is given back; idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class AlreadyThereError(CkptError):
    """The table that was to be created exists."""


class NoTableError(NotNowError):
    """The table does not exist, or not yet."""
