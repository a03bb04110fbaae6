"""The life of a sidecar process: one for each user and address of a host, found by the second client on.

A sidecar that listens on a unix socket holds a lock beside it as long as it lives. The process that gets the
lock is the sidecar; one that does not waits until the socket answers, or until it gets the lock. The system
gives the lock back when a process is killed, and the next one replaces the socket that it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import stat
import threading
import time
from dataclasses import dataclass
from typing import Self

from ckpt.contract.addresses import parse_address
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar.client import SidecarClient
from ckpt.sidecar.listeners import MAX_PATH_BYTES, require_private_folder
from ckpt.sidecar.server import Sidecar

_LOOK_AGAIN_S = 0.05
_PROBE_S = 5.0
_DIGITS = 24
_SUFFIX = ".sock"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sidecar is found: its socket, the lock that says it lives, and its log."""

    socket: str

    @property
    def lock(self) -> str:
        """The file whose lock the living sidecar holds."""
        return f"{self.socket}.lock"

    @property
    def log(self) -> str:
        """Where a sidecar on demand writes what went wrong: its starter may be gone."""
        return f"{self.socket}.log"

    @classmethod
    def of(cls, address: str) -> Place:
        """The place that every process of this user finds for an address, however it writes the address.

        Its name is a hash, because an address may hold a secret.
        """
        digest = hashlib.sha256(_one_spelling(address).encode()).hexdigest()
        return cls(os.path.join(runtime_folder(), f"{digest[:_DIGITS]}{_SUFFIX}"))


def _one_spelling(address: str) -> str:
    """The same text for addresses that differ in the order of options, or in how they write a path."""
    parsed = parse_address(address)
    location = os.path.realpath(parsed.path) if parsed.location.startswith("/") else parsed.location
    return repr((parsed.scheme, location, sorted(parsed.options.items())))


def runtime_folder() -> str:
    """A folder of mode 0700 that is this user's and that all processes of the user agree on."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    fits = len(os.fsencode(base)) + len("/ckpt/") + _DIGITS + len(_SUFFIX) <= MAX_PATH_BYTES
    usable = fits and os.path.isabs(base) and os.access(base, os.W_OK)
    folder = os.path.join(base, "ckpt") if usable else f"/tmp/ckpt-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(f"{folder} is not a folder of this user; remove it, or set XDG_RUNTIME_DIR")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(folder, 0o700)
    return folder


class PlaceLock:
    """Held by the one sidecar of a place until it closes it, or ends in any way."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    @classmethod
    def take(cls, place: Place) -> Self | None:
        """The lock, or None if another process holds it."""
        require_private_folder(os.path.dirname(place.lock))
        while True:
            descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(descriptor, place.lock):
                    return cls(place.lock, descriptor)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last holder has just removed it

    def close(self) -> None:
        """Give the place up, and leave nothing there."""
        with contextlib.suppress(FileNotFoundError):
            if _is_file(self._descriptor, self._path):
                os.unlink(self._path)
        os.close(self._descriptor)


def _is_file(descriptor: int, path: str) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def take_or_find(place: Place, timeout_s: float) -> PlaceLock | None:
    """The lock of a place that has no sidecar; None once the place's sidecar answers.

    A sidecar that was found stays for its grace at least, as if a lifeline had just been closed.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if (lock := PlaceLock.take(place)) is not None:
            return lock
        if answers(place):
            return None
        if time.monotonic() > deadline:
            raise BackendUnavailableError(
                f"a process holds {place.lock} and does not answer at {place.socket}; "
                "wait until it has opened its backend, or end it"
            )
        time.sleep(_LOOK_AGAIN_S)


def answers(place: Place) -> bool:
    """Whether a sidecar lets us in there, and will not end at once."""
    client = SidecarClient(place.socket, timeout_s=_PROBE_S)
    try:
        with client.lifeline():
            return True
    except BackendUnavailableError:
        return False


class Ending:
    """Waits until the process is to end: told by a signal, or because no client needs it any more.

    A signal handler may run at any point of the main thread, so it takes no lock: it writes to a pipe.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._before = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}

    def _on_signal(self, *_: object) -> None:
        self.now()

    def now(self) -> None:
        """The process is to end."""
        os.write(self._write, b".")

    def wait(self) -> None:
        """Return when it is."""
        os.read(self._read, 1)

    def when_unneeded(self, sidecar: Sidecar, grace_s: float, stdin: int = 0) -> None:
        """End once standard input is closed and no client has held a lifeline for the grace."""

        def watch() -> None:
            with contextlib.suppress(OSError):  # there may be no standard input at all
                while os.read(stdin, 4096):
                    pass
            sidecar.stir()
            if sidecar.end_when_alone(grace_s):
                self.now()

        threading.Thread(target=watch, name="ckpt-sidecar-watch", daemon=True).start()

    def close(self) -> None:
        """Give the signals back. The pipe stays, because a handler may still be about to write to it."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def first_line(stdin: int = 0) -> str:
    """The first line of standard input, and not a byte more: what follows says when the starter has gone."""
    line = bytearray()
    while (byte := os.read(stdin, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode().strip()


def leave_the_terminal() -> None:
    """Leave the terminal's session: Ctrl-C there must not end a sidecar that other programs use, too."""
    with contextlib.suppress(PermissionError):  # it leads a session of its own already
        os.setsid()
