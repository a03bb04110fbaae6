"""From key to location: a bounded table of recent writes above immutable, mapped runs.

Recent writes of plain namespaces are a dict per namespace. Recent commits are kept as the frames they are; a
frame's own table of keys is built when somebody first asks for one. When the recent part is large enough it
is frozen, sorted and written as a run by the maintenance thread; the writer goes on with an empty one.

The index is disposable: it is rebuilt from the frames whenever anything is wrong with it.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ckpt_backends.log.records import Records
from ckpt_backends.log.runs import RECORD_BITS, SEGMENT_SHIFT, U64, Run, encode_run, hash_keys


class Live:
    """Which segments the log still needs; entries of other segments are not there any more."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers = frozenset(numbers)
        self.newest = max(self.numbers, default=0)
        self._sorted = np.array(sorted(self.numbers), np.uint64)

    def __contains__(self, number: int) -> bool:
        return number in self.numbers

    def is_gone(self, number: int) -> bool:
        """Whether what an index says of a segment is out of date. A newer segment was begun since."""
        return number not in self.numbers and number <= self.newest

    def mask(self, locations: U64) -> npt.NDArray[np.bool_]:
        """For each location: is its segment not gone?"""
        segments = locations >> np.uint64(SEGMENT_SHIFT)
        newer: npt.NDArray[np.bool_] = segments > np.uint64(self.newest)
        if not len(self._sorted):
            return newer
        at = np.minimum(self._sorted.searchsorted(segments), len(self._sorted) - 1)
        needed: npt.NDArray[np.bool_] = self._sorted[at] == segments
        return needed | newer


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader of a versioned namespace sees: some layers, and nothing that a snapshot replaced.

    A snapshot is a copy of everything visible at layer `snapshot_layer`; records of that layer and older ones
    in frames before `snapshot_sequence` are replaced by it.
    """

    layers: frozenset[int]
    snapshot_layer: int = 0
    snapshot_sequence: int = 0

    def shows(self, layer: int, sequence: int) -> bool:
        """Is a record of this layer, in the frame of this sequence, to be seen?"""
        return layer in self.layers and (layer > self.snapshot_layer or sequence >= self.snapshot_sequence)


class LayerFrame:
    """A recent frame of a versioned namespace: its layer, and its keys when somebody asks."""

    __slots__ = ("_table", "layer", "location", "sequence")

    def __init__(self, layer: int, location: int, sequence: int) -> None:
        self.layer, self.location, self.sequence = layer, location, sequence
        self._table: dict[bytes, int] | None = None

    def table(self, records: Records) -> dict[bytes, int]:
        """Key to location."""
        if self._table is None:
            keys = records.frame(self.location).keys()
            self._table = dict(zip(keys, range(self.location, self.location + len(keys)), strict=True))
        return self._table


class RecentTable:
    """Recent records of one plain namespace: key to newest location, built when somebody first asks.

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
        """Key to newest location. Grows under its reader when more is noted and somebody else asks."""
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


class Index:
    """Recent tables and runs. Additions and swaps happen under the engine's lock; readers take `view()`."""

    def __init__(self, records: Records, seed: int) -> None:
        self.records = records
        self.seed = seed
        self.active = Recent()
        self.frozen: Recent | None = None
        self.runs: tuple[Run, ...] = ()
        """Newest first."""
        self.unsaved: list[tuple[str, bytes]] = []
        """Names and bytes of runs that a long replay built in memory."""

    # -- adding ----------------------------------------------------------------------------------

    def add_plain(self, namespace: int, keys: Sequence[bytes], location: int) -> None:
        """The records of one frame of a plain namespace are now the newest of their keys."""
        table = self.active.plain.get(namespace)
        if table is None:
            table = self.active.plain[namespace] = RecentTable()
        table.note(keys, location)
        self.active.records += len(keys)

    def add_layer(self, namespace: int, layer: int, location: int, sequence: int, count: int) -> None:
        """The records of one frame belong to a layer of a versioned namespace."""
        self.active.layered.setdefault(namespace, []).append(LayerFrame(layer, location, sequence))
        self.active.records += count

    # -- plain namespaces ------------------------------------------------------------------------

    def recent_location(self, namespace: int, key: bytes) -> int | None:
        """Where the newest recent record of a key is; None if no recent one exists."""
        for part in (self.active, self.frozen):
            if part is not None and (table := part.plain.get(namespace)) is not None:
                found = table.table().get(key)
                if found is not None:
                    return found
        return None

    def locate(self, namespace: int, keys: Sequence[bytes], live: Live) -> dict[bytes, int]:
        """Where the newest record of each key is, deletes included. `live` says which segments exist."""
        # Readers hold no lock. The order active, frozen, runs makes that safe: a table is reachable in a
        # later place before it is dropped from an earlier one.
        found: dict[bytes, int] = {}
        missing: list[bytes] = []
        parts = (self.active, self.frozen)
        tables = [t.table() for r in parts if r is not None and (t := r.plain.get(namespace))]
        if tables:
            for key in keys:
                for table in tables:
                    if (location := table.get(key)) is not None:
                        found[key] = location
                        break
                else:
                    missing.append(key)
        else:
            missing = list(keys)
        runs = self.runs
        if missing and runs:
            self._locate_in_runs(namespace, missing, runs, live, found)
        return found

    def _locate_in_runs(
        self,
        namespace: int,
        keys: list[bytes],
        runs: Iterable[Run],
        live: Live,
        found: dict[bytes, int],
    ) -> None:
        if len(keys) == 1:
            self._locate_one(namespace, keys[0], runs, live, found)
            return
        hashes = hash_keys(keys, self.seed)
        pending = list(range(len(keys)))
        for run in runs:
            if not pending:
                return
            if namespace not in run.directory:
                continue
            candidates: Iterable[tuple[int, int]]
            if run.is_worth_batching(len(pending)):
                chosen = np.array(pending)
                queries, locations = run.find_many(namespace, hashes[chosen])
                candidates = zip(chosen[queries].tolist(), locations.tolist(), strict=True)
            else:
                candidates = [(q, loc) for q in pending for loc in run.find(namespace, int(hashes[q]))]
            hit = False
            for query, location in candidates:
                key = keys[query]
                if key in found or live.is_gone(location >> SEGMENT_SHIFT):
                    continue
                if self.records.holds(location, key) is not None:
                    found[key] = location
                    hit = True
            if hit:
                pending = [q for q in pending if keys[q] not in found]

    def _locate_one(
        self, namespace: int, key: bytes, runs: Iterable[Run], live: Live, found: dict[bytes, int]
    ) -> None:
        key_hash = xxh3_64_intdigest(key, self.seed)
        for run in runs:
            for location in run.find(namespace, key_hash):
                if location >> SEGMENT_SHIFT in live and self.records.holds(location, key) is not None:
                    found[key] = location
                    return

    def plain_view(self, namespace: int) -> tuple[dict[bytes, int], tuple[Run, ...]]:
        """Recent keys and runs of one instant, for `plain_locations`. Callers hold the engine's lock."""
        recent: dict[bytes, int] = {}
        for part in (self.frozen, self.active):
            if part is not None and (table := part.plain.get(namespace)):
                recent.update(table.table())
        return recent, self.runs

    def plain_locations(
        self, namespace: int, view: tuple[dict[bytes, int], tuple[Run, ...]], live: Live
    ) -> U64:
        """The newest location of every key of a namespace, deletes included, in the order of the log."""
        recent, runs = view
        hashes, locations = merge_plain(runs, namespace, self.records, live)
        if recent and len(locations):
            suspects = np.flatnonzero(np.isin(hashes, hash_keys(list(recent), self.seed)))
            hidden = [i for i in suspects.tolist() if self.records.key(int(locations[i])) in recent]
            locations = np.delete(locations, hidden)
        newest = np.fromiter(recent.values(), np.uint64, len(recent))
        merged = np.concatenate((locations, newest))
        merged.sort()
        return merged

    # -- versioned namespaces --------------------------------------------------------------------

    def _recent_frames(self, namespace: int) -> list[LayerFrame]:
        return [
            frame
            for part in (self.active, self.frozen)
            if part is not None
            for frame in list(part.layered.get(namespace, ()))
        ]

    def locate_layered(
        self, namespace: int, keys: Sequence[bytes], sight: Sight, live: Live
    ) -> dict[bytes, int]:
        """Where the newest visible record of each key is, deletes included."""
        newest: dict[bytes, tuple[int, int, int]] = {}
        for recent in self._recent_frames(namespace):
            if sight.shows(recent.layer, recent.sequence):
                table = recent.table(self.records)
                for key in keys:
                    if (location := table.get(key)) is not None:
                        found = (recent.layer, recent.sequence, location)
                        newest[key] = max(newest.get(key, found), found)
        for run in self.runs:
            if namespace not in run.directory:
                continue
            queries, locations = run.find_many(namespace, hash_keys(keys, self.seed))
            for query, location in zip(queries.tolist(), locations.tolist(), strict=True):
                if live.is_gone(location >> SEGMENT_SHIFT):
                    continue
                key, frame = keys[query], self.records.frame(location)
                found = (frame.layer, frame.sequence, location)
                if (
                    sight.shows(frame.layer, frame.sequence)
                    and found > newest.get(key, (0, 0, 0))
                    and self.records.holds(location, key)
                ):
                    newest[key] = found
        return {key: location for key, (_, _, location) in newest.items()}

    def layered_view(self, namespace: int) -> tuple[list[LayerFrame], tuple[Run, ...]]:
        """Recent frames and runs of one instant, for `layered_locations`. Callers hold the engine's lock."""
        return self._recent_frames(namespace), self.runs

    def layered_locations(
        self,
        namespace: int,
        view: tuple[list[LayerFrame], tuple[Run, ...]],
        sight: Sight,
        live: Live,
    ) -> U64:
        """The newest visible location of every key, deletes included, in the order of the log."""
        frames, runs = view
        slices = [run.slice(namespace) for run in runs if namespace in run.directory]
        slices.extend(self._frame_slice(f) for f in frames)
        hashes, locations, _ = visible_entries(slices, sight, self.records, live)
        locations = locations[first_of_each_key(hashes, locations, self.records)]
        locations.sort()
        return locations

    def _frame_slice(self, frame: LayerFrame) -> tuple[U64, U64]:
        keys = self.records.frame(frame.location).keys()
        return hash_keys(keys, self.seed), np.arange(
            frame.location, frame.location + len(keys), dtype=np.uint64
        )

    # -- runs ------------------------------------------------------------------------------------

    def spill(self, records: int) -> None:
        """Turn the active part into a run in memory if it holds that many records."""
        if self.active.records >= records:
            name = f"run-{secrets.token_hex(8)}.idx"
            data = b"".join(encode_run(self.slices(self.active)))
            self.unsaved.append((name, data))
            self.runs = (Run(name, memoryview(data)), *self.runs)
            self.active = Recent()

    def recent_layers(self, namespace: int) -> set[int]:
        """The layers that recent records of a namespace belong to."""
        return {frame.layer for frame in self._recent_frames(namespace)}

    def slices(self, part: Recent) -> Iterator[tuple[int, U64, U64]]:
        """What a part holds, ready for a run."""
        for namespace in sorted({*part.plain, *part.layered}):
            slices: list[tuple[U64, U64]] = []
            if table := part.plain.get(namespace):
                yield namespace, *table.columns(self.seed)
                continue
            slices.extend(self._frame_slice(f) for f in part.layered.get(namespace, ()))
            hashes, locations = concatenate(slices, None)
            order = np.argsort(hashes, kind="stable")
            yield namespace, hashes[order], locations[order]


def concatenate(slices: Sequence[tuple[U64, U64]], live: Live | None) -> tuple[U64, U64]:
    """All slices as one, without entries of segments that do not exist any more."""
    if not slices:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    hashes = np.concatenate([s[0] for s in slices])
    locations = np.concatenate([s[1] for s in slices])
    if live is not None:
        exists = live.mask(locations)
        if not exists.all():
            return hashes[exists], locations[exists]
    return hashes, locations


def merge_plain(runs: Sequence[Run], namespace: int, records: Records, live: Live) -> tuple[U64, U64]:
    """Hashes and newest location of each key of a plain namespace over runs that are given newest first."""
    slices = [run.slice(namespace) for run in runs if namespace in run.directory]
    hashes, locations = concatenate(slices, live)
    if len(slices) > 1:
        order = np.argsort(hashes, kind="stable")
        hashes, locations = hashes[order], locations[order]
        keep = first_of_each_key(hashes, locations, records)
        hashes, locations = hashes[keep], locations[keep]
    return hashes, locations


def visible_entries(
    slices: Sequence[tuple[U64, U64]], sight: Sight, records: Records, live: Live
) -> tuple[U64, U64, U64]:
    """Hashes, locations and layers of what a reader may see, by hash, the newest layer of each first."""
    hashes, locations = concatenate(slices, live)
    frames, inverse = np.unique(locations >> np.uint64(RECORD_BITS), return_inverse=True)
    heads = [records.frame(int(f) << RECORD_BITS) for f in frames.tolist()]
    shown = np.array([sight.shows(f.layer, f.sequence) for f in heads], np.bool_)[inverse]
    layers = np.array([f.layer for f in heads], np.uint64)[inverse]
    sequences = np.array([f.sequence for f in heads], np.uint64)[inverse]
    hashes, locations, layers, sequences = hashes[shown], locations[shown], layers[shown], sequences[shown]
    order = np.lexsort((~sequences, ~layers, hashes))
    return hashes[order], locations[order], layers[order]


def merge_layered(
    runs: Sequence[Run], namespace: int, records: Records, live: Live, sight: Sight, floor: int
) -> tuple[U64, U64, set[int]]:
    """Hashes and locations of a versioned namespace without what no reader can see, and the layers used.

    `sight` is that of all readers together; at or below the layer `floor` only the newest of a key is seen.
    """
    slices = [run.slice(namespace) for run in runs if namespace in run.directory]
    hashes, locations, layers = visible_entries(slices, sight, records, live)
    keep = np.ones(len(hashes), np.bool_)
    below = np.flatnonzero(layers <= np.uint64(floor))
    keep[below] = first_of_each_key(hashes[below], locations[below], records)
    return hashes[keep], locations[keep], set(np.unique(layers[keep]).tolist())


def first_of_each_key(hashes: U64, locations: U64, records: Records) -> npt.NDArray[np.bool_]:
    """Which entries to keep so that each key stays once, the first time it occurs; sorted by hash."""
    return keep_first(
        hashes,
        lambda left, right: records.same_keys(locations[left], locations[right]),
        lambda entry: records.key(int(locations[entry])),
    )


def keep_first(
    hashes: U64,
    equal: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
    key_of: Callable[[int], bytes],
) -> npt.NDArray[np.bool_]:
    """Which entries, sorted by hash, are the first of their key.

    Keys are told apart by their bytes, never by their hash alone: `equal` compares the keys of pairs of
    entries, `key_of` gives one.
    """
    keep = np.ones(len(hashes), np.bool_)
    repeated = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(repeated):
        return keep
    same = equal(repeated, repeated + 1)
    keep[repeated[same] + 1] = False
    # Two keys that share a hash may alternate, so neighbours are not enough there. This is rare.
    for collision in np.unique(hashes[repeated[~same]]).tolist():
        start, end = (int(hashes.searchsorted(np.uint64(collision), side)) for side in ("left", "right"))
        known: set[bytes] = set()
        for entry in range(start, end):
            key = key_of(entry)
            keep[entry] = key not in known
            known.add(key)
    return keep
