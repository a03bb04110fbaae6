"""The engine of the indexed log: appends frames, makes them durable together, finds records again.

One engine owns one storage. Writers append under a short lock and then wait for durability; the first one to
wait syncs for all that have appended meanwhile (group commit). Readers take no lock on the way to a record.
Opening and recovery are in `opening.py`; index flushes, merges and garbage collection belong to
`maintenance.py`, off the write path.

If a sync ever fails the engine refuses further writes: what the disk holds is then unknown, and only
opening the log again, which writes the tail anew, can tell.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ckpt.contract.versions import Commit
from ckpt.errors import BackendUnavailableError
from ckpt_backends.engine.frame import Body, FrameKind, build_body, seal
from ckpt_backends.engine.manifest import Manifest, Position, SegmentSummary, encode_manifest
from ckpt_backends.engine.native import native
from ckpt_backends.engine.opening import OpenLog
from ckpt_backends.engine.recent import hashes_of
from ckpt_backends.engine.runs import MAX_SEGMENT_BYTES, SEGMENT_SHIFT, U64, pack_location
from ckpt_backends.engine.segment import SegmentHeader, segment_seed
from ckpt_backends.engine.storage import LostRaceError, SegmentGoneError, Storage
from ckpt_backends.engine.visibility import LiveSegments


def _nothing() -> None:
    """Does nothing: what is called on an append once maintenance has ended."""


class Ticket(NamedTuple):
    """What an append returns: its last sequence, and in which of the engine's lives it got that."""

    sequence: int
    life: int


class Engine(OpenLog):
    """A log that is open, and takes frames if it was opened for that."""

    def __init__(self, storage: Storage) -> None:
        self._sync_state = threading.RLock()  # of which a condition is made sooner than of a plain lock
        """Guards what is known of syncs: `durable`, `syncs`, whether one runs, and whether one has failed."""
        self._sync_done = threading.Condition(self._sync_state)
        self._syncing = False
        self._closing = False
        self._failure: BackendUnavailableError | None = None
        self.on_append: Callable[[], None] = _nothing
        self.syncs = 0
        """How often frames were made durable, each time all that waited for it."""
        self.life = 0
        """Rises when frames that were appended and never synced are given up, see `reload`."""
        self._ends_of_lives: dict[int, int] = {}
        self._one_manifest = threading.Lock()
        """Held while the manifest is replaced, so that an older one never comes last."""
        super().__init__(storage)

    # -- appending -------------------------------------------------------------------------------

    def append(self, bodies: list[Body], *, commit: Commit | None = None) -> Ticket:
        """Append one batch and make it visible; durable only after `wait_durable` of the returned ticket.

        Callers hold the lock. Either the whole batch is visible, now and after a crash, or none of it.
        """
        self.require_writable()
        placed: list[tuple[Body, int, int]] = []
        sequence, tail = self._appended + 1, self.tail
        number, offset = tail.segment, tail.offset
        buffers: list[bytes | memoryview] = []
        try:
            for body in bodies:
                size = body.frame_bytes
                if offset + size > self.storage.capacity() or offset >= MAX_SEGMENT_BYTES:
                    if buffers:
                        self.storage.write(buffers, offset - sum(map(len, buffers)))
                        buffers = []
                    number, offset = self._begin(sequence, number, offset, size)
                buffers += seal(
                    body,
                    sequence=sequence,
                    durable=self.durable,
                    epoch=number,
                    seed=self._seed,
                    layer=body.layer or (commit.sequence if commit else 0),
                    continues=len(placed) + 1 < len(bodies),
                )
                placed.append((body, pack_location(number, offset), sequence))
                offset, sequence = offset + size, sequence + 1
            self.storage.write(buffers, offset - sum(map(len, buffers)))
        except BaseException:
            self._give_up(sequence)
            raise
        self._appended = sequence - 1
        self.tail = Position(number, offset, sequence)
        self._make_visible(placed, commit)
        self.on_append()
        return Ticket(self._appended, self.life)

    def append_puts(self, namespace: int, items: dict[bytes, bytes]) -> Ticket | None:
        """Append puts of a plain namespace; None, and nothing done, if they take more than one small frame.

        Does what `append` does with the same puts, in a fraction of the time. Callers hold the lock.
        """
        sequence, tail, storage = self._appended + 1, self.tail, self.storage
        number, offset = tail.segment, tail.offset
        summary = self.summaries.get(number)
        if native is None or summary is None or self.untouched or self._closing or self._failure is not None:
            return None
        sealed = native.sealed_puts(items, namespace, sequence, self.durable, number, self._seed)
        if sealed is None:
            return None
        frame, keys = sealed
        end = offset + len(frame)
        if end > storage.capacity() or offset >= MAX_SEGMENT_BYTES:
            return None
        try:
            storage.write((frame,), offset)
        except BaseException:
            self._give_up(sequence + 1)
            raise
        self._appended = sequence
        self.tail = Position(number, end, sequence + 1)
        summary.records += len(keys)
        summary.end = end
        self.index.add_plain(namespace, keys, pack_location(number, offset))
        self.on_append()
        return Ticket(sequence, self.life)

    def _give_up(self, sequence: int) -> None:
        # What the failed write left behind is unknown: the next frame goes to a new segment, whose header
        # says that the log ended before this batch. Sequences are not used again.
        self.storage.abandon()
        self._appended = sequence

    def _begin(self, sequence: int, previous: int, previous_end: int, size: int) -> tuple[int, int]:
        """Start a new segment; its number and where its first frame goes."""
        number = max([self._last_number, *self.summaries, previous]) + 1
        header = SegmentHeader(self.log_id, number, self.storage.data_start, previous, previous_end, sequence)
        seed = segment_seed(self.log_id, number)
        self._last_number = number
        self._take_back_closed()
        self.storage.begin(header, seed, size)
        self._seed = seed
        return number, self.storage.data_start

    def _take_back_closed(self) -> None:
        """A segment is about to begin that a manifest which calls the log closed knows nothing of."""
        with self._one_manifest:
            if self.saved is not None and self.saved.closed:
                self._replace_manifest(msgspec.structs.replace(self.saved, closed=False))

    def _make_visible(self, placed: list[tuple[Body, int, int]], commit: Commit | None) -> None:
        for body, location, sequence in placed:
            number = location >> SEGMENT_SHIFT
            summary = self.summaries.get(number)
            if summary is None:
                summary = self.summaries[number] = SegmentSummary(0, 0)
                self.live = LiveSegments(self.summaries)
            summary.records += body.count
            if body.kind is FrameKind.DATA:
                self.index.add_plain(body.namespace, body.keys, location)
            elif body.kind is not FrameKind.CONTROL:
                layer = body.layer or (commit.sequence if commit else 0)
                hashes: U64 | Callable[[], U64] | None = body.hashes
                if hashes is None:
                    hashes = partial(hashes_of, body.key_ends_column(), body.key_blob(), self.index.seed)
                self.index.add_layer(body.namespace, layer, location, sequence, body.count, hashes)
        self.summaries[self.tail.segment].end = self.tail.offset
        if commit is not None:
            self.catalog.by_id[placed[-1][0].namespace].add(commit)

    def control(self, what: dict[str, Any]) -> Body:
        """A control frame that says what changed in the catalog."""
        return build_body(FrameKind.CONTROL, 0, (), (), meta=msgspec.msgpack.encode(what))

    @property
    def has_failed(self) -> bool:
        """True once a sync has failed, until the log was looked at anew."""
        return self._failure is not None

    @property
    def next_sequence(self) -> int:
        """The sequence that the next frame will get."""
        return self._appended + 1

    def require_writable(self) -> None:
        """Raise if this log takes no writes; before the first one, make it ready."""
        self.require_intact()
        if self.untouched:
            with self.lock:
                self.make_ready()

    def require_intact(self) -> None:
        """Raise if this log takes no writes: opened for reading, a sync has failed, or a race was lost."""
        if self.storage.read_only:
            raise BackendUnavailableError(
                f"{self.storage.address} is open for reading; open it without mode=read"
            )
        if self._closing:
            raise BackendUnavailableError(
                f"{self.storage.address} is closed; open it again with open_backend()"
            )
        if isinstance(self._failure, LostRaceError):
            raise self._failure
        if self._failure is not None:
            raise BackendUnavailableError(
                f"{self.storage.address} refuses writes since a sync failed ({self._failure}); close it, "
                "mend the cause and open it again: everything acknowledged is kept"
            )

    # -- durability ------------------------------------------------------------------------------

    def everything(self) -> Ticket:
        """The ticket of all that was appended so far."""
        with self.lock:
            return Ticket(self._appended, self.life)

    def wait_durable(self, ticket: Ticket) -> None:
        """Return when every frame up to the ticket is on stable storage. One sync serves all waiting callers.

        Callers do not hold the lock: the thread that syncs needs it for a moment.
        """
        with self._sync_state:
            while (self._ends_of_lives.get(ticket.life, self.durable)) < ticket.sequence:
                if ticket.life != self.life:
                    raise self._lost_race()
                if self._failure is not None:
                    raise self._failure
                if not self._syncing:
                    break
                self._sync_done.wait()
            else:
                return
            self._syncing = True
        try:
            with self.lock:
                target = self._appended
                self.storage.seal()
            self.storage.sync()
        except BackendUnavailableError as error:
            self._end_sync(0, error)
            raise
        except BaseException:
            self._end_sync(0, BackendUnavailableError(f"{self.storage.address}: the sync was interrupted"))
            raise
        self._end_sync(target, None)

    def _lost_race(self) -> LostRaceError:
        return LostRaceError(f"another writer of {self.storage.address} was first; try again")

    def _end_sync(self, durable: int, failure: BackendUnavailableError | None) -> None:
        if failure is not None and (first := self.storage.first_unsynced()) is not None:
            durable = first - 1
        with self._sync_state:
            self._syncing = False
            self.syncs += durable > self.durable
            self.durable = max(self.durable, durable)
            self._failure = self._failure or failure
            self._sync_done.notify_all()

    # -- the index on disk -----------------------------------------------------------------------

    def picture(self, *, closed: bool = False) -> Manifest:
        """What a manifest must say if everything up to the tail is in the runs. Callers hold the lock."""
        return Manifest(
            log_id=self.log_id,
            position=self.tail,
            durable=self.tail.sequence - 1,
            runs=[],
            segments={n: SegmentSummary(s.end, s.records) for n, s in self.summaries.items()},
            catalog=self.catalog.dump(),
            damages=list(self.damages),
            needed_bytes=self.needed_bytes,
            collected_bytes=self.collected_bytes,
            closed=closed and self.can_be_closed,
        )

    @property
    def can_be_closed(self) -> bool:
        """Whether the log ends at the tail for every reader: no segment was given up that lies behind it."""
        return self.storage.alone and self._last_number == self.tail.segment

    def save_manifest(self, manifest: Manifest) -> None:
        """Record the runs and what is durable, for the next open of the log."""
        with self._one_manifest:
            self._replace_manifest(manifest)

    def _replace_manifest(self, manifest: Manifest) -> None:
        try:
            self.storage.replace_manifest(encode_manifest(manifest))
        except LostRaceError as error:
            # The index of another writer counts now; ours refers to files that it may remove.
            with self._sync_done:
                self._failure = self._failure or error
            raise
        self.saved = manifest
        self.index_problem = None

    def written_bytes(self) -> int:
        """How long all segments together are. Callers hold the lock."""
        return sum(summary.end for summary in self.summaries.values())

    def small_segments(self, before: int) -> list[int]:
        """The segments that are so short that they are worth rewriting whatever they hold."""
        limit = self.storage.small_bytes
        return [n for n, summary in self.summaries.items() if n < before and summary.end < limit]

    def settle_segments(self, without: Iterable[int]) -> None:
        """The catalog says from now on which segments count: all but those. Callers hold the lock."""
        gone, tail = frozenset(without), self.tail.segment
        self.catalog.kept_before = tail
        self.catalog.kept = {n: s.end for n, s in self.summaries.items() if n < tail and n not in gone}
        self.catalog.skips = [skip for skip in self.catalog.skips if self.catalog.needs(skip[0])]

    def retire(self, numbers: Iterable[int]) -> None:
        """The log needs these segments no more, and durably says so."""
        with self.lock:
            retired = [self.records.segment(n) for n in numbers]
            for segment in retired:
                self.summaries.pop(segment.number, None)
                self.records.forget(segment.number)
            self.live = LiveSegments(self.summaries)
        for segment in retired:
            self.storage.retire(segment, self.catalog.retired_ms / 1000)

    # -- what others have written ----------------------------------------------------------------

    def reload(self) -> None:
        """Look at the log anew, as readers do and writers after a lost race.

        What was appended and never synced is given up: calls that wait for it get LostRaceError. The caller
        does not hold the lock.
        """
        with self._sync_done:
            self._sync_done.wait_for(lambda: not self._syncing)
            self._syncing = True
        try:
            with self.lock, self.replacing():
                if self.storage.drop_unsynced():
                    self._ends_of_lives[self.life] = self.durable
                    self.life += 1
                    # If loading fails, what was dropped is still in the index: no writes on top of that.
                    self._failure = self._failure or self._lost_race()
                self._load()
                self._failure = None
        finally:
            self._end_sync(0, None)

    def is_behind(self) -> bool | None:
        """Whether others have written what this engine has not seen; None while frames of its own wait."""
        with self.lock:
            if self.durable < self._appended:
                return None
            tail, seen = self.tail, self._seen
        return self.storage.fingerprint() != seen or self.storage.has_frame_at(tail.segment, tail.offset)

    def refresh(self) -> bool:
        """See what other writers have done since, if anything; False while frames of its own are unsynced."""
        with self.lock:
            if self.durable < self._appended:
                return False
            moved = self.storage.fingerprint() != self._seen
            if not moved and not self.storage.has_frame_at(self.tail.segment, self.tail.offset):
                return True
            if not moved and self.tail.segment:
                # A segment may be retired between listing and reading it; then everything is looked at anew.
                with contextlib.suppress(SegmentGoneError):
                    with self.replacing():
                        self._replay_more()
                    return True
        self.reload()
        return True

    # -- life ------------------------------------------------------------------------------------

    def refuse_writes(self) -> None:
        """The log is being closed: what was appended before is all there will be."""
        self._closing = True  # before taking the lock, which a collection seldom frees
        with self.lock:
            return  # an append that was under way has ended

    def close(self) -> None:
        """Free the storage; the index was saved by maintenance."""
        self.on_append = _nothing  # ends the cycle with maintenance, so that our memory is freed at once
        self.storage.close()
