"""What no run holds yet: a write is in these tables as soon as it is made, at the cost of a note.

Recent writes of plain namespaces are a dict per namespace. Recent commits are kept as the frames they are; a
frame's own table of keys is built when it is first asked for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.frame import BadFrameError, lengths_of_ends
from ckpt_backends.engine.hashing import hash_pieces
from ckpt_backends.engine.merge import keep_first
from ckpt_backends.engine.records import Records
from ckpt_backends.engine.runs import U64, hash_keys


class LayerFrame:
    """A recent frame of a versioned namespace: its layer, and where its keys are, computed when asked for.

    It remembers the hashes of the keys as they were written, so whatever happens to the frame afterwards, no
    key of it is taken for one that it does not hold.
    """

    __slots__ = ("_hashes", "_table", "layer", "location", "sequence")

    def __init__(self, layer: int, location: int, sequence: int, hashes: U64 | Callable[[], U64]) -> None:
        self.layer, self.location, self.sequence = layer, location, sequence
        self._hashes = hashes
        self._table: dict[bytes, int] | None = None

    @property
    def hashes(self) -> U64:
        """The hashes of its keys, in order; computed when first asked for, unless the writer did so."""
        if callable(self._hashes):
            self._hashes = self._hashes()
        return self._hashes

    def table(self, keys: Sequence[bytes], records: Records, seed: int) -> dict[bytes, int]:
        """Key to location; CorruptRecordError if one of `keys` is in this frame and cannot be read."""
        if self._table is None:
            places = range(self.location, self.location + len(self.hashes))
            try:
                names = records.intact_frame(self.location).keys()
            except CorruptRecordError:
                return self._table_of_the_rest(keys, records, seed)
            self._table = dict(zip(names, places, strict=True))
        return self._table

    def _table_of_the_rest(self, keys: Sequence[bytes], records: Records, seed: int) -> dict[bytes, int]:
        """The table of a damaged frame: a key that still has its hash is what was written."""
        written: list[int] = self.hashes.tolist()
        places = dict(zip(written, range(self.location, self.location + len(written)), strict=True))
        asked = {places[h] for h in hash_keys(keys, seed).tolist() if h in places}
        if not asked:
            return {}
        names = records.frame(self.location).keys()
        found = zip(names, hash_keys(names, seed).tolist(), written, count(self.location), strict=False)
        table = {key: place for key, now, before, place in found if now == before}
        for place in asked.difference(table.values()):
            raise records.corrupt(place, BadFrameError("the key is not what was written"))
        return table


def hashes_of(ends: npt.NDArray[np.uint32], keys: bytes | memoryview, seed: int) -> U64:
    """The index hashes of the keys of a frame, from where each of them ends."""
    return hash_pieces(keys, lengths_of_ends(ends), seed)


class RecentTable:
    """Recent records of one plain namespace: key to newest location, built when first asked for.

    Checkpoints are written far more often than they are read. So a batch is only noted here; it enters the
    table when a reader comes, or never if a flush comes first.
    """

    __slots__ = ("_lock", "_noted", "_table")

    def __init__(self) -> None:
        self._noted: deque[tuple[Sequence[bytes], int]] = deque()
        self._table: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def note(self, keys: Sequence[bytes], location: int) -> None:
        """The records from `location` on are now the newest of these keys."""
        self._noted.append((keys, location))

    def table(self) -> dict[bytes, int]:
        """Key to newest location. Grows under its reader when more is noted and another reader asks."""
        # The lock also keeps a second reader from seeing a batch that is taken out but not yet entered.
        with self._lock:
            while self._noted:
                keys, location = self._noted.popleft()
                self._table.update(zip(keys, range(location, location + len(keys)), strict=True))
            return self._table

    def absorb(self, newer: RecentTable) -> None:
        """Everything that `newer` holds is newer than what is here."""
        self.table().update(newer.table())

    def forget(self, gone: Callable[[int], bool]) -> None:
        """Drop the records whose location is gone."""
        self._table = {key: location for key, location in self.table().items() if not gone(location)}

    def columns(self, seed: int) -> tuple[U64, U64]:
        """Hashes and newest locations of all keys, sorted by hash."""
        with self._lock:
            asked_for = bool(self._table)
            noted = list(self._noted)[::-1]
        if asked_for:
            table = self.table()
            hashes = hash_keys(list(table), seed)
            locations = np.fromiter(table.values(), np.uint64, len(table))
            order = np.argsort(hashes, kind="stable")
            return hashes[order], locations[order]
        keys = [key for batch, _ in noted for key in batch]
        if not keys:
            return np.empty(0, np.uint64), np.empty(0, np.uint64)
        hashes = hash_keys(keys, seed)
        locations = np.concatenate(
            [np.arange(first, first + len(batch), dtype=np.uint64) for batch, first in noted]
        )
        order = np.argsort(hashes, kind="stable")
        hashes, locations = hashes[order], locations[order]
        keep = keep_first(
            hashes, lambda left, right: _equal(keys, order, left, right), lambda i: keys[order[i]]
        )
        return hashes[keep], locations[keep]


def _equal(
    keys: Sequence[bytes],
    order: npt.NDArray[np.int64],
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    pairs = zip(order[left].tolist(), order[right].tolist(), strict=True)
    return np.fromiter((keys[a] == keys[b] for a, b in pairs), np.bool_, len(left))


@dataclass(slots=True)
class Recent:
    """What no run holds yet."""

    plain: dict[int, RecentTable] = field(default_factory=dict)
    layered: dict[int, list[LayerFrame]] = field(default_factory=dict)
    records: int = 0

    def forget(self, gone: Callable[[int, int], bool]) -> None:
        """Drop what `gone(namespace, location)` says is not there any more."""
        for namespace, table in self.plain.items():
            table.forget(partial(gone, namespace))
        for namespace, frames in list(self.layered.items()):
            self.layered[namespace] = [f for f in frames if not gone(namespace, f.location)]
