"""One connection of a sidecar from hello to goodbye: whatever arrives, no other one notices."""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from ckpt.errors import CkptError
from ckpt.sidecar.frames import (
    ID_BYTES,
    LIFELINE,
    OLDEST_VERSION,
    ErrorKind,
    ProtocolError,
    RequestCode,
    ResponseStatus,
    Welcome,
    agreed_version,
    encode_error,
    frame,
    kind_of,
)
from ckpt.sidecar.requests import Request, StageRequest, check_body, decode_request
from ckpt.sidecar.service import Response, Service
from ckpt.sidecar.staging import Staging
from ckpt.sidecar.wire import PeerGoneError, SlowPeerError, Wire

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """The client is not let in; `kind` says why."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Door:
    """What a connection has to show before it is let in."""

    token: bytes = b""
    """Empty on a unix socket, where the operating system asks instead."""
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0
    """How long TLS and hello may take."""


class Session:
    """Serves one connection in the calling thread."""

    def __init__(
        self, wire: Wire, service: Service, door: Door, *, max_frame_bytes: int, max_commit_bytes: int
    ) -> None:
        self.wire = wire
        self._service = service
        self._door = door
        self._max_frame_bytes = max_frame_bytes
        self._staging = Staging(max_commit_bytes)
        self._version = OLDEST_VERSION

    def let_in(self) -> bool:
        """Read the hello and answer it; True if the connection is a lifeline.

        Raises RefusedError or ProtocolError if the client is not let in, PeerGoneError if it has hung up.
        """
        if self._door.tls is not None:
            try:
                self.wire.start_tls(self._door.tls, self._door.timeout_s)
            except (OSError, ValueError) as error:
                raise PeerGoneError(f"no TLS: {error}") from None
        version, flags, token = self.wire.receive_hello(self._door.timeout_s)
        if not hmac.compare_digest(token, self._door.token):
            raise RefusedError(ErrorKind.TOKEN, "wrong token; give the client the token that the sidecar has")
        self._version = agreed_version(version)
        return bool(flags & LIFELINE)

    def welcome(self) -> None:
        """Tell a client that it was let in."""
        answer = Welcome(self._version, self._max_frame_bytes, self._service.backend.address)
        self.wire.send(frame(ResponseStatus.DONE, 0, answer.encode()))

    def refuse(self, kind: ErrorKind, message: str, request_id: int = 0) -> None:
        """Say why the connection ends."""
        try:
            self.wire.send(frame(ResponseStatus.FATAL, request_id, encode_error(kind, message)))
        except PeerGoneError:
            return

    def serve(self) -> None:
        """Answer requests until the client goes, or breaks the protocol."""
        counters = self._service.counters
        request_id = 0
        try:
            while self.wire.wait():
                size, operation, request_id = self.wire.receive_head()
                check_body(operation, size, self._max_frame_bytes - ID_BYTES)
                body = self.wire.receive_body(size, to_keep=operation == RequestCode.STAGE)
                request = decode_request(operation, body)
                self._respond(request_id, request)
        except ProtocolError as error:
            counters.add(refused=1)
            self.refuse(ErrorKind.PROTOCOL, str(error), request_id)
            self.wire.close(linger=True)
        except SlowPeerError as error:
            counters.add(slow=1)
            log.warning("a connection was cut: %s", error)
        except PeerGoneError:
            pass  # a client may go at any time; what it committed and saw acknowledged stays

    def _respond(self, request_id: int, request: Request) -> None:
        try:
            # Closed also if the client goes in the middle: a scan holds what garbage collection waits for.
            with closing(self._answer(request)) as responses:
                for status, body in responses:
                    self.wire.send(frame(status, request_id, body))
        except PeerGoneError:
            raise
        except CkptError as error:
            self._tell(request_id, kind_of(error), str(error))
        except Exception as error:
            log.exception("a request failed in a way that nobody foresaw")
            # Only its name: the text of an unforeseen exception might hold a value.
            self._tell(
                request_id, ErrorKind.OTHER, f"{type(error).__name__} in the sidecar; its log says more"
            )

    def _answer(self, request: Request) -> Generator[Response, None, None]:
        if isinstance(request, StageRequest):
            self._staging.add(request)
            yield ResponseStatus.DONE, []
        else:
            yield from self._service.answer(self._staging.completed(request))

    def _tell(self, request_id: int, kind: ErrorKind, message: str) -> None:
        try:
            self.wire.send(frame(ResponseStatus.ERROR, request_id, encode_error(kind, message)))
        finally:
            self._service.note_error()
