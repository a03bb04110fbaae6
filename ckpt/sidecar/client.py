"""A client of the sidecar: the backend's words over a socket, with the backend's exceptions.

Every request may be repeated: a commit always carries an id, and a sidecar that holds that commit already
says so. So a request whose connection breaks is sent once more over a new one, and only then fails with
`BackendUnavailableError`. After that the client can be used again as soon as a sidecar answers.
"""

from __future__ import annotations

import socket
import ssl
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from ckpt.contract.backend import check_commit, check_keys
from ckpt.contract.versions import Commit
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar.counters import prometheus_text
from ckpt.sidecar.frames import (
    ID_BYTES,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    ProtocolError,
    ResponseStatus,
    Welcome,
    decode_committed,
    decode_error,
    decode_history,
    decode_names,
    decode_rows,
    decode_rows_in_all,
    decode_stats,
    encode_hello,
    frame,
)
from ckpt.sidecar.requests import (
    CommitRequest,
    DropRequest,
    GetRequest,
    HistoryRequest,
    LoadRequest,
    NamespacesRequest,
    PingRequest,
    Request,
    StatsRequest,
    TruncateRequest,
)
from ckpt.sidecar.wire import PeerGoneError, SlowPeerError, Wire, let_the_kernel_wait
from ckpt.types import Block, CommitId

_STATUSES = frozenset(ResponseStatus)
_FIRST_FRAME_BYTES = 1 << 17
"""Nothing longer is believed before the server has said what it may send."""


class RemoteHistory(NamedTuple):
    """The commits that a reader may name, by version, and the one that a read starts from."""

    commits: list[Commit]
    tip: CommitId | None


class SidecarClient:
    """Versioned namespaces of a sidecar's backend; may be used by several threads at once.

    `name` is the path of the sidecar's socket, or `host:port` together with a token.

    Examples
    --------
    >>> import ckpt, tempfile
    >>> from ckpt.sidecar import Sidecar, SidecarClient, UnixListener
    >>> listener = UnixListener(tempfile.mkdtemp() + "/ckpt.sock")
    >>> with Sidecar(ckpt.open_backend("memory://"), listener), SidecarClient(listener.path) as client:
    ...     first = client.commit("store", 1, {b"be": b"2"})
    ...     second = client.commit("store", 2, {b"or": b"1"}, base=first)
    ...     dict(client.scan("store")), dict(client.scan("store", version=1))
    ({b'be': b'2', b'or': b'1'}, {b'be': b'2'})
    """

    def __init__(
        self,
        name: str,
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self.name = name
        self._token = token
        self._tls = tls
        self._timeout_s = timeout_s
        self._idle: list[_ClientConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    # -- requests --------------------------------------------------------------------------------

    def ping(self) -> None:
        """Return if the sidecar answers."""
        self._ask(PingRequest())

    def commit(
        self,
        namespace: str,
        version: int,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes] = (),
        *,
        base: str | None = None,
        commit_id: str | None = None,
    ) -> CommitId:
        """Durably add one commit, whole or not at all, and return its id."""
        gone = check_commit(puts, deletes)
        # Named here and not there, so that the request can be repeated.
        commit_id = commit_id or uuid.uuid4().hex
        request = CommitRequest(namespace, version, base, commit_id, Block.of(puts.items()), gone)
        return CommitId(decode_committed(self._ask(request))[0])

    def scan(
        self,
        namespace: str,
        *,
        version: int | None = None,
        commit_id: str | None = None,
        block_bytes: int = 1 << 20,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Every (key, value) of one commit, each key once."""
        blocks = self.scan_blocks(namespace, version=version, commit_id=commit_id, block_bytes=block_bytes)
        for block in blocks:
            yield from block.rows()

    def scan_blocks(
        self,
        namespace: str,
        *,
        version: int | None = None,
        commit_id: str | None = None,
        block_bytes: int = 1 << 20,
    ) -> Iterator[Block]:
        """The rows of one commit in blocks of about that many bytes."""
        return self._rows(LoadRequest(namespace, version, commit_id, block_bytes))

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        """The values of those keys that exist, all of one commit."""
        found: dict[bytes, bytes] = {}
        for block in self._rows(GetRequest(namespace, version, commit_id, check_keys(keys))):
            found.update(block.rows())
        return found

    def history(self, namespace: str) -> RemoteHistory:
        """The commits of a namespace; none for a plain or unknown one."""
        return RemoteHistory(*decode_history(self._ask(HistoryRequest(namespace))))

    def truncate(self, namespace: str, keep_from: int) -> None:
        """Forget garbage and every version below `keep_from` that no retained chain needs."""
        self._ask(TruncateRequest(namespace, keep_from))

    def drop(self, namespace: str) -> None:
        """Durably remove a namespace with everything in it; an unknown one is no error."""
        self._ask(DropRequest(namespace))

    def namespaces(self, prefix: str = "") -> list[str]:
        """Every namespace whose name starts with `prefix`, sorted."""
        return decode_names(self._ask(NamespacesRequest(prefix)))

    def stats(self) -> dict[str, float]:
        """What the sidecar has counted since it started."""
        return decode_stats(self._ask(StatsRequest()))

    def prometheus(self) -> str:
        """The same numbers in Prometheus' text format."""
        return prometheus_text(self.stats())

    @contextmanager
    def lifeline(self) -> Iterator[None]:
        """While this is open, a sidecar that was started on demand does not end."""
        with closing(self._connect(lifeline=True)):
            yield

    # -- exchanges -------------------------------------------------------------------------------

    def _ask(self, request: Request) -> memoryview:
        """The body of an answer that has no parts."""
        with closing(self._exchange(request)) as answer:
            for _, body in answer:
                return body
        raise AssertionError("an exchange ends with an answer or an error")

    def _rows(self, request: Request) -> Iterator[Block]:
        """The parts of an answer; what follows the last one must agree with them."""
        rows = 0
        with closing(self._exchange(request)) as answer:
            for status, body in answer:
                if status is ResponseStatus.PART:
                    block = decode_rows(body)
                    rows += len(block)
                    yield block
                elif (told := decode_rows_in_all(body)) != rows:
                    raise ProtocolError(f"{self.name} sent {rows} rows of {told}")

    def _exchange(self, request: Request) -> Generator[tuple[ResponseStatus, memoryview], None, None]:
        """Send a request and yield its answers; once more over a new connection if the first one breaks."""
        body = request.encode()
        connection, tried, begun, done = self._take(), 1, False, False
        try:
            while not done:
                try:
                    if not begun:
                        connection.send(request, body)
                    status, answer = connection.receive()
                except PeerGoneError as error:
                    if begun or tried > 1 or isinstance(error, SlowPeerError):
                        self._fail(error)
                    connection.close()
                    self._forget_idle()
                    connection, tried = self._connect(), 2
                    continue
                begun, done = True, status is not ResponseStatus.PART
                if status is ResponseStatus.FATAL:
                    connection.close()
                elif done:
                    self._give_back(connection)
                if status in (ResponseStatus.ERROR, ResponseStatus.FATAL):
                    raise decode_error(answer)
                yield status, answer
        finally:
            if not done:
                connection.close()

    def _take(self) -> _ClientConnection:
        with self._lock:
            if self._closed:
                raise BackendUnavailableError(f"the client of {self.name} is closed; make a new one")
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _connect(self, *, lifeline: bool = False) -> _ClientConnection:
        try:
            return _ClientConnection(self.name, self._token, self._tls, self._timeout_s, lifeline=lifeline)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        raise BackendUnavailableError(
            f"the sidecar at {self.name} does not answer ({error}); see that it runs: ckpt serve"
        ) from error

    def _give_back(self, connection: _ClientConnection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _forget_idle(self) -> None:
        """Connections of a sidecar that has ended are all broken."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every idle connection; those in use close when their request ends. Idempotent."""
        self._closed = True
        self._forget_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SidecarClient {self.name}>"


class _ClientConnection:
    """One connection that was let in."""

    def __init__(
        self,
        name: str,
        token: str,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        *,
        lifeline: bool,
    ) -> None:
        self.name = name
        self._requests = 0
        self._max_frame_bytes = _FIRST_FRAME_BYTES
        self._wire = Wire(_open(name, timeout_s), frame_timeout_s=timeout_s)
        try:
            if tls is not None:
                self._wire.start_tls(tls, timeout_s, server_name=name.rpartition(":")[0].strip("[]"))
            self._greet(encode_hello(token, lifeline=lifeline))
        except BaseException:
            self._wire.close()
            raise

    def _greet(self, hello: bytes) -> None:
        self._wire.send([hello])
        status, body = self.receive()
        if status is not ResponseStatus.DONE:
            raise decode_error(body)
        welcome = Welcome.decode(body)
        if not OLDEST_VERSION <= welcome.version <= PROTOCOL_VERSION:
            raise ProtocolError(
                f"the sidecar at {self.name} speaks version {welcome.version} of the protocol, and this "
                f"client {OLDEST_VERSION} to {PROTOCOL_VERSION}; install the same ckpt on both sides"
            )
        self._max_frame_bytes = welcome.max_frame_bytes

    def send(self, request: Request, body: list[bytes | memoryview]) -> None:
        """Send one request; a body that the server would not take is an error that costs nothing."""
        size = ID_BYTES + sum(map(len, body))
        if size > self._max_frame_bytes:
            raise ConfigError(
                f"a request of {size} bytes is over the limit of the sidecar at {self.name}, "
                f"{self._max_frame_bytes}; commit less at once"
            )
        self._requests += 1
        self._wire.send(frame(request.operation, self._requests, body))

    def receive(self) -> tuple[ResponseStatus, memoryview]:
        """The next answer, which may be an error."""
        size, code, request_id = self._wire.receive_head()
        if size + ID_BYTES > self._max_frame_bytes:
            raise ProtocolError(f"{self.name} announces a frame of {size} bytes; is it a sidecar?")
        body = self._wire.receive_body(size, to_keep=True)
        if code not in _STATUSES or (request_id != self._requests and code != ResponseStatus.FATAL):
            raise ProtocolError(f"{self.name} answers another request than was asked")
        return ResponseStatus(code), body

    def close(self) -> None:
        """End the connection."""
        self._wire.close()


def _open(name: str, timeout_s: float) -> socket.socket:
    """A connected socket; OSError if nothing listens there."""
    if "/" in name:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # With a timeout of Python's own, a queue that is full for a moment would be an error at once.
            let_the_kernel_wait(sock, timeout_s)
            sock.connect(name)
        except BaseException:
            sock.close()
            raise
        return sock
    host, _, port = name.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{name!r} is no sidecar; name the path of its socket, or host:port")
    return socket.create_connection((host.strip("[]"), int(port)), timeout_s)
