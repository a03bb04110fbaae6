"""The engine of the indexed log: appends frames, makes them durable together, finds records again.

One engine owns one storage. Writers append under a short lock and then wait for durability; whoever comes
first syncs for all that have appended meanwhile (group commit). Readers take no lock on the way to a record.
Index flushes, merges and garbage collection belong to `maintenance.py`, off the write path.

If a sync ever fails the engine refuses further writes: nobody knows what the disk holds then, and only
opening the log again, which writes the tail anew, can tell.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ckpt.errors import BackendUnavailableError, CorruptRecordError
from ckpt.versions import Commit
from ckpt_backends.log.catalog import Catalog, NamespaceState, commit_from_meta
from ckpt_backends.log.frame import Body, Frame, Kind, build_body, seal
from ckpt_backends.log.index import Index, Live
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
from ckpt_backends.log.storage import Storage

_REPLAYED_RECORDS = 1 << 20
"""A long replay turns this many records at a time into a run of 16 bytes a key, to bound memory."""


class Engine:
    """A log that is open: catalog, index, and the place where the next frame goes."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.lock = threading.RLock()
        """Guards catalog, index tables, sequences and the tail."""
        self._sync_done = threading.Condition(threading.Lock())
        self._syncing = False
        self._failure: BackendUnavailableError | None = None
        self.on_append: Callable[[], None] = lambda: None
        self._load()

    # -- opening ---------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the manifest and replay what came after it; without a usable index, replay everything."""
        self.catalog = Catalog()
        self.summaries: dict[int, SegmentSummary] = {}
        self.damages: list[Damage] = []
        self.live_records = 0
        self.index_problem: str | None = None
        """Why the index files could not be used when the log was opened."""
        self._seen = self.storage.fingerprint()
        try:
            data = self.storage.read_manifest()
            manifest = decode_manifest(data) if data is not None else None
            runs = (
                [Run(name, self.storage.read_index_file(name)) for name in manifest.runs] if manifest else []
            )
        except (IndexDamagedError, FileNotFoundError, ValueError) as error:
            self.index_problem = str(error)
            manifest, runs = None, []
        self._open_log(manifest, runs)

    def _open_log(self, manifest: Manifest | None, runs: list[Run]) -> None:
        numbers = self.storage.numbers()
        if manifest is not None:
            log_id: int | None = manifest.log_id
            self.catalog.restore(manifest.catalog)
            self.summaries = manifest.segments
            self.damages = manifest.damages
            self.live_records = manifest.live_records
        else:
            log_id = find_log_id(self.storage, numbers)
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
        existing = self.storage.numbers()
        self._last_number = max(existing, default=0)
        if not self.storage.read_only:
            self._take_over(replayed.clean, start, [n for n in existing if n not in self.live])

    def _take_stock(self, replayed: Replayed) -> None:
        """Which segments and which recent records count, now that the catalog is complete."""
        for number, end in replayed.ends.items():
            self.summaries.setdefault(number, SegmentSummary(end, 0)).end = end
        gone = self.catalog.retired | set(replayed.discarded)
        self.live = Live(n for n in self.summaries if n not in gone)
        self.lost = self.live.numbers - set(self.storage.numbers())
        self.summaries = {n: s for n, s in self.summaries.items() if n in self.live}
        known = {(d.segment, d.start): d for d in [*self.damages, *replayed.damages]}
        self.damages = [d for d in known.values() if d.segment in self.live and not self._is_skipped(d)]
        self.index.active.forget(
            lambda ns, loc: loc >> SEGMENT_SHIFT not in self.live or ns not in self.catalog.by_id
        )

    def _take_over(self, clean: bool, start: Position | None, leftovers: list[int]) -> None:
        """Make what was replayed durable, and the tail ready for the next frame."""
        if not clean:
            first = start.segment if start else 0
            for number in sorted(n for n in self.live.numbers - self.lost if n >= first):
                begin = start.offset if start and start.segment == number else self.storage.data_start
                self.storage.heal(number, begin, self.summaries[number].end)
        resumable = self.tail.segment in self.live and self.tail.segment not in self.lost
        if resumable and (clean or self.storage.cut(self.tail.segment, self.tail.offset)):
            seed = segment_seed(self.log_id, self.tail.segment)
            self.storage.resume(self.tail.segment, seed)
            self.records.forget(self.tail.segment)
        for number in leftovers:
            self.catalog.retired.add(number)
            self.storage.retire(Segment(number, 0, 0, memoryview(b"")))

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
        with self.lock:
            self.index = Index(self.records, self.log_id)
            self.summaries = {}
            catalog, self.catalog = self.catalog, Catalog()
            replayed = Replay(self.storage, self.log_id, None, self.durable).run(self._apply)
            self.catalog = catalog
            self._take_stock(replayed)

    def reload(self) -> None:
        """Readers only: forget everything and look at the log anew."""
        with self.lock:
            self._load()

    def refresh(self) -> None:
        """Readers only: see what the writer has done since."""
        with self.lock:
            if self.storage.fingerprint() != self._seen:
                self._load()
            elif self.storage.has_frame_at(self.tail.segment, self.tail.offset):
                replayed = Replay(self.storage, self.log_id, self.tail, self.durable).run(self._apply)
                self.tail, self.durable = replayed.tail, replayed.tail.sequence - 1
                self._take_stock(replayed)

    # -- appending -------------------------------------------------------------------------------

    def append(self, bodies: list[Body], *, commit: Commit | None = None) -> int:
        """Append one batch and make it visible; durable only after `wait_durable` of the returned sequence.

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
        return self._appended

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
        """True once a sync has failed."""
        return self._failure is not None

    @property
    def next_sequence(self) -> int:
        """The sequence that the next frame will get."""
        return self._appended + 1

    def require_writable(self) -> None:
        """Raise if this log takes no writes: opened for reading, or a sync has failed."""
        if self.storage.read_only:
            raise BackendUnavailableError(
                f"{self.storage.address} is open for reading; open it without mode=read"
            )
        if self._failure is not None:
            raise BackendUnavailableError(
                f"{self.storage.address} refuses writes since a sync failed ({self._failure}); close it, "
                "mend the cause and open it again: everything acknowledged is kept"
            )

    # -- durability ------------------------------------------------------------------------------

    def wait_durable(self, sequence: int) -> None:
        """Return when every frame up to the sequence is on stable storage. One sync serves all who wait."""
        with self._sync_done:
            while self.durable < sequence:
                if self._failure is not None:
                    raise self._failure
                if not self._syncing:
                    break
                self._sync_done.wait()
            else:
                return
            self._syncing = True
        with self.lock:
            target = self._appended
        try:
            self.storage.sync()
        except BackendUnavailableError as error:
            self._end_sync(0, error)
            raise
        except BaseException:
            self._end_sync(0, BackendUnavailableError(f"{self.storage.address}: the sync was interrupted"))
            raise
        self._end_sync(target, None)

    def _end_sync(self, durable: int, failure: BackendUnavailableError | None) -> None:
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
        self.storage.replace_manifest(encode_manifest(manifest))
        self.index_problem = None

    def retire(self, numbers: Iterable[int]) -> None:
        """The log needs these segments no more, and durably says so."""
        with self.lock:
            retired = [self.records.segment(n) for n in numbers]
            for segment in retired:
                self.summaries.pop(segment.number, None)
                self.records.forget(segment.number)
            self.live = Live(self.summaries)
        for segment in retired:
            self.storage.retire(segment)

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

    def close(self) -> None:
        """Free the storage; the index was saved by maintenance."""
        self.storage.close()
