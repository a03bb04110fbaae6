"""The sidecar: many connections, one backend; told to end, it loses nothing it has acknowledged."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError
from ckpt.sidecar.frames import ErrorKind, ProtocolError
from ckpt.sidecar.listeners import Listener, TcpListener
from ckpt.sidecar.service import Service
from ckpt.sidecar.sessions import Door, RefusedError, Session
from ckpt.sidecar.wire import PeerGoneError, Wire

log = logging.getLogger(__name__)

_SILENCE_S = 1.0
"""How long a connection may say nothing while others wait to be accepted."""


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """Bounds of a sidecar."""

    max_frame_bytes: int = 1 << 30
    """The longest frame it takes. Memory is used as bytes arrive, and only by clients that were let in."""
    max_commit_bytes: int = 4 << 30
    """The longest commit that it takes in parts; parts wait in memory until their commit is whole."""
    frame_timeout_s: float = 60.0
    """How long a client may be stuck inside a frame; long frames get one second more for each MiB."""
    max_connections: int = 1024
    max_waiting: int = 64
    """Connections that have not said hello yet; more are not accepted before one of them has, or was cut.

    To let others in, those are cut that have said nothing for a second.
    """
    shutdown_s: float = 10.0
    """How long requests under way may take to finish when the sidecar is told to end."""

    def __post_init__(self) -> None:
        if not 1024 <= self.max_frame_bytes <= 0xFFFFFFFF:
            raise ConfigError(f"max_frame_bytes is between 1 KiB and 4 GiB, got {self.max_frame_bytes}")


class Sidecar:
    """Serves a backend to the clients of a listener until `close`, which closes the backend, too.

    `on_broken` is called, by any thread and perhaps more than once, when the backend refuses every write
    until it is opened again: it is time to start another sidecar.

    Examples
    --------
    >>> import ckpt, tempfile
    >>> from ckpt.sidecar import Sidecar, SidecarClient, UnixListener
    >>> listener = UnixListener(tempfile.mkdtemp() + "/ckpt.sock")
    >>> with Sidecar(ckpt.open_backend("memory://"), listener), SidecarClient(listener.path) as client:
    ...     first = client.commit("store", 1, {b"be": b"2"})
    ...     client.get_many("store", [b"be", b"or"])
    {b'be': b'2'}
    """

    def __init__(
        self,
        backend: Backend,
        listener: Listener,
        options: SidecarOptions | None = None,
        *,
        door: Door | None = None,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._door = door or Door()
        if isinstance(listener, TcpListener) and not self._door.token:
            raise ConfigError("a sidecar on TCP needs a token, or any client could read and change the state")
        self._options = options or SidecarOptions()
        self._listener = listener
        self._service = Service(
            backend,
            max_frame_bytes=self._options.max_frame_bytes,
            gauges=self._gauges,
            on_broken=on_broken,
        )
        self._changed = threading.Condition()
        self._sessions: dict[Session, threading.Thread] = {}
        self._waiting: dict[Session, float] = {}
        """Connections that were not let in yet, or are being refused, and since when; oldest first."""
        self._inside = 0
        self._lifelines = 0
        self._alone_since = time.monotonic()
        self._ending = False
        self._closed = False
        self._acceptor = threading.Thread(target=self._accept, name="ckpt-sidecar-accept", daemon=True)
        self._acceptor.start()

    @property
    def name(self) -> str:
        """Where clients find it: the path of its socket, or host and port."""
        return self._listener.name

    def stats(self) -> dict[str, float]:
        """What STATS answers."""
        return self._service.stats()

    def _gauges(self) -> dict[str, float]:
        with self._changed:
            return {"connections_open": self._inside, "lifelines": self._lifelines}

    # -- connections -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                if self._ending:
                    return
                # No descriptor left, or a client that was gone at once: neither ends a server.
                log.warning("a connection could not be accepted: %s", error)
                time.sleep(0.05)
                continue
            try:
                self._take_in(connection)
            except (OSError, RuntimeError) as error:  # reset meanwhile, or no thread to be had
                log.warning("a connection could not be served: %s", error)
                connection.close()

    def _take_in(self, connection: socket.socket) -> None:
        wire = Wire(connection, frame_timeout_s=self._options.frame_timeout_s)
        session = Session(
            wire,
            self._service,
            self._door,
            max_frame_bytes=self._options.max_frame_bytes,
            max_commit_bytes=self._options.max_commit_bytes,
        )
        thread = threading.Thread(
            target=self._run, args=(session,), name="ckpt-sidecar-connection", daemon=True
        )
        if not self._listener.may_enter(connection) or not self._admit(session, thread):
            self._service.counters.add(refused=1)
            wire.close()

    def _admit(self, session: Session, thread: threading.Thread) -> bool:
        with self._changed:
            while not self._ending and len(self._waiting) >= self._options.max_waiting:
                self._changed.wait(self._cut_silent())
            if self._ending:
                return False
            thread.start()  # it waits for us before it counts
            self._waiting[session] = time.monotonic()
            self._sessions[session] = thread
            return True

    def _cut_silent(self) -> float:
        """End connections that have been silent for too long; how long to wait before looking again."""
        now_s = time.monotonic()
        for session, since_s in self._waiting.items():
            if now_s - since_s < _SILENCE_S:
                return _SILENCE_S - (now_s - since_s)
            # What a client has said on a busy host may lie there for a while before its thread reads it.
            if not session.wire.has_unread():
                session.wire.wake()
        return _SILENCE_S

    def _run(self, session: Session) -> None:
        counters = self._service.counters
        is_in = False
        try:
            is_lifeline = session.let_in()
            self._count_in(session, is_lifeline)
            is_in = True
            if is_lifeline:
                self._hold(session)
            else:
                session.welcome()
                session.serve()
        except (RefusedError, ProtocolError) as error:
            counters.add(refused=1)
            session.refuse(error.kind if isinstance(error, RefusedError) else ErrorKind.PROTOCOL, str(error))
            session.wire.close(linger=True)
        except PeerGoneError:
            pass  # before it was let in, or with the welcome under way
        except Exception:
            log.exception("a connection ended in a way that nobody foresaw")
        finally:
            session.wire.close()
            with self._changed:
                self._inside -= is_in
                self._waiting.pop(session, None)  # a refused connection is in it until its socket is closed
                del self._sessions[session]
                self._changed.notify_all()

    def _count_in(self, session: Session, is_lifeline: bool) -> None:
        if is_lifeline and self._service.ends_if_broken():
            raise RefusedError(ErrorKind.UNAVAILABLE, "the sidecar's backend is broken; start it again")
        with self._changed:
            if self._ending:
                raise RefusedError(ErrorKind.UNAVAILABLE, "the sidecar is about to end; start it again")
            if self._inside >= self._options.max_connections:
                raise RefusedError(
                    ErrorKind.UNAVAILABLE, f"the sidecar has {self._inside} connections already; close some"
                )
            self._inside += 1
            del self._waiting[session]
            # Counted before the client is told, so that a client with a lifeline can rely on it.
            self._lifelines += is_lifeline
            self._changed.notify_all()
        self._service.counters.add(connections=1)

    def _hold(self, session: Session) -> None:
        try:
            session.welcome()
            if session.wire.wait():
                raise ProtocolError("a lifeline carries no requests; open another connection for them")
        finally:
            with self._changed:
                self._lifelines -= 1
                self._alone_since = time.monotonic()
                self._changed.notify_all()

    # -- life ------------------------------------------------------------------------------------

    def end_when_alone(self, grace_s: float) -> bool:
        """Wait until no client has held a lifeline for that long, then let none in any more.

        False if the sidecar was told to end meanwhile. A connection after True was returned is refused, so no
        client is let in to a sidecar that has decided to end.
        """
        with self._changed:
            while not self._ending:
                left_s = self._alone_since + grace_s - time.monotonic()
                if self._lifelines:
                    self._changed.wait()
                elif left_s > 0:
                    self._changed.wait(left_s)
                else:
                    self._ending = True
                    return True
            return False

    def stir(self) -> None:
        """The grace begins anew, as if a lifeline had just been closed."""
        with self._changed:
            self._alone_since = time.monotonic()

    def close(self) -> None:
        """Finish the requests under way in bounded time, take no others, close the backend. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = self._ending = True
            self._changed.notify_all()
            sessions = list(self._sessions)
        self._listener.stop()
        for session in sessions:
            session.wire.wake()
        deadline = time.monotonic() + self._options.shutdown_s
        with self._changed:
            self._changed.wait_for(lambda: not self._sessions, self._options.shutdown_s)
            left = dict(self._sessions)
        for session in left:
            session.wire.close()
        for thread in left.values():
            thread.join(max(deadline + 1 - time.monotonic(), 0))
        self._acceptor.join(1)
        self._service.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
