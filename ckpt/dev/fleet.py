"""The servers that all users of this machine share, one of each kind: started once, found again by all.

`up` and `down` are what a user says. A test *leases* a server: it is started if it does not run, and stopped
when the last lease on it ends, unless a user has asked for it with `up`. So test sessions that overlap share
servers, and whichever ends last cleans up; data that no user ever asked for goes too, so that tests begin
with an empty server. Leases are locks of the kernel, which no crash leaves behind.
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

_KEPT, _DISPOSABLE = "kept", "disposable"
"""Files in a server's folder: a user wants it to run; only tests have ever used it."""


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
        _unmark(one, _DISPOSABLE)
        _mark(one, _KEPT)
    return one


def down(name: str, *, wipe: bool = False, report: cache.Report = cache.silent) -> bool:
    """Stop a shared server, also one in use; with `wipe`, remove its data. Whether there was a process."""
    one = shared(name)
    with _changing(name, report):
        ran = bool(one.pids)
        _stop(one)
        if wipe:
            _wipe(one)
    return ran


class Lease:
    """The use of a shared server: it runs from here on, and until `release` no test run stops it."""

    def __init__(self, name: str, *, report: cache.Report = cache.silent) -> None:
        self.server = shared(name)
        self._name = name
        with contextlib.ExitStack() as stack:
            users = stack.enter_context(cache.open_lock(f"{name}-users"))
            with _changing(name, report):
                fcntl.flock(users, fcntl.LOCK_SH)
                self._start(report)
            self._users = users
            self._held = stack.pop_all()

    @property
    def address(self) -> str:
        """What `open_backend` takes."""
        return self.server.address

    def revive(self) -> None:
        """Start the server again if it was ended."""
        if not self.server.running:
            with _changing(self._name, cache.silent):
                self._start(cache.silent)

    def release(self) -> None:
        """End the lease; if it was the last one, and no user asked for the server, stop it."""
        with self._held, _changing(self._name, cache.silent):
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not _is_marked(self.server, _KEPT):
                _stop(self.server)
                if _is_marked(self.server, _DISPOSABLE):
                    _wipe(self.server)

    def _start(self, report: cache.Report) -> None:
        if not os.path.exists(self.server.folder):
            os.makedirs(self.server.folder, mode=0o700)
            _mark(self.server, _DISPOSABLE)
        self.server.start(report=report, may_move=True)

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


def _mark(one: Server, mark: str) -> None:
    cache.write_file(os.path.join(one.folder, mark), "")


def _unmark(one: Server, mark: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(one.folder, mark))


def _is_marked(one: Server, mark: str) -> bool:
    return os.path.exists(os.path.join(one.folder, mark))


def _stop(one: Server) -> None:
    one.stop()
    _unmark(one, _KEPT)


def _wipe(one: Server) -> None:
    shutil.rmtree(one.folder, ignore_errors=True)
