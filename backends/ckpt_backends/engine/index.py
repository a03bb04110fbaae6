"""From key to location: a bounded table of recent writes above immutable, mapped runs.

When the recent part (`recent.py`) is large enough it is frozen, sorted and written as a run (`runs.py`) by
the maintenance thread; the writer goes on with an empty one.

The index is disposable: it is rebuilt from the frames whenever anything is wrong with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from ckpt_backends.engine.merge import concatenate, first_of_each_key, merge_plain, visible_entries
from ckpt_backends.engine.recent import LayerFrame, Recent, RecentTable
from ckpt_backends.engine.records import Records
from ckpt_backends.engine.runs import SEGMENT_SHIFT, U64, Run, encode_run, hash_keys
from ckpt_backends.engine.visibility import LayerView, LiveSegments


class Index:
    """Recent tables and runs. Additions and swaps happen under the engine's lock; key lookups need none."""

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

    def add_layer(
        self,
        namespace: int,
        layer: int,
        location: int,
        sequence: int,
        count: int,
        hashes: U64 | Callable[[], U64],
    ) -> None:
        """The records of one frame belong to a layer of a versioned namespace; the hashes are its keys'."""
        self.active.layered.setdefault(namespace, []).append(LayerFrame(layer, location, sequence, hashes))
        self.active.records += count

    # -- plain namespaces ------------------------------------------------------------------------

    def recent_tables(self, namespace: int) -> list[dict[bytes, int]]:
        """The recent keys of a namespace and where they are, newest table first."""
        active, frozen = self.active, self.frozen
        if frozen is None and not active.plain:
            return []
        parts = (active, frozen)
        return [t.table() for part in parts if part is not None and (t := part.plain.get(namespace))]

    def locate(self, namespace: int, keys: Sequence[bytes], live: LiveSegments) -> dict[bytes, int]:
        """Where the newest record of each key is, deletes included. `live` says which segments exist."""
        # Readers hold no lock. The order active, frozen, runs makes that safe: a table is reachable in a
        # later place before it is dropped from an earlier one.
        if len(keys) == 1:
            one = self._locate_one(namespace, keys[0], live)
            return {} if one is None else {keys[0]: one}
        found: dict[bytes, int] = {}
        missing: list[bytes] = []
        tables = self.recent_tables(namespace)
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
        live: LiveSegments,
        found: dict[bytes, int],
    ) -> None:
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

    def _locate_one(self, namespace: int, key: bytes, live: LiveSegments) -> int | None:
        """The same for a single key, the most frequent question, in as few steps as that takes."""
        for table in self.recent_tables(namespace):
            if (recent := table.get(key)) is not None:
                return recent
        runs = self.runs
        if not runs:
            return None
        key_hash = xxh3_64_intdigest(key, self.seed)
        for run in runs:
            for location in run.find(namespace, key_hash):
                if not live.is_gone(location >> SEGMENT_SHIFT) and self.records.holds(location, key):
                    return location
        return None

    def plain_view(self, namespace: int) -> tuple[dict[bytes, int], tuple[Run, ...]]:
        """Recent keys and runs of one instant, for `plain_locations`. Callers hold the engine's lock."""
        recent: dict[bytes, int] = {}
        for table in reversed(self.recent_tables(namespace)):
            recent.update(table)
        return recent, self.runs

    def plain_locations(
        self, namespace: int, view: tuple[dict[bytes, int], tuple[Run, ...]], live: LiveSegments
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
        self, namespace: int, keys: Sequence[bytes], layer_view: LayerView, live: LiveSegments
    ) -> dict[bytes, int]:
        """Where the newest visible record of each key is, deletes included."""
        newest: dict[bytes, tuple[int, int, int]] = {}
        for recent in self._recent_frames(namespace):
            if layer_view.shows(recent.layer, recent.sequence):
                table = recent.table(keys, self.records, self.seed)
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
                    layer_view.shows(frame.layer, frame.sequence)
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
        layer_view: LayerView,
        live: LiveSegments,
    ) -> U64:
        """The newest visible location of every key, deletes included, in the order of the log."""
        frames, runs = view
        slices = [run.slice(namespace) for run in runs if namespace in run.directory]
        slices.extend(_slice_of(f) for f in frames)
        hashes, locations, _ = visible_entries(slices, layer_view, self.records, live)
        locations = locations[first_of_each_key(hashes, locations, self.records)]
        locations.sort()
        return locations

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
            slices.extend(_slice_of(f) for f in part.layered.get(namespace, ()))
            hashes, locations = concatenate(slices, None)
            order = np.argsort(hashes, kind="stable")
            yield namespace, hashes[order], locations[order]


def _slice_of(frame: LayerFrame) -> tuple[U64, U64]:
    hashes = frame.hashes
    return hashes, np.arange(frame.location, frame.location + len(hashes), dtype=np.uint64)
