"""Frames on a socket: whole or an error, and never longer under way than the peer is granted.

Between frames a peer may be silent as long as it likes; inside a frame it has a bounded time, which grows
with the frame's length. So a stuck or malicious peer costs one connection for a while, and no other one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Sequence

import numpy as np

from ckpt.sidecar.frames import HEAD, HELLO, ID_BYTES, MAGIC, MAX_TOKEN_BYTES, Buffer, ProtocolError

_BYTES_PER_S = 1 << 20
"""The slowest peer that is not cut, once its grace is used up."""
_KEPT_BYTES = 1 << 20
"""A connection keeps a receive buffer of this size; a longer frame has one of its own."""
_LINGER_S = 1.0


class PeerGoneError(ConnectionError):
    """The peer closed the connection, or cut it in the middle of a frame."""


class SlowPeerError(PeerGoneError):
    """The peer did not get on with a frame in the time it is granted."""


class Wire:
    """One connection; used by one thread at a time. `wake` and `close` may come from another."""

    def __init__(self, sock: socket.socket, *, frame_timeout_s: float) -> None:
        self._sock = sock
        self._frame_timeout_s = frame_timeout_s
        sock.settimeout(frame_timeout_s)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._head = bytearray(HEAD.size)
        self._kept = bytearray()

    def start_tls(self, context: ssl.SSLContext, timeout_s: float, *, server_name: str | None = None) -> None:
        """Encrypt what follows; with a server name as the client, without as the server."""
        self._sock.settimeout(timeout_s)
        self._sock = context.wrap_socket(
            self._sock, server_side=server_name is None, server_hostname=server_name
        )
        self._sock.settimeout(self._frame_timeout_s)

    # -- receiving -------------------------------------------------------------------------------

    def receive_hello(self, timeout_s: float) -> tuple[int, int, bytes]:
        """Version, flags and token that a client says first."""
        deadline = time.monotonic() + timeout_s
        self._sock.settimeout(timeout_s)
        fixed = bytearray(HELLO.size)
        self._fill(memoryview(fixed), deadline)
        magic, version, flags, token_bytes = HELLO.unpack(fixed)
        if magic != MAGIC:
            raise ProtocolError("this is the sidecar of ckpt; whoever connected speaks another protocol")
        if token_bytes > MAX_TOKEN_BYTES:
            raise ProtocolError(f"a token is at most {MAX_TOKEN_BYTES} bytes long")
        token = bytearray(token_bytes)
        self._fill(memoryview(token), deadline)
        self._sock.settimeout(self._frame_timeout_s)
        return version, flags, bytes(token)

    def wait(self) -> bool:
        """Wait for the next frame, however long it takes; False if the peer has closed the connection."""
        if not (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            self._poll.poll()
        try:
            self._fill(memoryview(self._head)[:1], time.monotonic() + self._frame_timeout_s)
        except PeerGoneError:
            return False
        return True

    def receive_head(self, *, begun: bool = False) -> tuple[int, int, int]:
        """Length of the body, code and request id of the next frame; `begun` after `wait`."""
        self._fill(memoryview(self._head)[int(begun) :], time.monotonic() + self._frame_timeout_s)
        length, code, request_id = HEAD.unpack(self._head)
        if length < ID_BYTES:
            raise ProtocolError(f"a frame of {length} bytes is too short to be one")
        return length - ID_BYTES, code, request_id

    def receive_body(self, size: int, *, to_keep: bool = False) -> memoryview:
        """The next `size` bytes; unless they are to be kept, the next frame overwrites them."""
        if to_keep or size > _KEPT_BYTES:
            # Unlike a bytearray this is not filled with zeros first: memory is used as bytes arrive.
            view = np.empty(size, np.uint8).data
        else:
            if size > len(self._kept):
                self._kept = bytearray(min(max(2 * size, 4096), _KEPT_BYTES))
            view = memoryview(self._kept)[:size]
        self._fill(view, self._deadline(size))
        return view.toreadonly()

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self._frame_timeout_s + size / _BYTES_PER_S

    def _fill(self, view: memoryview, deadline: float) -> None:
        while len(view):
            try:
                got = self._sock.recv_into(view)
            except TimeoutError:
                raise SlowPeerError("the peer did not go on inside a frame") from None
            except (ConnectionError, ssl.SSLError) as error:
                raise PeerGoneError(f"the connection broke: {error}") from None
            if not got:
                raise PeerGoneError("the peer closed the connection")
            view = view[got:]
            if len(view) and time.monotonic() > deadline:
                raise SlowPeerError("the peer was too slow inside a frame")

    # -- sending ---------------------------------------------------------------------------------

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Hand all of it to the operating system, or raise PeerGoneError."""
        deadline = self._deadline(sum(map(len, buffers)))
        rest = [memoryview(b) for b in buffers if len(b)]
        if isinstance(self._sock, ssl.SSLSocket):
            rest = [memoryview(b"".join(rest))]
        while rest:
            try:
                if isinstance(self._sock, ssl.SSLSocket):
                    sent = self._sock.send(rest[0])
                else:
                    sent = self._sock.sendmsg(rest)
            except TimeoutError:
                raise SlowPeerError("the peer does not take its answer") from None
            except (ConnectionError, ssl.SSLError) as error:
                raise PeerGoneError(f"the connection broke: {error}") from None
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][sent:]
                if time.monotonic() > deadline:
                    raise SlowPeerError("the peer takes its answer too slowly")

    # -- life ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Take no more from the peer: whoever waits for a frame sees the end; what is sent still arrives."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def close(self, *, linger: bool = False) -> None:
        """End the connection; with `linger` the peer has a moment to read what was sent last.

        A TCP connection that is closed while unread bytes have arrived is reset, and the peer never sees the
        error that says why.
        """
        if linger and not isinstance(self._sock, ssl.SSLSocket):
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
                self._sock.settimeout(_LINGER_S)
                deadline, scrap = time.monotonic() + _LINGER_S, bytearray(1 << 16)
                while self._sock.recv_into(scrap) and time.monotonic() < deadline:
                    pass
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
