"""What of an index counts: entries of segments that the log needs, and of layers that a reader may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt_backends.engine.runs import SEGMENT_SHIFT, U64


class LiveSegments:
    """Which segments the log still needs; entries of other segments are not there any more."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers = frozenset(numbers)
        self.newest = max(self.numbers, default=0)

    def __contains__(self, number: int) -> bool:
        return number in self.numbers

    def is_gone(self, number: int) -> bool:
        """Whether what an index says of a segment is out of date. A newer segment was begun since."""
        return number not in self.numbers and number <= self.newest

    def mask(self, locations: U64) -> npt.NDArray[np.bool_]:
        """For each location: is its segment not gone?"""
        segments = locations >> np.uint64(SEGMENT_SHIFT)
        newer: npt.NDArray[np.bool_] = segments > np.uint64(self.newest)
        if not self.numbers:
            return newer
        known = np.array(sorted(self.numbers), np.uint64)
        at = np.minimum(known.searchsorted(segments), len(known) - 1)
        needed: npt.NDArray[np.bool_] = known[at] == segments
        return needed | newer


@dataclass(frozen=True, slots=True)
class LayerView:
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
