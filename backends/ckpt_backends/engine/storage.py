"""What the log's engine asks of the place where segments and index files live.

Two storages exist: a local directory (`local.py`) and an object store (`ckpt_backends.objects.backend`).
Both hold the same frames and the same index files; they differ in what an append costs and how a manifest
is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ckpt.errors import BackendUnavailableError, CorruptRecordError
from ckpt_backends.engine.segment import Segment, SegmentHeader

Buffers = Sequence["bytes | memoryview"]


class LostRaceError(BackendUnavailableError):
    """Another writer was first. Nothing that was unsynced is stored; look at the log anew and try again."""


class SegmentGoneError(CorruptRecordError):
    """A segment that the log needed is gone: lost, or retired by another writer since one last looked."""


class Storage(Protocol):
    """Segments that grow at one end, index files that are written once, and one replaceable manifest."""

    address: str
    read_only: bool
    data_start: int
    """Where frames start in a segment."""
    segment_bytes: int
    tears: bool
    """A crash may leave part of a write behind. Otherwise all that can be read was written on purpose."""
    unindexed_segments: int
    """How many segments may be unknown to the index files before these are due."""
    reads_are_cheap: bool
    """Looking at any segment costs no request, so that garbage can be measured to the byte."""
    alone: bool
    """No other process can write while this is open: no changes to look for, and what is closed stays so."""
    small_bytes: int
    """A segment below this is worth rewriting whatever it holds, once there are `small_segments` of them."""
    small_segments: int

    # -- the place -------------------------------------------------------------------------------

    def examine(self, *, closed: bool) -> None:
        """Unless a closed log was found, raise ConfigError if something else is there. Writers only."""

    def clean_up(self) -> None:
        """Remove what a crash has left, find what can be used again. Writers only, before a first write."""

    def ends_at(self, number: int, offset: int, log_id: int) -> bool:
        """Whether the segment is one of this log and not a byte longer. Asked only where one is alone."""

    # -- segments --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The segments that exist now, ascending."""

    def header(self, number: int) -> SegmentHeader:
        """A segment's header; BadFrameError if it cannot be trusted, UnbegunSegmentError if it is blank."""

    def segment(self, number: int, seed: int) -> Segment:
        """A segment to read; CorruptRecordError if it is gone, BackendUnavailableError if out of reach."""

    def begin(self, header: SegmentHeader, seed: int, at_least: int) -> Segment:
        """Start a new segment with room for `at_least` bytes of frames; appends go there from now on."""

    def give_back_room(self) -> None:
        """Free what is kept only to make later writes quick."""

    def prepare(self) -> None:
        """Do beforehand what makes the next `begin` and the writes after it quick; off the write path."""

    def capacity(self) -> int:
        """Up to which offset the segment that takes appends may be written; 0 if there is none."""

    def write(self, buffers: Buffers, offset: int) -> None:
        """Write frames at the offset of the current segment; durable only after `sync`."""

    def resume(self, number: int, seed: int) -> Segment | None:
        """Continue to append to an existing segment; None if this storage never does."""

    def abandon(self) -> None:
        """Take no more appends into the current segment: what a failed write left there is unknown."""

    def cut(self, number: int, end: int) -> bool:
        """Durably give up everything after `end`; False if that cannot be done under a reader's eyes."""

    def extent(self, number: int) -> int:
        """How long a segment is; a trimmed one ends with its last frame."""

    def written(self, number: int, start: int, end: int) -> Sequence[tuple[int, int]]:
        """The stretches of a segment between these places that may hold anything but zeros, ascending."""

    def has_frame_at(self, number: int, offset: int) -> bool:
        """Readers only: has the writer written something there? Cheap, and may say yes for nothing."""

    def heal(self, number: int, start: int, end: int) -> None:
        """Make sure that what is read there now is on stable storage too."""

    def seal(self) -> None:
        """The next `sync` is to cover what was written so far, and may do so without what comes after."""

    def sync(self) -> None:
        """Return when everything written before the call is on stable storage. Callers serialise it."""

    def first_unsynced(self) -> int | None:
        """The sequence from which frames are known not to be on stable storage; None if that is unknown."""

    def drop_unsynced(self) -> bool:
        """Forget what was written and not synced; False if there was nothing."""

    def retire(self, segment: Segment, since_s: float) -> None:
        """The log does not need this segment since then; free it once no reader holds it."""

    # -- index -----------------------------------------------------------------------------------

    def write_index_file(self, name: str, buffers: Buffers) -> None:
        """Durably create an index file under a name that was never used before."""

    def read_index_file(self, name: str) -> memoryview:
        """An index file; FileNotFoundError if it does not exist."""

    def remove_index_files(self, keep: set[str]) -> None:
        """Remove every index file that is not in `keep`."""

    def read_manifest(self) -> bytes | None:
        """The newest manifest, or None."""

    def replace_manifest(self, data: bytes) -> None:
        """Durably and atomically make `data` the newest manifest."""

    def fingerprint(self) -> object:
        """Changes whenever segments or the manifest were added, replaced or removed: what readers watch."""

    def stored_bytes(self) -> int:
        """How much room segments and index take."""

    def quarantine(self, name: str, data: bytes) -> str:
        """Durably keep bytes that were taken out of service; where they are."""

    def close(self) -> None:
        """Free every resource; idempotent."""
