"""Reading records by their location: frames with a small cache, and whole columns of keys at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.frame import HEADER_BYTES, BadFrameError, Frame
from ckpt_backends.engine.runs import (
    RECORD_BITS,
    RECORD_MASK,
    SEGMENT_SHIFT,
    U64,
    split_locations,
    unpack_location,
)
from ckpt_backends.engine.segment import Segment, segment_seed
from ckpt_backends.engine.storage import Storage

_CACHED_FRAMES = 4096
_NEAR_SEGMENTS = 128
_COUNT, _DELETES, _META = 40, 44, 48
_COLUMNS_BYTES = 12
"""What a record takes in the columns of its frame."""


class Records:
    """Every record of the log by location; what is read is verified or raises CorruptRecordError."""

    def __init__(self, storage: Storage, log_id: int) -> None:
        self._storage = storage
        self.log_id = log_id
        self._frames: dict[int, Frame] = {}
        self.near: dict[int, Segment] = {}
        """Segments that were read from lately, by number; a retired one may still be among them."""

    def segment(self, number: int) -> Segment:
        """A segment to read from."""
        return self._storage.segment(number, segment_seed(self.log_id, number))

    def frame(self, location: int) -> Frame:
        """The frame that holds the record, its header verified."""
        # The dicts are replaced when a segment is forgotten: a frame that is found meanwhile is not kept.
        frames = self._frames
        frame = frames.get(location >> RECORD_BITS)
        if frame is None:
            frame = self._read(location, self.fetch(location >> SEGMENT_SHIFT))
            if len(frames) >= _CACHED_FRAMES:
                frames.clear()
            frames[location >> RECORD_BITS] = frame
        return frame

    def fetch(self, number: int) -> Segment:
        """A segment that is near from now on."""
        near = self.near
        segment = self.segment(number)
        if len(near) >= _NEAR_SEGMENTS:
            near.clear()
            self._frames.clear()  # they hold their segments, too
        near[number] = segment
        return segment

    def holds(self, location: int, key: bytes) -> Frame | None:
        """The frame if the record there has this key; None if it has another one with the same hash."""
        frame = self.frame(location)
        record = location & RECORD_MASK
        if record < frame.count and frame.key(record) == key:
            return frame
        self.intact_frame(location)
        return None

    def _read(self, location: int, segment: Segment) -> Frame:
        try:
            return Frame(segment.buffer, unpack_location(location)[1], segment.seed, segment)
        except BadFrameError as error:
            raise self.corrupt(location, error) from None

    def intact_frame(self, location: int, segment: Segment | None = None) -> Frame:
        """The frame that holds the record, keys and columns verified too; from that segment, if given."""
        frame = self.frame(location) if segment is None else self._read(location, segment)
        if not frame.middle_is_intact():
            raise self.corrupt(location, BadFrameError("keys or columns do not match their checksum"))
        return frame

    def key(self, location: int) -> bytes:
        """The key of a record, verified."""
        return self.intact_frame(location).key(location & RECORD_MASK)

    def value(self, frame: Frame, location: int, now_ms: int) -> bytes | None:
        """The value of a put; None for a delete or an expired record."""
        if location & RECORD_MASK >= frame.puts or (frame.expires_ms and frame.expires_ms <= now_ms):
            return None
        return self.verified_value(frame, location)

    def verified_value(self, frame: Frame, location: int) -> bytes:
        """The value of a put, expired or not."""
        try:
            return frame.value(location & RECORD_MASK)
        except BadFrameError as error:
            raise self.corrupt(location, error) from None

    def corrupt(self, location: int, error: BadFrameError) -> CorruptRecordError:
        """The error for a bad record at a location."""
        number, offset, record = unpack_location(location)
        return CorruptRecordError(
            f"{self._storage.address} segment {number} offset {offset} record {record}: {error}; "
            f"run: ckpt verify {self._storage.address}"
        )

    def forget(self, number: int) -> None:
        """Hold no frame of a segment any more."""
        kept = [(k, f) for k, f in list(self._frames.items()) if k >> (SEGMENT_SHIFT - RECORD_BITS) != number]
        self._frames = dict(kept)
        self.near = {n: segment for n, segment in list(self.near.items()) if n != number}

    # -- columns ---------------------------------------------------------------------------------

    def same_keys(self, left: U64, right: U64) -> npt.NDArray[np.bool_]:
        """For each pair of locations: do the two records have the same key? Compares bytes, not hashes."""
        equal = np.zeros(len(left), np.bool_)
        for start in range(0, len(left), 65536):
            end = start + 65536
            equal[start:end] = self._same_keys(left[start:end], right[start:end])
        return equal

    def _same_keys(self, left: U64, right: U64) -> npt.NDArray[np.bool_]:
        bounds = [self._key_bounds(side) for side in (left, right)]
        lengths = bounds[0][2]
        equal: npt.NDArray[np.bool_] = (lengths == bounds[1][2]) & (lengths >= 0)
        pairs = np.flatnonzero(equal & (lengths > 0))
        if not len(pairs):
            return equal
        lengths = lengths[pairs]
        blobs = [self._gather(segments[pairs], starts[pairs], lengths) for segments, starts, _ in bounds]
        firsts = np.cumsum(lengths) - lengths
        equal[pairs] = np.add.reduceat((blobs[0] != blobs[1]).astype(np.int64), firsts) == 0
        return equal

    def _key_bounds(
        self, locations: U64
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Segment, start and length of each key; length -1 where the frame makes no sense."""
        segments, offsets, records = split_locations(locations)
        starts = np.zeros(len(locations), np.int64)
        lengths = np.full(len(locations), -1, np.int64)
        for number in np.unique(segments).tolist():
            mine = np.flatnonzero(segments == number)
            segment = self.segment(number)  # held: a retired one would be written over under our eyes
            buffer = segment.buffer
            words = np.frombuffer(buffer, "<u4", len(buffer) // 4)
            offset, record = offsets[mine], records[mine]
            count = words[(offset + _COUNT) // 4].astype(np.int64)
            deletes = words[(offset + _DELETES) // 4].astype(np.int64)
            meta = words[(offset + _META) // 4].astype(np.int64)
            column = (offset + HEADER_BYTES) // 4
            sane = (record < count) & (column + count < len(words))
            at = np.where(sane, column + record, 0)
            end = words[at].astype(np.int64)
            begin = np.where(record > 0, words[np.maximum(at - 1, 0)].astype(np.int64), 0)
            start = offset + HEADER_BYTES + 4 * count + 8 * (count - deletes) + meta + begin
            sane &= (end >= begin) & (start >= 0) & (start + end - begin <= len(buffer))
            starts[mine] = np.where(sane, start, 0)
            lengths[mine] = np.where(sane, end - begin, -1)
        return segments, starts, lengths

    def needed_bytes(self, number: int, locations: U64) -> int:
        """How much of a segment these records take, keys, values and columns."""
        _, offset, record = split_locations(locations)
        segment = self.segment(number)
        words = np.frombuffer(segment.buffer, "<u4", len(segment.buffer) // 4)
        count = words[(offset + _COUNT) // 4].astype(np.int64)
        puts = count - words[(offset + _DELETES) // 4]
        keys = (offset + HEADER_BYTES) // 4
        total = _COLUMNS_BYTES * len(locations)
        for column, mine in ((keys, record < count), (keys + count, record < puts)):
            at = np.where(mine, np.minimum(column + record, len(words) - 1), 0)
            begin = np.where(record > 0, words[np.maximum(at - 1, 0)], 0)
            total += int(np.where(mine, words[at].astype(np.int64) - begin, 0).clip(0).sum())
        return total

    def _gather(
        self, segments: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint8]:
        """The bytes of all ranges, one after the other."""
        out = np.empty(int(lengths.sum()), np.uint8)
        if bool((lengths == lengths[0]).all()):
            # Rows of one length, as most are, are copied as rows: no index for each byte.
            rows = out.reshape(len(lengths), -1)
            for number in np.unique(segments).tolist():
                mine = np.flatnonzero(segments == number)
                segment = self.segment(number)
                windows = sliding_window_view(np.frombuffer(segment.buffer, np.uint8), rows.shape[1])
                rows[mine] = windows[starts[mine]]
            return out
        places = np.cumsum(lengths) - lengths
        for number in np.unique(segments).tolist():
            mine = np.flatnonzero(segments == number)
            segment = self.segment(number)
            data = np.frombuffer(segment.buffer, np.uint8)
            sizes = lengths[mine]
            within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            out[np.repeat(places[mine], sizes) + within] = data[np.repeat(starts[mine], sizes) + within]
        return out
