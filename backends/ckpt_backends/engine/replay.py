"""Walking the log: every intact frame in order, where it ends, and what is damaged before that.

A frame that cannot be read is either torn (the crash came before it was durable, so it was not acknowledged)
or damaged (it was acknowledged, and its bytes have changed since). Each frame tells up to which sequence the
log was durable when it was written; the highest such number decides. A torn frame ends the log.
A damaged one is stepped over and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from ckpt_backends.engine.frame import BadFrameError, Frame
from ckpt_backends.engine.manifest import Damage, Position
from ckpt_backends.engine.search import find_next_frame
from ckpt_backends.engine.segment import Segment, SegmentHeader, UnbegunSegmentError, segment_seed
from ckpt_backends.engine.storage import Storage

Apply = Callable[[list[Frame]], None]


@dataclass(slots=True)
class Replayed:
    """What a walk found out."""

    tail: Position
    durable: int
    clean: bool
    """Nothing lies after the tail: appending may go on right there."""
    damages: list[Damage] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    """Segments that hold nothing but frames that were never acknowledged."""
    ends: dict[int, int] = field(default_factory=dict)
    """Where the frames of each walked segment end."""
    started_at: Position | None = None
    unseen: list[int] = field(default_factory=list)
    """Segments without a file that others name as their predecessor: retired, or lost."""
    bad_headers: list[int] = field(default_factory=list)
    """Walked segments whose header cannot be trusted; their frames say what it would."""
    listed: list[int] = field(default_factory=list)
    """The segments that existed when the walk began; what came later was not seen."""


def find_log_id(storage: Storage, numbers: list[int]) -> int | None:
    """The id of the log from its segments; None if there are none."""
    damaged = False
    for number in reversed(numbers):
        try:
            return storage.header(number).log_id
        except UnbegunSegmentError:
            continue  # a crash came between its creation and its first frame
        except BadFrameError:
            damaged = True
    if damaged:
        raise CorruptRecordError(
            f"no segment of {storage.address} has an intact header and the manifest is unreadable; "
            "restore one of them from a backup"
        )
    return None


class Replay:
    """One walk from a position (or the very beginning) to the end of the log."""

    def __init__(self, storage: Storage, log_id: int, start: Position | None, durable: int) -> None:
        self._storage, self._log_id, self._start = storage, log_id, start
        self._headers: dict[int, SegmentHeader | None] = {}
        self._look()
        self._durable = max(durable, self._find_durable())
        self._damages: list[Damage] = []
        self._ends: dict[int, int] = {}
        self._batch: list[Frame] = []
        self._tail = start or Position(0, 0, 1)

    def run(self, apply: Apply) -> Replayed:
        """Hand every batch of intact frames to `apply`, in order, and say how the log ends."""
        start = self._start
        for place, number in enumerate(self._numbers):
            segment = self._segment(number)
            if start is not None and number == start.segment:
                offset, expected = start.offset, start.sequence
            else:
                offset, expected = segment.data_start, self._first(number) or self._tail.sequence
                if not self._batch:
                    self._tail = Position(number, offset, expected)
            following = self._numbers[place + 1] if place + 1 < len(self._numbers) else None
            if self._walk(segment, offset, expected, following, apply):
                break
        tail = self._tail
        return Replayed(
            tail,
            self._durable,
            clean=not self._numbers or self._storage.extent(tail.segment) == tail.offset,
            damages=self._damages,
            discarded=[n for n in self._headers if n > tail.segment] if self._numbers else [],
            ends=self._ends,
            started_at=self._start,
            unseen=self._unseen(),
            bad_headers=[n for n in self._ends if self._headers[n] is None],
            listed=self._listed,
        )

    # -- one segment -----------------------------------------------------------------------------

    def _walk(
        self, segment: Segment, offset: int, expected: int, following: int | None, apply: Apply
    ) -> bool:
        """Walk one segment; True if the log ends in it although segments follow."""
        sealed = self._sealed_end(segment.number, following)
        limit = len(segment.buffer) if sealed is None else min(sealed, len(segment.buffer))
        while offset < limit:
            frame = self._read(segment, offset, expected, limit)
            if isinstance(frame, Frame):
                self._batch.append(frame)
                offset, expected = frame.end, frame.sequence + 1
                if not frame.continues:
                    self._apply_batch(apply, Position(segment.number, offset, expected))
                continue
            if (
                sealed is None
                and following is not None
                and self._ends_here(segment, offset, expected, following)
            ):
                break
            if expected > self._durable and self._storage.tears:
                self._ends[segment.number] = offset
                return True
            # Frames of an interrupted batch that are intact still count: they were acknowledged.
            found = self._next_frame(segment, offset + 1, limit)
            while found is not None and found.sequence <= expected:
                found = self._next_frame(segment, found.offset + 1, limit)
            end = found.offset if found else limit
            last = found.sequence - 1 if found else self._last_before(following, expected, end - offset)
            self._damages.append(Damage(segment.number, offset, end, last, frame))
            offset, expected = end, last + 1
            self._apply_batch(apply, Position(segment.number, offset, expected))
        self._ends[segment.number] = offset
        if sealed is None or offset >= sealed:
            return False
        if expected > self._durable and self._storage.tears:
            return True
        last = self._last_before(following, expected, sealed - offset)
        self._damages.append(Damage(segment.number, offset, sealed, last, "the segment was cut short"))
        self._apply_batch(apply, Position(segment.number, sealed, last + 1))
        return False

    def _ends_here(self, segment: Segment, offset: int, expected: int, following: int) -> bool:
        """Whether a segment ends at an offset where no frame starts, although its successor is not there."""
        if self._first(following) == expected:
            return True  # the next segment continues here, although its header names another predecessor
        # The segment after it, whose header held the length of this one, was retired; the catalog says so.
        return (
            self._headers[following] is not None
            and self._next_frame(segment, offset + 1, len(segment.buffer)) is None
        )

    def _apply_batch(self, apply: Apply, tail: Position) -> None:
        if self._batch:
            apply(self._batch)
            self._batch = []
        self._tail = tail

    def _read(self, segment: Segment, offset: int, expected: int, limit: int) -> Frame | str:
        """The frame at the offset, or what is wrong with it."""
        try:
            frame = Frame(segment.buffer, offset, segment.seed, segment)
            if frame.sequence > self._durable:
                frame.require_intact()
        except BadFrameError as error:
            return str(error)
        if frame.sequence != expected:
            return f"frame {frame.sequence} stands where {expected} should be"
        if frame.values_at + frame.values_bytes > limit:
            return "the frame is longer than its segment"
        if not frame.middle_is_intact():
            return "keys or columns of the frame do not match their checksum"
        return frame

    def _next_frame(self, segment: Segment, start: int, limit: int) -> Frame | None:
        """The first intact frame at or after `start`, whatever lies before it."""
        number, buffer, seed = segment.number, segment.buffer, segment.seed
        for begin, end in self._storage.written(number, start, limit):
            if found := find_next_frame(buffer, begin, limit, seed, until=end, epoch=number):
                return found
        return None

    # -- how segments belong together ------------------------------------------------------------

    def _look(self) -> None:
        """Find the segments, and how they follow each other.

        While a writer is at work, a listing may show a segment and not the older one before it. So what is
        named and not shown is looked for once more: what still is not there then was retired, or is lost.
        """
        first = self._start.segment if self._start is not None else 0
        unseen: set[int] = set()
        while True:
            self._listed = self._storage.numbers()
            existing = [n for n in self._listed if n >= first]
            self._headers = {n: self._headers.get(n) or self._header(n) for n in existing}
            self._numbers = self._chain(existing)
            before, unseen = unseen, {n for n in self._unseen() if n > first}
            if unseen <= before:
                return

    def _header(self, number: int) -> SegmentHeader | None:
        try:
            header = self._storage.header(number)
        except BadFrameError:
            return None
        return header if header.number == number and header.log_id == self._log_id else None

    def _chain(self, numbers: list[int]) -> list[int]:
        """The segments that belong to the log: what lies between one and its predecessor was discarded."""
        chain: list[int] = []
        limit = numbers[-1] if numbers else 0
        for number in reversed(numbers):
            if number > limit:
                continue
            header = self._headers[number]
            if header is None and not self._has_frames(number):
                continue  # a crash came between its creation and its first frame
            chain.append(number)
            limit = header.previous if header else number - 1
        return chain[::-1]

    def _has_frames(self, number: int) -> bool:
        return self._first_frame(number) is not None

    def _first_frame(self, number: int) -> Frame | None:
        segment = self._segment(number)
        try:
            return Frame(segment.buffer, segment.data_start, segment.seed)
        except BadFrameError:
            return None

    def _segment(self, number: int) -> Segment:
        return self._storage.segment(number, segment_seed(self._log_id, number))

    def _unseen(self) -> list[int]:
        headers = [self._headers[n] for n in self._numbers]
        named = {header.previous for header in headers if header is not None} - {0}
        return sorted(named.difference(self._listed))

    def _sealed_end(self, number: int, following: int | None) -> int | None:
        header = self._headers[following] if following is not None else None
        return header.previous_end if header is not None and header.previous == number else None

    def _first(self, number: int | None) -> int | None:
        """The sequence of a segment's first frame, also if its header is damaged."""
        if number is None:
            return None
        if (header := self._headers[number]) is not None:
            return header.first_sequence
        frame = self._first_frame(number)
        return frame.sequence if frame is not None else None

    def _last_before(self, following: int | None, expected: int, damaged_bytes: int) -> int:
        first = self._first(following)
        if first is not None or self._storage.tears:
            return first - 1 if first is not None else self._durable
        # The end of the last segment: so many frames at most can have stood there.
        return max(self._durable, expected + damaged_bytes // FRAME_HEADER_BYTES)

    def _find_durable(self) -> int:
        """The highest sequence that a frame near the end of the log knew to be durable."""
        highest = 0
        start = self._start
        for number in self._numbers[-2:] if start is None else self._numbers:
            segment = self._segment(number)
            offset = start.offset if start and start.segment == number else segment.data_start
            limit = len(segment.buffer)
            while offset < limit:
                try:
                    frame: Frame | None = Frame(segment.buffer, offset, segment.seed)
                except BadFrameError:
                    frame = self._next_frame(segment, offset + 1, limit)
                if frame is None:
                    break
                highest = max(highest, frame.durable)
                offset = frame.end
        return highest
