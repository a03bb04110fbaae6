"""Garbage collection of segments: append again what is still needed, then retire.

A reader without the index must come to the same answers, so for every key the record with the highest
sequence (or, in versioned namespaces, the rules of layers and snapshots) decides:

- A record that moves is appended only if nothing newer of its key was written meanwhile, checked under the
  lock that orders appends.
- A delete hides older puts of its key that still lie in older segments. It is dropped only where all
  older segments go too; anywhere else it moves. An expired put moves as a delete for the same reason.
- Moved records of versioned namespaces keep their layer, or take that of the floor that shows them.
- Deletes of versioned namespaces go away with a *snapshot*: a copy of all that the floor shows, after which
  older records at or below the floor count no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ckpt_backends.engine.blocks import by_frame, part_deletes, rows_at
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.frame import Body, Frame, FrameKind, build_body
from ckpt_backends.engine.manifest import Position, SegmentSummary
from ckpt_backends.engine.merge import first_of_each_key, visible_entries
from ckpt_backends.engine.runs import RECORD_MASK, SEGMENT_SHIFT, U64
from ckpt_backends.engine.visibility import LayerView

_BATCH_RECORDS = 1024
_BATCH_BYTES = 4 << 20


class Collector:
    """One collection. Maintenance has flushed up to `flushed` and merged; `needed` is what runs refer to."""

    def __init__(
        self,
        engine: Engine,
        needed: U64,
        floors: dict[int, int],
        flushed: Position,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._floors = floors
        self._flushed = flushed
        self._engine = engine
        self._needed = np.sort(needed)
        self._written = 0
        self._last = engine.everything()
        self._unsynced = 0

    def collect(self, select: float) -> int:
        """Retire segments of which less than `select` is needed; how many bytes that took to write."""
        engine = self._engine
        with engine.lock:
            # What was written after the flush is not in `needed`: segments from there on are left alone.
            tail = self._flushed.segment
            summaries = {n: s for n, s in engine.summaries.items() if n < tail}
            small = engine.small_segments(before=tail)
        needed = {number: self._needed_bytes(number, summary) for number, summary in summaries.items()}
        shares = {n: needed[n] / max(1, s.end - engine.storage.data_start) for n, s in summaries.items()}
        engine.needed_bytes = sum(needed.values())
        merge_small = set(small) if len(small) >= engine.storage.small_segments else set()
        victims = sorted(
            (n for n, share in shares.items() if share < select or n in merge_small), key=lambda n: shares[n]
        )
        if not victims:
            return 0
        self._snapshot_namespaces(set(victims))
        # All victims are retired at once, so what a delete hides in another victim needs no hiding.
        oldest_kept = min(engine.live.numbers.difference(victims), default=tail)
        for number in victims:
            self._empty(number, drop_deletes=number < oldest_kept)
            if self._unsynced >= engine.storage.segment_bytes:
                engine.wait_durable(self._last)
                self._unsynced = 0
        self._retire(victims)
        return self._written

    def _of_segment(self, number: int) -> U64:
        """What is needed of one segment."""
        low, high = (
            int(self._needed.searchsorted(np.uint64(n << SEGMENT_SHIFT))) for n in (number, number + 1)
        )
        return self._needed[low:high]

    def _needed_bytes(self, number: int, summary: SegmentSummary) -> int:
        """How many bytes of a segment are needed; an estimate where looking would cost a request."""
        locations = self._of_segment(number)
        if not len(locations):
            return 0
        if self._engine.storage.reads_are_cheap:
            return self._engine.records.needed_bytes(number, locations)
        return (summary.end - self._engine.storage.data_start) * len(locations) // max(1, summary.records)

    def _retire(self, victims: list[int]) -> None:
        engine = self._engine
        with engine.lock:
            engine.settle_segments(without=victims)
            engine.catalog.retired_ms = int(self._clock() * 1000)
            # Frames that a full replay would need to know namespaces and histories may lie in the victims.
            retired = engine.append([engine.control({"op": "catalog", "catalog": engine.catalog.dump()})])
        engine.wait_durable(retired)
        engine.retire(victims)

    # -- moving records --------------------------------------------------------------------------

    def _empty(self, number: int, *, drop_deletes: bool) -> None:
        """Append again what is needed of a segment."""
        for frame, locations in self._by_frame(self._of_segment(number)):
            if frame.kind is FrameKind.DATA:
                self._move_plain(frame, locations, drop_deletes=drop_deletes)
            else:
                self._move_layered(frame, locations)

    def _by_frame(self, locations: U64) -> Iterator[tuple[Frame, U64]]:
        """Frames with those of their records that are needed, in pieces that fit one append."""
        for mine in by_frame(locations):
            frame = self._engine.records.intact_frame(int(mine[0]))
            step = max(1, min(_BATCH_RECORDS, _BATCH_BYTES * frame.count // max(1, frame.values_bytes)))
            for first in range(0, len(mine), step):
                yield frame, mine[first : first + step]

    def _move_plain(self, frame: Frame, locations: U64, *, drop_deletes: bool) -> None:
        engine = self._engine
        puts, gone = part_deletes(frame, locations)
        if 0 < frame.expires_ms <= int(self._clock() * 1000):
            puts, gone = locations[:0], locations
        rows = self._rows(frame, puts)
        deletes = [] if drop_deletes else _keys(frame, gone)
        with engine.lock:
            if frame.namespace not in engine.catalog.by_id:
                return
            for newer in engine.index.recent_tables(frame.namespace):
                for key in rows.keys() & newer.keys():
                    del rows[key]
                deletes = [key for key in deletes if key not in newer]
            self._append(
                build_body(
                    FrameKind.DATA,
                    frame.namespace,
                    list(rows),
                    list(rows.values()),
                    deletes,
                    expires_ms=frame.expires_ms if rows else 0,
                )
            )

    def _rows(self, frame: Frame, puts: U64) -> dict[bytes, bytes]:
        """What some puts of a frame are: no key is in a frame twice."""
        return dict(rows_at(self._engine.records, frame, puts).rows()) if len(puts) else {}

    def _move_layered(self, frame: Frame, locations: U64, layer: int | None = None) -> None:
        engine = self._engine
        puts, deletes = part_deletes(frame, locations)
        rows, gone = self._rows(frame, puts), _keys(frame, deletes)
        with engine.lock:
            state = engine.catalog.by_id.get(frame.namespace)
            if state is None:
                return
            # At or below the floor of the merge only the newest record of a key was needed, and this is it.
            # The floor may be higher by now: then this one may be hidden by a record of a layer in between.
            target = max(frame.layer, self._floors.get(frame.namespace, 0)) if layer is None else layer
            self._append(
                build_body(
                    FrameKind.MOVED, frame.namespace, list(rows), list(rows.values()), gone, layer=target
                )
            )

    def _append(self, body: Body) -> None:
        if body.count:
            self._last = self._engine.append([body])
            self._written += body.frame_bytes
            self._unsynced += body.frame_bytes

    # -- snapshots -------------------------------------------------------------------------------

    def _snapshot_namespaces(self, victims: set[int]) -> None:
        """Copy what the floor shows of every versioned namespace that consists mostly of deletes."""
        engine = self._engine
        (run,) = engine.index.runs or (None,)
        if run is None:
            return
        for namespace in run.directory:
            with engine.lock:
                state = engine.catalog.by_id.get(namespace)
                if state is None or state.history is None or not (floor := self._floors.get(namespace)):
                    continue
                layer_view = LayerView(
                    frozenset(x for x in state.everything().layers if x <= floor),
                    state.snapshot_layer,
                    state.snapshot_sequence,
                )
            hashes, locations, _ = visible_entries(
                [run.slice(namespace)], layer_view, engine.records, engine.live
            )
            locations = np.sort(locations[first_of_each_key(hashes, locations, engine.records)])
            deletes = self._count_deletes(locations)
            touched = victims & set((locations >> np.uint64(SEGMENT_SHIFT)).tolist())
            if deletes and touched and deletes * 2 >= len(locations):
                self._snapshot(namespace, floor, locations)

    def _count_deletes(self, locations: U64) -> int:
        return sum(len(part_deletes(frame, found)[1]) for frame, found in self._by_frame(locations))

    def _snapshot(self, namespace: int, floor: int, locations: U64) -> None:
        engine = self._engine
        first = engine.next_sequence
        for frame, found in self._by_frame(locations):
            kept, _ = part_deletes(frame, found)
            if len(kept):
                self._move_layered(frame, kept, layer=floor)
        with engine.lock:
            if namespace in engine.catalog.by_id:
                said = {"op": "snapshot", "id": namespace, "layer": floor, "sequence": first}
                self._last = engine.append([engine.control(said)])
                engine.catalog.apply(self._last.sequence, said)
        # The records that the snapshot replaced are not needed any more.
        replaced = np.isin(self._needed, locations)
        self._needed = self._needed[~replaced]


def _keys(frame: Frame, locations: U64) -> list[bytes]:
    return [frame.key(location & RECORD_MASK) for location in locations.tolist()]
