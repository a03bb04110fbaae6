"""What a process and those that it has started have used, as Linux shows it."""

from __future__ import annotations

import os

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


def _ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may contain anything, also parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))
