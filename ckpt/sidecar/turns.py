"""Short turns on the processor, so that a request is not kept waiting until a busy neighbour's turn is over.

A sidecar shares its host with executors that keep all processors busy. It works for a fraction of a
millisecond at a time, and a client waits for that; but Linux lets the running thread finish its turn first,
which takes milliseconds. Since 6.12 a thread may ask for turns of another length, and one with shorter turns
need not wait for the end of a longer one. That gives it no larger share, and needs no privilege.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

TURN_NS = 100_000
"""The shortest that Linux grants."""
_ATTRIBUTES = struct.Struct("@IIQiIQQQ")
"""The kernel's `struct sched_attr`: size, policy, flags, nice, priority, runtime (the turn), and more."""
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
"""Numbers of the system call by machine; neither Python nor most C libraries have a name for it."""


def take_short_turns() -> bool:
    """This thread and those it starts from now on take short turns; False where the system has none.

    Kernels before 6.12 say yes and change nothing.
    """
    number = _SET_ATTRIBUTES.get(platform.machine())
    if platform.system() != "Linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)  # set along with the rest, so it has to be said again
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, TURN_NS, 0, 0)
    done: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return done == 0
