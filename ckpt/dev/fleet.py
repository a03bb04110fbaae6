"""The servers that everybody on this machine shares, one of each kind: started once, found again by anybody.

`up` and `down` are what a user says. A test *leases* a server: it is started if it does not run, and stopped
when the last lease on it ends, unless a user has asked for it with `up`. So test sessions that overlap share
servers, and whichever ends last cleans up. Leases are locks of the kernel, which no crash leaves behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from types import TracebackType
from typing import Self

import msgspec

from ckpt.dev import cache
from ckpt.dev.kinds import NAMES, checked, server
from ckpt.dev.server import Server

_KEPT = "kept"


class Running(msgspec.Struct, frozen=True):
    """A server that runs: what `open_backend` takes, and the numbers of its processes."""

    address: str
    pids: list[int]


def shared(name: str) -> Server:
    """The shared server of this name, whether or not it runs."""
    return server(checked(name), cache.folder("servers", name))


def status() -> dict[str, Running]:
    """The shared servers of which every process is alive, by name."""
    found = {name: shared(name) for name in NAMES}
    return {name: Running(one.address, list(one.pids.values())) for name, one in found.items() if one.running}


def up(name: str, *, report: cache.Report = cache.silent, cancelled: threading.Event | None = None) -> Server:
    """Start a shared server unless it runs, wait until it answers, and keep it until `down`."""
    one = shared(name)
    with _changing(name, report, cancelled):
        one.start(report=report, cancelled=cancelled, may_move=True)
        cache.write_file(_kept(one), "")
    return one


def down(name: str, *, wipe: bool = False, report: cache.Report = cache.silent) -> bool:
    """Stop a shared server, whoever uses it; with `wipe`, remove its data. Whether there was a process."""
    one = shared(name)
    with _changing(name, report):
        ran = bool(one.pids)
        _stop(one)
        if wipe:
            shutil.rmtree(one.folder, ignore_errors=True)
    return ran


class Lease:
    """The use of a shared server: it runs from here on, and until `release` nobody's tests stop it."""

    def __init__(self, name: str, *, report: cache.Report = cache.silent) -> None:
        self.server = shared(name)
        self._name = name
        with contextlib.ExitStack() as stack:
            users = stack.enter_context(cache.open_lock(f"{name}-users"))
            with _changing(name, report):
                fcntl.flock(users, fcntl.LOCK_SH)
                self.server.start(report=report, may_move=True)
            self._users = users
            self._held = stack.pop_all()

    @property
    def address(self) -> str:
        """What `open_backend` takes."""
        return self.server.address

    def release(self) -> None:
        """End the lease; if it was the last one, and no user asked for the server, stop it."""
        with self._held, _changing(self._name, cache.silent):
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not os.path.exists(_kept(self.server)):
                _stop(self.server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _changing(
    name: str, report: cache.Report, cancelled: threading.Event | None = None
) -> contextlib.AbstractContextManager[None]:
    return cache.locked(f"server-{name}", report=report, cancelled=cancelled)


def _kept(one: Server) -> str:
    return os.path.join(one.folder, _KEPT)


def _stop(one: Server) -> None:
    one.stop()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_kept(one))
