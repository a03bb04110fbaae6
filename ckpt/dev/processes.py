"""Processes of ours that outlive us: no signal ever reaches a process that only has the same number.

A process is known by its number *and* the moment it started, in this boot of the machine. Signals go through
a descriptor of the process (pidfd), so a number that the kernel reuses in between is no risk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started and has to reap, by number."""


class Process(msgspec.Struct, frozen=True):
    """One process, and no other that may get its number later."""

    pid: int
    started_ticks: int
    boot: str

    @property
    def alive(self) -> bool:
        """It runs, or is frozen; a process that has ended and waits to be reaped is not alive."""
        with self._descriptor() as descriptor:
            return descriptor is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process is still there."""
        with self._descriptor() as descriptor:
            if descriptor is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether the process has ended within that time."""
        with self._descriptor() as descriptor:
            if descriptor is not None and not _has_ended(descriptor, timeout_s):
                return False
        _reap(self.pid)
        return True

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int | None]:
        _reap(self.pid)
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as error:
            # No process has the number, or by now a thread of another process has it.
            if error.errno not in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
                raise
            yield None
            return
        try:
            # Only after the descriptor is open: now the number cannot be handed on unnoticed.
            same = _started_ticks(self.pid) == self.started_ticks and self.boot == _boot()
            yield descriptor if same and not _has_ended(descriptor, 0) else None
        finally:
            os.close(descriptor)


def spawn(command: Sequence[str], *, folder: str, log: str, environment: Mapping[str, str]) -> Process:
    """Start a process in a session of its own, so that it outlives this one and hears no Ctrl-C."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
        )
    _children[child.pid] = child
    # Should it be dead already, it still has its number until it is reaped, which happens here only.
    return Process(child.pid, _started_ticks(child.pid), _boot())


def terminate(processes: Sequence[Process], *, grace_s: float) -> None:
    """End processes: SIGTERM, then SIGKILL for those that run after the grace; returns when all are gone.

    A frozen process is thawed, or it would never hear the first signal.
    """
    for process in processes:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    kill([process for process in processes if not process.wait(deadline - time.monotonic())])


def kill(processes: Sequence[Process]) -> None:
    """End processes with SIGKILL; returns when all are gone."""
    for process in processes:
        process.signal(signal.SIGKILL)
    for process in processes:
        while not process.wait(60.0):
            process.signal(signal.SIGKILL)


def descendants(pid: int) -> list[Process]:
    """The processes that this one has started, and those that they have, as far as their parents live."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children.setdefault(int(_fields(f"/proc/{entry}/stat")[1]), []).append(int(entry))
    found, boot = [pid], _boot()
    for parent in found:
        found += children.get(parent, [])
    return [Process(child, _started_ticks(child), boot) for child in found[1:]]


def kill_tree(child: subprocess.Popen[Any]) -> None:
    """End a child of this process and all that it has started, as when a machine fails; none is left then."""
    tree = descendants(child.pid)
    child.kill()
    kill(tree)
    child.wait()


def freeze(processes: Sequence[Process]) -> None:
    """Suspend processes; returns when no thread of them runs, which on a busy machine takes a moment."""
    for process in processes:
        process.signal(signal.SIGSTOP)
    for process in processes:
        while process.alive and not _is_frozen(process.pid):
            time.sleep(0.001)


def _is_frozen(pid: int) -> bool:
    states = []
    for thread in _threads(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(_fields(f"/proc/{pid}/task/{thread}/stat")[0])
    return all(state in b"tTZX" for state in states)


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _reap(pid: int) -> None:
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)


def _has_ended(descriptor: int, timeout_s: float) -> bool:
    """Whether all threads of a process have ended within that time, so that its files and ports are closed.

    Its first thread may be a zombie long before that, so the state of the process in /proc says nothing.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(timeout_s, 0) * 1000))


def _started_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 if there is none."""
    try:
        return int(_fields(f"/proc/{pid}/stat")[19])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def _fields(path: str) -> list[bytes]:
    """What the kernel says about a process or a thread, from its state on."""
    with open(path, "rb") as file:
        # The name stands in parentheses and may contain anything, also parentheses.
        return file.read().rpartition(b")")[2].split()


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
