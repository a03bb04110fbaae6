"""Several slices of the index as one: nothing that counts is lost, and keys are told apart by their bytes.

A slice is a column of hashes and one of locations. All of this is arithmetic on columns; keys are read only
where hashes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ckpt_backends.engine.records import Records
from ckpt_backends.engine.runs import RECORD_BITS, U64, Run
from ckpt_backends.engine.visibility import LayerView, LiveSegments


def concatenate(slices: Sequence[tuple[U64, U64]], live: LiveSegments | None) -> tuple[U64, U64]:
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


def merge_plain(runs: Sequence[Run], namespace: int, records: Records, live: LiveSegments) -> tuple[U64, U64]:
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
    slices: Sequence[tuple[U64, U64]], layer_view: LayerView, records: Records, live: LiveSegments
) -> tuple[U64, U64, U64]:
    """Hashes, locations and layers of what a reader may see, by hash, the newest layer of each first."""
    hashes, locations = concatenate(slices, live)
    places = locations >> np.uint64(RECORD_BITS)
    frames = np.unique(places)
    # Not the frames themselves: to hold all of them is to hold the whole namespace in memory.
    heads = [(f.layer, f.sequence) for f in (records.frame(int(n) << RECORD_BITS) for n in frames.tolist())]
    newest_first = sorted(range(len(heads)), key=heads.__getitem__, reverse=True)
    ranks = np.empty(len(heads), np.uint32)
    ranks[newest_first] = np.arange(len(heads))
    frame_of = frames.searchsorted(places)
    shown = np.array([layer_view.shows(layer, sequence) for layer, sequence in heads], np.bool_)[frame_of]
    hashes, locations, frame_of = hashes[shown], locations[shown], frame_of[shown]
    order = np.lexsort((ranks[frame_of], hashes))
    layers = np.array([layer for layer, _ in heads], np.uint64)
    return hashes[order], locations[order], layers[frame_of[order]]


def merge_layered(
    runs: Sequence[Run],
    namespace: int,
    records: Records,
    live: LiveSegments,
    layer_view: LayerView,
    floor: int,
) -> tuple[U64, U64, set[int]]:
    """Hashes and locations of a versioned namespace without what no reader can see, and the layers used.

    `layer_view` is that of all readers together; only the newest of a key is seen up to the layer `floor`.
    """
    slices = [run.slice(namespace) for run in runs if namespace in run.directory]
    hashes, locations, layers = visible_entries(slices, layer_view, records, live)
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
