"""Where a sidecar listens: a unix socket that only its user can open, or TCP with a token.

A unix socket takes no connection before its mode is 0600, and a client's user id is asked for as well: the
mode guards the name, the credentials guard against a client that got around it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct

from ckpt.errors import ConfigError

_BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")
_ROOT = 0
MAX_PATH_BYTES = 107
"""What Linux has room for in the address of a unix socket."""


class UnixListener:
    """A unix socket of mode 0600. A stale one at its path is replaced: our caller holds the lock."""

    def __init__(self, path: str) -> None:
        self.path = self.name = os.path.abspath(path)
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise ConfigError(
                f"the socket path {self.path} is longer than {MAX_PATH_BYTES} bytes; name a shorter one"
            )
        require_private_folder(os.path.dirname(self.path))
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise ConfigError(f"{self.path} exists and is no socket; name another path")
            os.unlink(self.path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(self.path)
            # Clients can connect only after listen(), so none finds it with another mode.
            os.chmod(self.path, 0o600)
            self._socket.listen(_BACKLOG)
            self._inode = os.lstat(self.path).st_ino
        except BaseException:
            self._socket.close()
            raise

    def accept(self) -> socket.socket:
        """The next connection; OSError once the listener was stopped."""
        return self._socket.accept()[0]

    def may_enter(self, connection: socket.socket) -> bool:
        """Whether the other end runs as the same user, or as root, which nothing keeps out anyway."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return _CREDENTIALS.unpack(raw)[1] in (os.geteuid(), _ROOT)

    def stop(self) -> None:
        """Take no more connections and remove the socket's name, unless it is another's by now."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)


class TcpListener:
    """A TCP socket; clients are let in by token, so it does not tell them apart."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._socket = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on {host} port {port}: {error}; choose another") from error
        self.host, self.port = self._socket.getsockname()[:2]
        self.name = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def accept(self) -> socket.socket:
        """The next connection; OSError once the listener was stopped."""
        return self._socket.accept()[0]

    def may_enter(self, connection: socket.socket) -> bool:
        """The token decides, see `Session.let_in`."""
        del connection
        return True

    def stop(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


Listener = UnixListener | TcpListener


def require_private_folder(folder: str) -> None:
    """Make the folder with mode 0700 if it is missing; refuse one in which others could replace our files."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(folder, mode=0o700)
    found = os.stat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{folder} is no folder; name another path")
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if others_write or found.st_uid not in (os.geteuid(), _ROOT):
        raise ConfigError(
            f"others may replace what lies in {folder}; name a folder that is yours, with mode 0700"
        )
