"""What a store lies on: which acknowledgement counts there, and what kind of file system and device it is."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from urllib.parse import quote

_MEMORY = frozenset({"tmpfs", "ramfs"})
_VIRTUAL = ("/virtio", "/vbd-", "/vmbus")
"""In the path of a device that a hypervisor makes up: it says that it rotates, whatever is behind it."""


@dataclass(frozen=True, slots=True)
class Medium:
    """A folder for stores, and whether a write there has to be forced to stable storage."""

    name: str
    folder: str
    durable: bool

    def address(self, scheme: str) -> str:
        """A store of that scheme in a new folder."""
        level = "fsync" if self.durable else "os"
        return f"{scheme}://{quote(os.path.join(self.new_folder(scheme), 'store'))}?durability={level}"

    def new_folder(self, name: str) -> str:
        """A folder that nothing else is in."""
        return tempfile.mkdtemp(dir=self.folder, prefix=f"{name}-")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """The file system of a folder, as far as the system tells."""

    kind: str
    """`ext4`, `nfs4`, `tmpfs` and so on."""
    device: str
    """`rotating disk`, `flash`, `memory`, `virtual disk` (which hides what it is), or `unknown`."""

    @property
    def seeks(self) -> bool:
        """Whether a head has to move."""
        return self.device == "rotating disk"

    def __str__(self) -> str:
        return f"{self.kind} on {self.device}" if self.device != "unknown" else self.kind


def filesystem(folder: str) -> Filesystem:
    """The file system that a folder is on.

    Examples
    --------
    >>> filesystem("/proc").kind
    'proc'
    """
    number = os.stat(folder).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    kind = "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            of_mount, _, of_system = line.partition(" - ")
            if of_mount.split()[2] == name:
                kind = of_system.split()[0]
    if kind in _MEMORY:
        return Filesystem(kind, "memory")
    device = f"/sys/dev/block/{name}"
    if any(mark in os.path.realpath(device) for mark in _VIRTUAL):
        return Filesystem(kind, "virtual disk")
    # A partition has no queue of its own; the disk it is on is the folder above.
    for queue in (f"{device}/queue", f"{device}/../queue"):
        try:
            with open(f"{queue}/rotational", encoding="ascii") as file:
                return Filesystem(kind, "rotating disk" if file.read().strip() == "1" else "flash")
        except OSError:
            continue
    return Filesystem(kind, "unknown")
