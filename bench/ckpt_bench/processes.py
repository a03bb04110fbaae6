"""What a process and those that it has started have used, as Linux shows it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ckpt.dev.processes import descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of the process, of its living descendants, and of those that were waited for.

    Examples
    --------
    >>> before = cpu_seconds(os.getpid())
    >>> cpu_seconds(os.getpid()) >= before
    True
    """
    ticks = sum(_ticks(each) for each in (pid, *(process.pid for process in descendants(pid))))
    return ticks / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process has in memory."""

    resident_bytes: int
    """All of it; also pages of files, which the system keeps as long as there is room."""
    own_bytes: int
    """Without those: what nobody can take away."""


def memory() -> Memory:
    """Of this process, now.

    Examples
    --------
    >>> found = memory()
    >>> found.resident_bytes >= found.own_bytes > 0
    True
    """
    found = {}
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.startswith(("VmRSS", "RssAnon")):
                found[name] = int(value.split()[0]) * 1024
    return Memory(found["VmRSS"], found["RssAnon"])


def _ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may contain anything, also parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))
