"""What is known about a server after the process that started it has ended: `server.json` in its folder."""

from __future__ import annotations

import os
from typing import Self

import msgspec

from ckpt.dev import cache
from ckpt.dev.processes import Process

_FILE = "server.json"


class ServerState(msgspec.Struct):
    """The ports and processes of a server; a folder without a readable file knows of none."""

    ports: dict[str, int] = {}
    written: str = ""
    """The hash of the configuration files as they were written."""
    answered: bool = False
    """Whether it ever has, so that there is nothing left to set up."""
    processes: dict[str, Process] = {}

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read it."""
        try:
            with open(os.path.join(folder, _FILE), "rb") as file:
                return msgspec.json.decode(file.read(), type=cls)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return cls()

    def save(self, folder: str) -> None:
        """Write it, whole or not at all."""
        cache.write_file(os.path.join(folder, _FILE), msgspec.json.encode(self).decode())

    def living(self) -> dict[str, Process]:
        """The processes that are alive, by role."""
        return {role: process for role, process in self.processes.items() if process.alive}
