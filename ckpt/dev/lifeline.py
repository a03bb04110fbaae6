"""Servers that a process has for itself die with it, however it ends: by `kill -9`, too.

A second process holds the other end of a pipe, through which it is told the folders of the servers. When the
pipe closes, the first process has ended, and what still runs in these folders is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from ckpt.dev import processes
from ckpt.dev.state import ServerState

_END = b"\0"


class Lifeline:
    """Kills servers when this process ends, or when told to; meanwhile they may be stopped and started."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None

    def hold(self, folder: str) -> None:
        """From now on, the server in this folder ends with this process, if not before."""
        if self._watcher is None:
            self._watcher = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is not for it
            )
        assert self._watcher.stdin is not None
        self._watcher.stdin.write(os.fsencode(folder) + _END)

    def cut(self) -> None:
        """Kill the servers that still run, and return when they are gone."""
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None
            watcher.communicate()


def watch() -> None:
    """Wait until no process holds the other end of standard input, then kill the servers it named."""
    named = sys.stdin.buffer.read().split(_END)[:-1]
    for folder in named:
        processes.kill(list(ServerState.load(os.fsdecode(folder)).living().values()))


if __name__ == "__main__":
    watch()
