"""The sidecar: one process per host that serves a backend's versioned namespaces to JVM and Python workers.

`ckpt serve ADDRESS` runs one; `docs/protocol.md` says which bytes it speaks.
"""

from ckpt.sidecar.client import RemoteHistory, SidecarClient
from ckpt.sidecar.listeners import TcpListener, UnixListener
from ckpt.sidecar.server import Sidecar, SidecarOptions
from ckpt.sidecar.sessions import Door

__all__ = [
    "Door",
    "RemoteHistory",
    "Sidecar",
    "SidecarClient",
    "SidecarOptions",
    "TcpListener",
    "UnixListener",
]
