"""Opening a log: what was acknowledged is there again, whatever the index says and however the log ended.

The manifest and its runs are a head start; everything after them is replayed from the frames, and without a
usable index everything is. A writer then makes durable what was replayed and gives up what was torn.

A log that was closed, and has not been written to since, has nothing to replay: its manifest says all there
is to say. What only a writer needs is left to the first write then.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable, Iterator

import msgspec

from ckpt.errors import CorruptRecordError
from ckpt_backends.engine.catalog import Catalog, NamespaceState, commit_from_meta
from ckpt_backends.engine.frame import Frame, FrameKind
from ckpt_backends.engine.index import Index
from ckpt_backends.engine.manifest import Damage, Manifest, Position, SegmentSummary, decode_manifest
from ckpt_backends.engine.recent import hashes_of
from ckpt_backends.engine.records import Records
from ckpt_backends.engine.replay import Replay, Replayed, find_log_id
from ckpt_backends.engine.runs import SEGMENT_SHIFT, IndexDamagedError, Run, pack_location
from ckpt_backends.engine.segment import Segment, segment_seed
from ckpt_backends.engine.storage import SegmentGoneError, Storage
from ckpt_backends.engine.visibility import LiveSegments

_REPLAYED_RECORDS = 1 << 20
"""A long replay turns this many records at a time into a run of 16 bytes a key, to bound memory."""
_LOADS = 8
"""How often opening starts over because another writer replaced or retired what it was about to read."""


class OpenLog:
    """A log as it was when one last looked: catalog, index, and the place where the next frame goes."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.lock = threading.RLock()
        """Guards catalog, index tables, sequences and the tail."""
        self.turn = 0
        """Odd while what readers look at is being replaced."""
        self._doubtful = False
        """The manifest said that the log was closed, and the segments said that it was not."""
        self._load()

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
        self.needed_bytes = self.collected_bytes = 0
        self.index_problem: str | None = None
        """Why the index files could not be used when the log was opened."""
        self.untouched = False
        """The log is as it was closed, and this engine has not made it ready to be written to."""
        self._seen = None if self.storage.alone else self.storage.fingerprint()
        manifest, runs = self._read_index()
        self.saved = manifest
        """The newest manifest that this engine has read or written."""
        self._open_log(manifest, runs)

    def _read_index(self) -> tuple[Manifest | None, list[Run]]:
        """The manifest and its runs; the catalog becomes what the manifest says."""
        seen: bytes | None = None
        while True:
            data = self.storage.read_manifest()
            if data is None:
                return None, []
            try:
                manifest, self.catalog = decode_manifest(data)
                return manifest, [Run(name, self.storage.read_index_file(name)) for name in manifest.runs]
            except (IndexDamagedError, FileNotFoundError, ValueError) as error:
                # The writer may have replaced the manifest, and removed the runs of the old one, just now.
                if data == seen:
                    self.catalog, self.index_problem = Catalog(), str(error)
                    return None, []
                seen = data

    def _open_log(self, manifest: Manifest | None, runs: list[Run]) -> None:
        closed = manifest is not None and self._is_closed(manifest)
        if self.storage.alone:
            self.storage.examine(closed=closed)
        if manifest is not None:
            log_id: int | None = manifest.log_id
            self.summaries = {n: SegmentSummary(s.end, s.records) for n, s in manifest.segments.items()}
            self.damages = manifest.damages
            self.needed_bytes, self.collected_bytes = manifest.needed_bytes, manifest.collected_bytes
        else:
            log_id = find_log_id(self.storage, self.storage.numbers())
        self.log_id = secrets.randbits(63) | 1 if log_id is None else log_id
        self.records = Records(self.storage, self.log_id)
        self.index = Index(self.records, self.log_id)
        self.index.runs = tuple(runs)
        if manifest is not None and closed:
            self._continue_at(manifest.position)
            self._take_stock(_nothing_after(manifest))
            self._last_number = manifest.position.segment
            self.untouched = True
        else:
            self._replay(manifest.position if manifest else None, manifest.durable if manifest else 0)

    def _is_closed(self, manifest: Manifest) -> bool:
        """Whether the manifest says all there is to say, and its last segment agrees."""
        if not manifest.closed or self._doubtful or not self.storage.alone:
            return False
        return self.storage.ends_at(manifest.position.segment, manifest.position.offset, manifest.log_id)

    def _continue_at(self, tail: Position) -> None:
        self.tail = tail
        self.durable = self._appended = tail.sequence - 1
        self._seed = segment_seed(self.log_id, tail.segment)

    def _replay(self, start: Position | None, durable: int) -> None:
        replayed = Replay(self.storage, self.log_id, start, durable).run(self._apply)
        self._continue_at(replayed.tail)
        self._take_stock(replayed)
        # What was not there when the walk began may be a newer segment of another writer: not a leftover, and
        # no number to go on from.
        self._last_number = max(replayed.listed, default=0)
        if not self.storage.read_only:
            self.storage.clean_up()
            self._take_over(replayed.clean, start, [n for n in replayed.listed if self._is_leftover(n)])

    def _take_stock(self, replayed: Replayed) -> None:
        """Which segments and which recent records count, now that the catalog is complete."""
        for number, end in replayed.ends.items():
            self.summaries.setdefault(number, SegmentSummary(end, 0)).end = end
        missing = self._find_missing(replayed)
        for damage in missing:
            self.summaries.setdefault(damage.segment, SegmentSummary(damage.end, 0))
        self.live = LiveSegments(
            n for n in self.summaries if n not in replayed.discarded and self.catalog.needs(n)
        )
        self.lost = self.live.numbers - set(replayed.listed)
        needed = self.live.numbers
        self.summaries = {n: s for n, s in self.summaries.items() if n in needed}
        known = {(d.segment, d.start): d for d in [*self.damages, *replayed.damages, *missing]}
        self.damages = [
            d for d in known.values() if d.segment in needed and not d.is_within(self.catalog.skips)
        ]
        self.index.active.forget(
            lambda ns, loc: loc >> SEGMENT_SHIFT not in needed or ns not in self.catalog.by_id
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

    def _is_leftover(self, number: int) -> bool:
        # Where nothing tears, what lies after the tail is the beginning of a batch that is being written.
        return number not in self.live and (self.storage.tears or number < self.tail.segment)

    def make_ready(self) -> None:
        """Before the first write, do what reading a closed log did not need. Callers hold the lock."""
        if not self.untouched:
            return
        listed = self.storage.numbers()
        if max(listed, default=0) > self.tail.segment:
            # Not what a closed log looks like: everything is looked at anew, and nothing is believed.
            self._doubtful = True
            with self.replacing():
                self._load()
            return
        self.find_lost(listed)
        self.storage.clean_up()
        self._take_over(True, None, [n for n in listed if self._is_leftover(n)])
        self.untouched = False

    def find_lost(self, listed: list[int] | None = None) -> None:
        """Which segments are gone although the log needs them; opening a closed log did not look."""
        if self.untouched:
            self.lost = self.live.numbers.difference(self.storage.numbers() if listed is None else listed)

    def _take_over(self, clean: bool, start: Position | None, leftovers: list[int]) -> None:
        """Make what was replayed durable, and the tail ready for the next frame."""
        if not clean:
            first = start.segment if start else 0
            for number in sorted(n for n in self.live.numbers - self.lost if n >= first):
                begin = start.offset if start and start.segment == number else self.storage.data_start
                self.storage.heal(number, begin, self.summaries[number].end)
        # The header of a discarded segment holds the length of the segment before it. That length stays valid
        # until a newer segment's header replaces it, so nothing is appended to a segment of a lower number.
        discarded = [n for n in leftovers if n > self.tail.segment]
        resumable = not discarded and self.tail.segment in self.live and self.tail.segment not in self.lost
        if resumable and (clean or self.storage.cut(self.tail.segment, self.tail.offset)):
            seed = segment_seed(self.log_id, self.tail.segment)
            self.storage.resume(self.tail.segment, seed)
            self.records.forget(self.tail.segment)
        for number in leftovers:
            if number not in discarded:
                self.storage.retire(Segment(number, 0, 0, memoryview(b"")), self.catalog.retired_ms / 1000)

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
                case FrameKind.DATA:
                    self.index.add_plain(frame.namespace, frame.keys(), location)
                case FrameKind.COMMIT | FrameKind.MOVED:
                    # Now, while the frame is known to be what was written.
                    hashes = hashes_of(frame.key_ends_column(), frame.key_blob(), self.index.seed)
                    self.index.add_layer(
                        frame.namespace, frame.layer, location, frame.sequence, frame.count, hashes
                    )
                case FrameKind.CONTROL:
                    self.catalog.apply(frame.sequence, msgspec.msgpack.decode(frame.meta))
        self.index.spill(_REPLAYED_RECORDS)
        last = batch[-1]
        if (
            last.kind is FrameKind.COMMIT
            and last.meta_bytes
            and (state := self.catalog.by_id.get(last.namespace))
        ):
            state.add(commit_from_meta(last.meta, last.layer))

    def _replay_more(self) -> None:
        seen, self._seen = self._seen, None  # an interrupted replay must not be taken up in the middle
        replayed = Replay(self.storage, self.log_id, self.tail, self.durable).run(self._apply)
        self.tail = replayed.tail
        self.durable = self._appended = replayed.tail.sequence - 1
        self._last_number = max(replayed.listed, default=0)
        self._take_stock(replayed)
        self._seen = seen

    def rebuild(self) -> None:
        """Forget the index files and index every frame anew: the answer to a damaged index."""
        with self.lock, self.replacing():
            self.index = Index(self.records, self.log_id)
            self.summaries = {}
            catalog, self.catalog = self.catalog, Catalog()
            replayed = Replay(self.storage, self.log_id, None, self.durable).run(self._apply)
            self.catalog = catalog
            self._take_stock(replayed)

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """Marks the state as being replaced: readers take no lock, and ask again if it was replaced."""
        if self.turn & 1:
            yield
            return
        self.turn += 1
        try:
            yield
        finally:
            self.turn += 1

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


def _nothing_after(manifest: Manifest) -> Replayed:
    """What a walk from the manifest's position would find in a closed log."""
    position = manifest.position
    return Replayed(
        position, manifest.durable, clean=True, started_at=position, listed=sorted(manifest.segments)
    )
