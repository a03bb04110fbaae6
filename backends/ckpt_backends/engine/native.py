"""The compiled half of the log, where there is one; without it everything is the same, only slower.

`native.c` is compiled when a wheel or an editable install is made on a machine with a C compiler. It does in
one call what the Python beside it does record by record, and leaves every question to that Python that is not
about an intact, ordinary record. With `CKPT_PURE=1` in the environment it is not used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ckpt_backends.engine.runs import Run
    from ckpt_backends.engine.segment import Segment

_INTERFACE = 4
"""What this module expects; one that was compiled before `native.c` changed in that respect is not used."""


class Entries(Protocol):
    """The columns of a run for compiled lookups."""

    verified: bytearray
    """A byte for each chunk: whether its checksum was compared."""


class Native(Protocol):
    """What `native.c` offers."""

    Entries: Callable[[memoryview], Entries]
    """The columns of a run with an intact head, or ValueError."""

    def get_each(
        self,
        keys: list[bytes],
        namespace: int,
        seed: int,
        tables: list[dict[bytes, int]],
        runs: tuple[Run, ...],
        live: frozenset[int],
        segments: dict[int, Segment],
        fetch: Callable[[int], Segment],
        answer: dict[bytes, bytes],
        /,
    ) -> list[bytes]:
        """Put the values of plain keys into `answer`; the keys that need a closer look.

        A key that is in neither has no value. `tables` are searched before `runs`, and these in order. What
        is live and not among the segments is fetched.
        """

    def hash_pieces(
        self,
        blob: bytes | memoryview,
        lengths: npt.NDArray[np.uint32],
        seed: int,
        hashes: npt.NDArray[np.uint64],
        /,
    ) -> None:
        """Write the xxh3-64 of each piece of a blob."""

    def sealed_puts(
        self, items: dict[bytes, bytes], namespace: int, sequence: int, durable: int, epoch: int, seed: int, /
    ) -> tuple[bytes, list[bytes]] | None:
        """The whole frame of puts of a plain namespace, as `seal` makes it of what `build_body` made.

        And its keys, in order. None if there are none, if something is not exactly bytes, or if it is so
        long that it is better written from where it is.
        """


def _load() -> Native | None:
    if os.environ.get("CKPT_PURE", "0") not in ("", "0"):
        return None
    try:
        found = importlib.import_module("ckpt_backends.engine._native")
    except ImportError:
        return None
    return cast("Native", found) if found.INTERFACE == _INTERFACE else None


native = _load()
"""The compiled half, or None."""
