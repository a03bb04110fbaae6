"""Frames on a socket: whole or an error, and never longer under way than the peer is granted.

Between frames a peer may be silent as long as it likes; inside a frame it has a bounded time, which grows
with the frame's length. So a stuck or malicious peer costs one connection for a while, and no other one.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence

import numpy as np

from ckpt.sidecar.frames import HEAD, HELLO, ID_BYTES, MAGIC, MAX_TOKEN_BYTES, Buffer, ProtocolError

_BYTES_PER_S = 1 << 20
"""The slowest peer that is not cut, once its grace is used up."""
_AHEAD_BYTES = 1 << 16
_KEPT_BYTES = 1 << 20
"""A connection keeps a receive buffer of this size; a longer frame has one of its own."""
_INTERVAL = struct.Struct("@ll")
"""The kernel's `struct timeval`."""
_LINGER_S = 1.0


class PeerGoneError(ConnectionError):
    """The peer closed the connection, or cut it in the middle of a frame."""


class SlowPeerError(PeerGoneError):
    """The peer did not get on with a frame in the time it is granted."""


class Wire:
    """One connection; used by one thread at a time. `has_unread`, `wake`, `close` may come from another."""

    def __init__(self, sock: socket.socket, *, frame_timeout_s: float) -> None:
        self._sock = sock
        self._frame_timeout_s = frame_timeout_s
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ahead = bytearray(_AHEAD_BYTES)
        """What was read beyond what was asked for: head and body of a small frame take one call."""
        self._start = self._end = 0
        self._kept = bytearray()
        self._allow(frame_timeout_s)

    def _allow(self, timeout_s: float) -> None:
        """How long one call may wait for the peer; the kernel counts, at no cost for each call."""
        if isinstance(self._sock, ssl.SSLSocket):
            self._sock.settimeout(timeout_s)
        else:
            let_the_kernel_wait(self._sock, timeout_s)

    def start_tls(self, context: ssl.SSLContext, timeout_s: float, *, server_name: str | None = None) -> None:
        """Encrypt what follows; with a server name as the client, without as the server."""
        self._sock.settimeout(timeout_s)
        secured = context.wrap_socket(
            self._sock,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
        )
        self._sock = secured  # so that another thread can end the handshake
        secured.do_handshake()
        self._allow(self._frame_timeout_s)

    # -- receiving -------------------------------------------------------------------------------

    def receive_hello(self, timeout_s: float) -> tuple[int, int, bytes]:
        """Version, flags and token that a client says first."""
        deadline = time.monotonic() + timeout_s
        self._allow(timeout_s)
        magic, version, flags, token_bytes = HELLO.unpack(self._next(HELLO.size, deadline))
        if magic != MAGIC:
            raise ProtocolError("this is the sidecar of ckpt; the client speaks another protocol")
        if token_bytes > MAX_TOKEN_BYTES:
            raise ProtocolError(f"a token is at most {MAX_TOKEN_BYTES} bytes long")
        token = bytes(self._next(token_bytes, deadline))
        self._allow(self._frame_timeout_s)
        return version, flags, token

    def wait(self) -> bool:
        """Wait for the next frame, however long it takes; False if the peer has closed the connection."""
        while self._start == self._end:
            try:
                self._read_ahead()
            except SlowPeerError:
                continue  # silence between frames is no fault
            except PeerGoneError:
                return False
        return True

    def receive_head(self) -> tuple[int, int, int]:
        """Length of the body, code and request id of the next frame."""
        head = self._next(HEAD.size, time.monotonic() + self._frame_timeout_s)
        length, code, request_id = HEAD.unpack(head)
        if length < ID_BYTES:
            raise ProtocolError(f"a frame of {length} bytes is too short to be one")
        return length - ID_BYTES, code, request_id

    def receive_body(self, size: int, *, to_keep: bool = False) -> memoryview:
        """The next `size` bytes; unless they are to be kept, the next frame overwrites them."""
        deadline = self._deadline(size)
        if size <= _AHEAD_BYTES and not to_keep:
            return self._next(size, deadline)
        if to_keep or size > _KEPT_BYTES:
            # Unlike a bytearray this is not filled with zeros first: memory is used as bytes arrive.
            view = np.empty(size, np.uint8).data
        else:
            if size > len(self._kept):
                self._kept = bytearray(min(2 * size, _KEPT_BYTES))
            view = memoryview(self._kept)[:size]
        read = min(size, self._end - self._start)
        view[:read] = memoryview(self._ahead)[self._start : self._start + read]
        self._start += read
        while read < size:
            read += self._receive_into(view[read:])
            if read < size:
                _require_speed(deadline)
        return view.toreadonly()

    def _next(self, size: int, deadline: float) -> memoryview:
        """The next few bytes, by way of what is read ahead."""
        while self._end - self._start < size:
            if self._start:
                rest = self._ahead[self._start : self._end]
                self._ahead[: len(rest)] = rest
                self._start, self._end = 0, len(rest)
            self._read_ahead()
            if self._end < size:
                _require_speed(deadline)
        self._start += size
        return memoryview(self._ahead)[self._start - size : self._start].toreadonly()

    def _read_ahead(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        self._end += self._receive_into(memoryview(self._ahead)[self._end :])

    def _receive_into(self, view: memoryview) -> int:
        try:
            got = self._sock.recv_into(view)
        except (TimeoutError, BlockingIOError):
            raise SlowPeerError("the peer did not go on inside a frame") from None
        except OSError as error:
            raise PeerGoneError(f"the connection broke: {error}") from None
        if not got:
            raise PeerGoneError("the peer closed the connection")
        return got

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self._frame_timeout_s + size / _BYTES_PER_S

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
            except (TimeoutError, BlockingIOError):
                raise SlowPeerError("the peer does not take its answer") from None
            except OSError as error:
                raise PeerGoneError(f"the connection broke: {error}") from None
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][sent:]
                _require_speed(deadline)

    # -- life ------------------------------------------------------------------------------------

    def has_unread(self) -> bool:
        """Whether something has arrived that was not received yet; the end of the connection counts."""
        arrived = select.poll()
        try:
            arrived.register(self._sock, select.POLLIN)
        except ValueError:  # it was closed meanwhile
            return False
        return bool(arrived.poll(0))

    def wake(self) -> None:
        """Take no more from the peer: a wait for a frame meets the end; what is sent still arrives."""
        self._shut(socket.SHUT_RD)

    def close(self, *, linger: bool = False) -> None:
        """End the connection; with `linger` the peer has a moment to read what was sent last.

        A TCP connection that is closed while unread bytes have arrived is reset, and the peer never sees the
        error that says why.
        """
        if linger and not isinstance(self._sock, ssl.SSLSocket):
            with contextlib.suppress(OSError):
                self._shut(socket.SHUT_WR)
                self._allow(_LINGER_S)
                deadline, scrap = time.monotonic() + _LINGER_S, bytearray(1 << 16)
                while self._sock.recv_into(scrap) and time.monotonic() < deadline:
                    pass
        self._shut(socket.SHUT_RDWR)
        self._sock.close()

    def _shut(self, how: int) -> None:
        # Not the method of an SSLSocket: that one would go on in plain text, with an answer under way.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, how)


def _require_speed(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise SlowPeerError("the peer is too slow inside a frame")


def let_the_kernel_wait(sock: socket.socket, timeout_s: float) -> None:
    """Let calls on the socket block, each for at most that long; then they raise BlockingIOError."""
    sock.settimeout(None)
    interval = _INTERVAL.pack(int(timeout_s), max(int(timeout_s % 1 * 1e6), 1))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, interval)
