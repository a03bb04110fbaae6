"""A network that misbehaves on request: what arrives is what was sent, in order, as far as it arrives.

That much TCP promises, and it holds through the proxy too. Everything else may happen to a connection: delay,
silence, a reset, an end in the middle of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import socket
import struct
import termios
import threading
from collections.abc import Coroutine
from typing import Any, Literal, Self, TypeAlias

from ckpt.dev import ports
from ckpt.errors import ConfigError

Direction: TypeAlias = Literal["to_client", "to_server"]

_CHUNK_BYTES = 64 << 10
_QUEUED_CHUNKS = 64
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CALL_TIMEOUT_S = 30.0
_DELIVERY_POLL_S = 0.001


class _AllowanceUsedError(OSError):
    """A connection has delivered what it was still allowed to."""


class _Link:
    """One connection of a client, and the connection to the server that belongs to it."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.closed: set[Direction] = set()
        for end in (self.client, self.server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def source(self, direction: Direction) -> socket.socket:
        return self.server if direction == "to_client" else self.client

    def target(self, direction: Direction) -> socket.socket:
        return self.client if direction == "to_client" else self.server

    def end(self, direction: Direction) -> None:
        """Say "nothing more comes" in one direction, as the end of a program does."""
        self.closed.add(direction)
        with contextlib.suppress(OSError):
            self.target(direction).shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool) -> None:
        for end in (self.client, self.server):
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.close()


class TcpProxy:
    """Listens on a port of its own and passes everything on to a server, until told otherwise.

    Its methods return when what they do has been done. `restore` makes the network whole again.

    Examples
    --------
    >>> import socket
    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     with TcpProxy(*server.getsockname()) as proxy:
    ...         with socket.create_connection((proxy.host, proxy.port)) as client:
    ...             client.sendall(b"hello")
    ...             behind, _ = server.accept()
    ...             with behind:
    ...                 print(behind.recv(5))
    ...                 proxy.half_close("to_server")
    ...                 print(behind.recv(5))
    b'hello'
    b''
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.host = ports.HOST
        self.port = ports.free_port()
        self._accepted = 0
        self._delay_s = 0.0
        self._allowed_bytes: dict[Direction, int] = {}
        self._links: dict[_Link, asyncio.Task[bool]] = {}
        self._listener: socket.socket | None = None
        self._flowing = asyncio.Event()
        self._heard = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"ckpt-proxy-{self.port}", daemon=True)
        self._thread.start()
        self.restore()

    @property
    def connections(self) -> int:
        """How many connections of clients there have been so far."""
        return self._accepted

    @property
    def open_connections(self) -> int:
        """How many there are now."""
        return len(self._links)

    def delay(self, seconds: float) -> None:
        """From now on, every byte arrives this much later, in both directions."""
        self._do(self._set_delay(seconds))

    def freeze(self) -> None:
        """Let nothing through in either direction; connections stay open and new ones are accepted."""
        self._do(self._set_flowing(False))

    def wait_for_client(self) -> None:
        """Return when a client has connected or sent something since the last `freeze`."""
        self._do(self._hear())

    def thaw(self) -> None:
        """End a freeze; what was sent meanwhile arrives."""
        self._do(self._set_flowing(True))

    def drop(self) -> None:
        """Reset all connections; new ones are welcome."""
        self._do(self._reset_all())

    def cut(self) -> None:
        """Reset all connections, and refuse new ones until `restore`."""
        self._do(self._cut())

    def cut_after(self, count: int, direction: Direction = "to_client") -> None:
        """Let so many more bytes through in one direction, then reset the connection, once.

        Bytes of all connections count; the connection that would exceed their number is reset, no other.
        """
        if count < 0:
            raise ConfigError(f"a number of bytes is not below 0, got {count}")
        self._do(self._allow(count, direction))

    def half_close(self, direction: Direction = "to_client") -> None:
        """End one direction of all connections: its reader meets the end; the other direction goes on."""
        self._do(self._end_all(direction))

    def restore(self) -> None:
        """Make the network whole again: no delay, no freeze, and connections are accepted."""
        self._do(self._restore())

    def close(self) -> None:
        """Reset all connections and end; nothing is left of it."""
        if self._thread.is_alive():
            self._do(self._cut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Below runs in the thread of the proxy only.

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._thread.is_alive():
            work.close()
            raise ConfigError(f"the proxy on port {self.port} is closed")
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    async def _set_delay(self, seconds: float) -> None:
        self._delay_s = seconds

    async def _set_flowing(self, flowing: bool) -> None:
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()
            self._heard.clear()

    async def _hear(self) -> None:
        await self._heard.wait()

    async def _allow(self, count: int, direction: Direction) -> None:
        self._allowed_bytes[direction] = count

    async def _end_all(self, direction: Direction) -> None:
        for link in self._links:
            link.end(direction)

    async def _restore(self) -> None:
        self._delay_s = 0.0
        self._allowed_bytes.clear()
        self._flowing.set()
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port))
            self._listener.setblocking(False)
            # Not `sock_accept`: cancelled at the wrong moment, it loses a connection that it has accepted.
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _cut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._reset_all()

    async def _reset_all(self) -> None:
        tasks = list(self._links.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it has gone again
        self._accepted += 1
        self._heard.set()
        link = _Link(client)
        self._links[link] = task = self._loop.create_task(self._serve(link))
        # Not in the task itself: one that is cancelled before it has begun never runs at all.
        task.add_done_callback(functools.partial(self._close_link, link))

    def _close_link(self, link: _Link, task: asyncio.Task[bool]) -> None:
        link.close(reset=task.cancelled() or not task.result())
        del self._links[link]

    async def _serve(self, link: _Link) -> bool:
        """Pass on until both directions have ended; whether they ended in order."""
        in_order = False
        try:
            await self._flowing.wait()
            await self._loop.sock_connect(link.server, self._upstream)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(link, "to_server"))
                both.create_task(self._pass_on(link, "to_client"))
            in_order = True
        except* OSError:
            pass  # refused, reset by one side, or used up: the other side learns it by a reset
        return in_order

    async def _pass_on(self, link: _Link, direction: Direction) -> None:
        queue = asyncio.Queue[tuple[float, bytes]](_QUEUED_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._receive(link, direction, queue))
            both.create_task(self._send(link, direction, queue))

    async def _receive(
        self, link: _Link, direction: Direction, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"."
        while data:
            data = await self._loop.sock_recv(link.source(direction), _CHUNK_BYTES)
            if direction == "to_server":
                self._heard.set()
            await queue.put((self._loop.time() + self._delay_s, data))

    async def _send(
        self, link: _Link, direction: Direction, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(due - self._loop.time(), 0))
            await self._flowing.wait()
            if not data:
                link.end(direction)
                return
            if direction in link.closed:
                continue  # half-closed: what still comes goes nowhere
            allowed = self._allowed_bytes.get(direction, len(data))
            if direction in self._allowed_bytes:
                self._allowed_bytes[direction] = max(allowed - len(data), 0)
            try:
                await self._loop.sock_sendall(link.target(direction), data[:allowed])
            except OSError:
                if direction not in link.closed:
                    raise
            if allowed < len(data):
                del self._allowed_bytes[direction]
                await _delivered(link.target(direction))
                raise _AllowanceUsedError


async def _delivered(connection: socket.socket) -> None:
    """Wait until the other side has everything, which a reset would take back from the kernel's buffer."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        await asyncio.sleep(_DELIVERY_POLL_S)
