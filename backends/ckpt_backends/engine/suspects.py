"""Keys whose newest record lay in a damaged stretch: after a repair they are missing, never out of date.

Which keys a damaged frame held cannot be read any more. But the index, which is a file of its own, still says
which hashes it pointed at in there. A key with such a hash may have an older record elsewhere; without the
index entry that one would look current.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.catalog import NamespaceState
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.frame import Body, Frame, FrameKind, build_body, split_batch
from ckpt_backends.engine.manifest import Damage
from ckpt_backends.engine.replay import Replay
from ckpt_backends.engine.runs import U64, IndexDamagedError, hash_keys, split_locations
from ckpt_backends.engine.segment import Segment
from ckpt_backends.engine.visibility import LayerView


@dataclass(frozen=True, slots=True)
class Suspect:
    """What the index says of one damaged stretch: hashes of keys that had a record there, by namespace."""

    first_sequence: int
    last_sequence: int
    hashes: dict[int, U64]


def find_suspects(engine: Engine) -> list[Suspect]:
    """Ask the index about every damaged stretch. Callers hold the lock, and rebuild the index after this."""
    sequences: dict[tuple[int, int], int] = {}

    def note(batch: list[Frame]) -> None:
        for frame in batch:
            assert isinstance(frame.owner, Segment)
            sequences[frame.owner.number, frame.end] = frame.sequence + 1

    damages = Replay(engine.storage, engine.log_id, None, engine.durable).run(note).damages
    found = []
    for damage in damages:
        first = sequences.get((damage.segment, damage.start), 0)
        try:
            hashes = dict(_hashes_in(engine, damage))
        except (IndexDamagedError, CorruptRecordError):
            continue  # then the keys are unknown
        if hashes:
            found.append(Suspect(first, damage.last_sequence, hashes))
    return found


def _hashes_in(engine: Engine, damage: Damage) -> Iterator[tuple[int, U64]]:
    index = engine.index
    parts = [part for part in (index.active, index.frozen) if part is not None]
    slices = [(ns, *run.slice(ns)) for run in index.runs for ns in run.directory]
    slices += [entry for part in parts for entry in index.slices(part)]
    for namespace in {ns for ns, _, _ in slices}:
        hits = [np.empty(0, np.uint64)]
        for ns, hashes, locations in slices:
            if ns == namespace:
                segments, offsets, _ = split_locations(locations)
                inside = (segments == damage.segment) & (damage.start <= offsets) & (offsets < damage.end)
                hits.append(hashes[inside])
        if len(together := np.unique(np.concatenate(hits))):
            yield namespace, together


def deletes_of_suspects(engine: Engine, suspects: Sequence[Suspect]) -> list[Body]:
    """Frames that make the suspects missing where a record older than the damage would show instead."""
    bodies: list[Body] = []
    for suspect in suspects:
        for namespace, hashes in suspect.hashes.items():
            state = engine.catalog.by_id.get(namespace)
            if state is None:
                continue
            if state.history is None:
                bodies += _deletes(FrameKind.DATA, state, _plain_keys(engine, state, suspect, hashes))
            else:
                for layer, keys in _layered_keys(engine, state, suspect, hashes):
                    bodies += _deletes(FrameKind.MOVED, state, keys, layer)
    return bodies


def _deletes(kind: FrameKind, state: NamespaceState, keys: list[bytes], layer: int = 0) -> Iterator[Body]:
    if keys:
        for _, _, gone in split_batch((), (), keys):
            yield build_body(kind, state.id, (), (), gone, layer=layer)


def _plain_keys(engine: Engine, state: NamespaceState, suspect: Suspect, hashes: U64) -> list[bytes]:
    index = engine.index
    locations = index.plain_locations(state.id, index.plain_view(state.id), engine.live).tolist()
    older = [
        engine.records.key(loc)
        for loc in locations
        if engine.records.frame(loc).sequence <= suspect.last_sequence
    ]
    return _with_hash(engine, older, hashes)


def _layered_keys(
    engine: Engine, state: NamespaceState, suspect: Suspect, hashes: U64
) -> Iterator[tuple[int, list[bytes]]]:
    """For each layer that the damage may have belonged to: suspects that have no record of that layer."""
    assert state.history is not None
    index = engine.index
    everything = state.everything()
    view = index.layered_view(state.id)
    locations = index.layered_locations(state.id, view, everything, engine.live).tolist()
    keys = _with_hash(engine, [engine.records.key(loc) for loc in locations], hashes)
    committed = {
        layer for layer in everything.layers if suspect.first_sequence <= layer <= suspect.last_sequence
    }
    for layer in sorted(committed or everything.layers):
        layer_view = LayerView(frozenset({layer}), state.snapshot_layer, state.snapshot_sequence)
        there = index.locate_layered(state.id, keys, layer_view, engine.live)
        yield layer, [key for key in keys if key not in there]


def _with_hash(engine: Engine, keys: list[bytes], hashes: U64) -> list[bytes]:
    chosen = np.isin(hash_keys(keys, engine.index.seed), hashes)
    return [key for key, is_chosen in zip(keys, chosen.tolist(), strict=True) if is_chosen]
