"""The engine of the indexed log: appends frames, makes them durable together, finds records again.

One engine owns one storage. Writers append under a short lock and then wait for durability; whoever comes
first syncs for all that have appended meanwhile (group commit). Readers take no lock on the way to a record.
Index flushes, merges and garbage collection belong to `maintenance.py`, off the write path.

If a sync ever fails the engine refuses further writes: nobody knows what the disk holds then, and only
opening the log again, which writes the tail anew, can tell.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ckpt.errors import BackendUnavailableError, CorruptRecordError
from ckpt.versions import Commit
from ckpt_backends.log.catalog import Catalog, NamespaceState, commit_from_meta
from ckpt_backends.log.frame import Body, Frame, Kind, build_body, seal
from ckpt_backends.log.index import Index
from ckpt_backends.log.manifest import (
    Damage,
    Manifest,
    Position,
    SegmentSummary,
    decode_manifest,
    encode_manifest,
)
from ckpt_backends.log.records import Records
from ckpt_backends.log.replay import Replay, Replayed, find_log_id
from ckpt_backends.log.runs import (
    MAX_SEGMENT_BYTES,
    SEGMENT_SHIFT,
    IndexDamagedError,
    Run,
    pack_location,
)
from ckpt_backends.log.segment import Segment, SegmentHeader, segment_seed
from ckpt_backends.log.sight import Live
from ckpt_backends.log.storage import LostRaceError, SegmentGoneError, Storage

_REPLAYED_RECORDS = 1 << 20
"""A long replay turns this many records at a time into a run of 16 bytes a key, to bound memory."""
_LOADS = 8
"""How often opening starts over because another writer replaced or retired what it was about to read."""


class Ticket(NamedTuple):
    """What an append returns: its last sequence, and in which of the engine's lives it got that."""

    sequence: int
    life: int


class Engine:
    """A log that is open: catalog, index, and the place where the next frame goes."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.lock = threading.RLock()
        """Guards catalog, index tables, sequences and the tail."""
        self._sync_done = threading.Condition(threading.Lock())
        self._syncing = False
        self._closing = False
        self._failure: BackendUnavailableError | None = None
        self.on_append: Callable[[], None] = lambda: None
        self.life = 0
        """Rises when frames that were appended and never synced are given up, see `reload`."""
        self._ends_of_lives: dict[int, int] = {}
        self.turn = 0
        """Odd while what readers look at is being replaced."""
        self._load()

    # -- opening ---------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the manifest and replay what came after it; without a usable index, replay everything.

        Whole or not at all: if the storage fails in the middle, everything is as it was.
        """
        before = self.__dict__.copy()
        try:
            for _ in range(_LOADS - 1):
                with contextlib.suppress(SegmentGoneError):
                    return self._try_to_load()
            return self._try_to_load()
        except BaseException:
            self.__dict__.update(before)
            raise

    def _try_to_load(self) -> None:
        self.catalog = Catalog()
        self.summaries: dict[int, SegmentSummary] = {}
        self.damages: list[Damage] = []
        self.live_records = 0
        self.index_problem: str | None = None
        """Why the index files could not be used when the log was opened."""
        self._seen = self.storage.fingerprint()
        manifest, runs = self._read_index()
        self.saved = manifest
        """The newest manifest that this engine has read or written."""
        self._open_log(manifest, runs)

    def _read_index(self) -> tuple[Manifest | None, list[Run]]:
        seen: bytes | None = None
        while True:
            data = self.storage.read_manifest()
            try:
                manifest = decode_manifest(data) if data is not None else None
                names = manifest.runs if manifest else []
                return manifest, [Run(name, self.storage.read_index_file(name)) for name in names]
            except (IndexDamagedError, FileNotFoundError, ValueError) as error:
                # The writer may have replaced the manifest, and removed the runs of the old one, just now.
                if data == seen:
                    self.index_problem = str(error)
                    return None, []
                seen = data

    def _open_log(self, manifest: Manifest | None, runs: list[Run]) -> None:
        if manifest is not None:
            log_id: int | None = manifest.log_id
            self.catalog.restore(manifest.catalog)
            self.summaries = {n: SegmentSummary(s.end, s.records) for n, s in manifest.segments.items()}
            self.damages = manifest.damages
            self.live_records = manifest.live_records
        else:
            log_id = find_log_id(self.storage, self.storage.numbers())
        self.log_id = secrets.randbits(63) | 1 if log_id is None else log_id
        self.records = Records(self.storage, self.log_id)
        self.index = Index(self.records, self.log_id)
        self.index.runs = tuple(runs)
        self._replay(manifest.position if manifest else None, manifest.durable if manifest else 0)

    def _replay(self, start: Position | None, durable: int) -> None:
        replayed = Replay(self.storage, self.log_id, start, durable).run(self._apply)
        self.tail = replayed.tail
        self.durable = self._appended = replayed.tail.sequence - 1
        self._seed = segment_seed(self.log_id, self.tail.segment)
        self._take_stock(replayed)
        # What was not there when the walk began may be a newer segment of another writer: not a leftover, and
        # no number to go on from.
        self._last_number = max(replayed.listed, default=0)
        if not self.storage.read_only:
            self._take_over(replayed.clean, start, [n for n in replayed.listed if self._is_leftover(n)])

    def _take_stock(self, replayed: Replayed) -> None:
        """Which segments and which recent records count, now that the catalog is complete."""
        for number, end in replayed.ends.items():
            self.summaries.setdefault(number, SegmentSummary(end, 0)).end = end
        missing = self._find_missing(replayed)
        for damage in missing:
            self.summaries.setdefault(damage.segment, SegmentSummary(damage.end, 0))
        self.live = Live(n for n in self.summaries if n not in replayed.discarded and self.catalog.needs(n))
        self.lost = self.live.numbers - set(replayed.listed)
        self.summaries = {n: s for n, s in self.summaries.items() if n in self.live}
        known = {(d.segment, d.start): d for d in [*self.damages, *replayed.damages, *missing]}
        self.damages = [d for d in known.values() if d.segment in self.live and not self._is_skipped(d)]
        self.index.active.forget(
            lambda ns, loc: loc >> SEGMENT_SHIFT not in self.live or ns not in self.catalog.by_id
        )

    def _find_missing(self, replayed: Replayed) -> list[Damage]:
        """What must have been there and was not seen by a walk over the whole log."""
        if replayed.started_at is not None:
            return []
        last = replayed.tail.sequence - 1
        kept = self.catalog.kept
        gone = [n for n in {*kept, *replayed.unseen} if n not in replayed.listed and self.catalog.needs(n)]
        missing = [Damage(n, 0, kept.get(n, 0), last, "the file is gone") for n in gone]
        for number, end in replayed.ends.items():
            if end < kept.get(number, 0):
                missing.append(Damage(number, end, kept[number], last, "no frame starts here"))
        return missing

    def settle_segments(self, without: Iterable[int]) -> None:
        """The catalog says from now on which segments count: all but those. Callers hold the lock."""
        gone, tail = frozenset(without), self.tail.segment
        self.catalog.kept_before = tail
        self.catalog.kept = {n: s.end for n, s in self.summaries.items() if n < tail and n not in gone}
        self.catalog.skips = [skip for skip in self.catalog.skips if self.catalog.needs(skip[0])]

    def _is_leftover(self, number: int) -> bool:
        # Where nothing tears, what lies after the tail is the beginning of a batch that is being written.
        return number not in self.live and (self.storage.tears or number < self.tail.segment)

    def _take_over(self, clean: bool, start: Position | None, leftovers: list[int]) -> None:
        """Make what was replayed durable, and the tail ready for the next frame."""
        if not clean:
            first = start.segment if start else 0
            for number in sorted(n for n in self.live.numbers - self.lost if n >= first):
                begin = start.offset if start and start.segment == number else self.storage.data_start
                self.storage.heal(number, begin, self.summaries[number].end)
        # A discarded segment says where its predecessor ended. Only a new segment after it, which says
        # something else, takes its word away for good: so nothing is appended before it in number.
        discarded = [n for n in leftovers if n > self.tail.segment]
        resumable = not discarded and self.tail.segment in self.live and self.tail.segment not in self.lost
        if resumable and (clean or self.storage.cut(self.tail.segment, self.tail.offset)):
            seed = segment_seed(self.log_id, self.tail.segment)
            self.storage.resume(self.tail.segment, seed)
            self.records.forget(self.tail.segment)
        for number in leftovers:
            if number not in discarded:
                self.storage.retire(Segment(number, 0, 0, memoryview(b"")), self.catalog.retired_ms / 1000)

    def _is_skipped(self, damage: Damage) -> bool:
        return any(
            segment == damage.segment and start <= damage.start and damage.end <= end
            for segment, start, end in self.catalog.skips
        )

    def _apply(self, batch: list[Frame]) -> None:
        """Replay one batch of frames."""
        for frame in batch:
            segment = frame.owner
            assert isinstance(segment, Segment)
            location = pack_location(segment.number, frame.offset)
            summary = self.summaries.setdefault(segment.number, SegmentSummary(frame.end, 0))
            summary.records += frame.count
            summary.end = frame.end
            match frame.kind:
                case Kind.DATA:
                    self.index.add_plain(frame.namespace, frame.keys(), location)
                case Kind.COMMIT | Kind.MOVED:
                    self.index.add_layer(frame.namespace, frame.layer, location, frame.sequence, frame.count)
                case Kind.CONTROL:
                    self.catalog.apply(frame.sequence, msgspec.msgpack.decode(frame.meta))
        self.index.spill(_REPLAYED_RECORDS)
        last = batch[-1]
        if last.kind is Kind.COMMIT and last.meta_bytes and (state := self.catalog.by_id.get(last.namespace)):
            state.add(commit_from_meta(last.meta, last.layer))

    def rebuild(self) -> None:
        """Forget the index files and index every frame anew: the answer to a damaged index."""
        with self.lock, self.replacing():
            self.index = Index(self.records, self.log_id)
            self.summaries = {}
            catalog, self.catalog = self.catalog, Catalog()
            replayed = Replay(self.storage, self.log_id, None, self.durable).run(self._apply)
            self.catalog = catalog
            self._take_stock(replayed)

    def reload(self) -> None:
        """Look at the log anew, as readers do and writers after a lost race.

        What was appended and never synced is given up: who waits for it gets LostRaceError. Callers do not
        hold the lock.
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
                with self.replacing():
                    self._replay_more()
                return True
        self.reload()
        return True

    def _replay_more(self) -> None:
        seen, self._seen = self._seen, None  # an interrupted replay must not be taken up in the middle
        replayed = Replay(self.storage, self.log_id, self.tail, self.durable).run(self._apply)
        self.tail = replayed.tail
        self.durable = self._appended = replayed.tail.sequence - 1
        self._last_number = max(replayed.listed, default=0)
        self._take_stock(replayed)
        self._seen = seen

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """Readers, who take no lock, ask again if this happened under their question."""
        if self.turn & 1:
            yield
            return
        self.turn += 1
        try:
            yield
        finally:
            self.turn += 1

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
            # What the failed write left behind is unknown: the next frame goes to a new segment, whose header
            # says that the log ended before this batch. Sequences are not used again.
            self.storage.abandon()
            self._appended = sequence
            raise
        self._appended = sequence - 1
        self.tail = Position(number, offset, sequence)
        self._make_visible(placed, commit)
        self.on_append()
        return Ticket(self._appended, self.life)

    def _begin(self, sequence: int, previous: int, previous_end: int, size: int) -> tuple[int, int]:
        """Start a new segment; its number and where its first frame goes."""
        number = max([self._last_number, *self.summaries, previous]) + 1
        header = SegmentHeader(self.log_id, number, self.storage.data_start, previous, previous_end, sequence)
        seed = segment_seed(self.log_id, number)
        self._last_number = number
        self.storage.begin(header, seed, size)
        self._seed = seed
        return number, self.storage.data_start

    def _make_visible(self, placed: list[tuple[Body, int, int]], commit: Commit | None) -> None:
        for body, location, sequence in placed:
            number = location >> SEGMENT_SHIFT
            summary = self.summaries.get(number)
            if summary is None:
                summary = self.summaries[number] = SegmentSummary(0, 0)
                self.live = Live(self.summaries)
            summary.records += body.count
            if body.kind is Kind.DATA:
                self.index.add_plain(body.namespace, body.keys, location)
            elif body.kind is not Kind.CONTROL:
                layer = body.layer or (commit.sequence if commit else 0)
                self.index.add_layer(body.namespace, layer, location, sequence, body.count)
        self.summaries[self.tail.segment].end = self.tail.offset
        if commit is not None:
            self.catalog.by_id[placed[-1][0].namespace].add(commit)

    def control(self, what: dict[str, Any]) -> Body:
        """A control frame that says what changed in the catalog."""
        return build_body(Kind.CONTROL, 0, (), (), meta=msgspec.msgpack.encode(what))

    @property
    def has_failed(self) -> bool:
        """True once a sync has failed, until the log was looked at anew."""
        return self._failure is not None

    @property
    def next_sequence(self) -> int:
        """The sequence that the next frame will get."""
        return self._appended + 1

    def require_writable(self) -> None:
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
        """Return when every frame up to the ticket is on stable storage. One sync serves all who wait.

        Callers do not hold the lock: who syncs needs it for a moment.
        """
        with self._sync_done:
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
        with self._sync_done:
            self._syncing = False
            self.durable = max(self.durable, durable)
            self._failure = self._failure or failure
            self._sync_done.notify_all()

    # -- the index on disk -----------------------------------------------------------------------

    def picture(self) -> Manifest:
        """What a manifest must say if everything up to the tail is in the runs. Callers hold the lock."""
        return Manifest(
            log_id=self.log_id,
            position=self.tail,
            durable=self.tail.sequence - 1,
            runs=[],
            segments={n: SegmentSummary(s.end, s.records) for n, s in self.summaries.items()},
            catalog=self.catalog.dump(),
            damages=list(self.damages),
            live_records=self.live_records,
        )

    def save_manifest(self, manifest: Manifest) -> None:
        """Make the runs and what is durable known to the next one who opens the log."""
        try:
            self.storage.replace_manifest(encode_manifest(manifest))
        except LostRaceError as error:
            # The index of another writer counts now; ours refers to files that it may remove.
            with self._sync_done:
                self._failure = self._failure or error
            raise
        self.saved = manifest
        self.index_problem = None

    def small_segments(self, before: int) -> list[int]:
        """The segments that are so short that they are worth rewriting whatever they hold."""
        limit = self.storage.small_bytes
        return [n for n, summary in self.summaries.items() if n < before and summary.end < limit]

    def retire(self, numbers: Iterable[int]) -> None:
        """The log needs these segments no more, and durably says so."""
        with self.lock:
            retired = [self.records.segment(n) for n in numbers]
            for segment in retired:
                self.summaries.pop(segment.number, None)
                self.records.forget(segment.number)
            self.live = Live(self.summaries)
        for segment in retired:
            self.storage.retire(segment, self.catalog.retired_ms / 1000)

    # -- doubt -----------------------------------------------------------------------------------

    def require_certain(self, locations: Iterable[int | None]) -> None:
        """Raise if damage may hide a newer record than these (None: no record was found)."""
        if not self.damages:
            return
        worst = max(self.damages, key=lambda d: d.last_sequence)
        for location in locations:
            if location is None or self.records.frame(location).sequence <= worst.last_sequence:
                raise CorruptRecordError(
                    f"{self.storage.address} segment {worst.segment} offset {worst.start} is damaged "
                    f"({worst.reason}) and may have held a newer record of this key; "
                    f"run: ckpt repair {self.storage.address}"
                )

    def namespace(self, name: str) -> NamespaceState | None:
        """A namespace by name; with damage in the log, not finding one is no answer."""
        state = self.catalog.by_name.get(name)
        if state is None or state.history is not None:
            self.require_certain([None])
        return state

    def refuse_writes(self) -> None:
        """The log is being closed: what was appended before is all there will be."""
        with self.lock:
            self._closing = True

    def close(self) -> None:
        """Free the storage; the index was saved by maintenance."""
        self.storage.close()
