"""Ports for servers that are stopped and started again: still free then, as far as that can be had.

Ports come from below the range that the kernel gives to outgoing connections. A port of that range may be
taken by any client while its server is down, and a client that knocks at a closed port of it can end up
connected to itself.
"""

from __future__ import annotations

import random
import socket

from ckpt.errors import BackendUnavailableError

HOST = "127.0.0.1"
_LOWEST, _RANGE_FILE = 15_000, "/proc/sys/net/ipv4/ip_local_port_range"
_TRIES = 1000


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface now."""
    with socket.socket() as probe:
        # As servers do: connections of a server that was killed may linger for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of the loopback interface that no process listens on."""
    top = _first_ephemeral()
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, top)
        if is_free(port):
            return port
    raise BackendUnavailableError(f"no free port between {_LOWEST} and {top} on {HOST}; stop some servers")


def _first_ephemeral() -> int:
    try:
        with open(_RANGE_FILE, encoding="ascii") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first = 0
    return first if first > _LOWEST + _TRIES else 32_768
