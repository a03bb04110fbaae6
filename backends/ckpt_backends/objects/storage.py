"""Segments and index of a log in an object store: every object is written once and never changed.

```
segments/NNNNNNNNNNNN.seg   the frames of one commit group, or of one compaction
index/run-….idx             as in the log
manifests/NNNNNNNNNNNN      the newest counts; created only if that number is free
quarantine/…                what `repair` took out of service
probe                       tells whether the store refuses to create what exists
```

A segment collects frames in memory until a caller waits for them; then it is created in one request, *only
if that number is free*. So the numbers order the writers: the creator of N has seen everything up to N-1. A
writer that comes second has lost a race (`LostRaceError`), looks at the log anew and tries again on top.

Objects that were retired are removed `grace_s` seconds later. Two things depend on that time: readers in
other processes that are in the middle of something, and the meaning of "that number is free": a number may
also be free because its object was retired and removed. So a writer that has not looked for half of that time
looks first. Clocks of different hosts must agree that well.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.engine.segment import HEADER_BYTES, Segment, SegmentHeader
from ckpt_backends.engine.storage import Buffers, LostRaceError, SegmentGoneError
from ckpt_backends.engine.store_kind import LOG_NAMES, StoreKind, kind_of_folder, kind_of_header
from ckpt_backends.objects.requests import ObjectExistsError, ObjectRequests
from ckpt_backends.objects.segments import TOKEN_BYTES, StoredSegment, UnsyncedSegment

_SEGMENT_NAME = re.compile(r"(\d{12})\.seg")
_FOLDERS = ("segments", "index", "manifests")
_MANIFEST_NAME = re.compile(r"\d{12}")


@dataclass(frozen=True, slots=True)
class ObjectStorageLimits:
    """How an object store is used: see `FsspecOptions`."""

    segment_bytes: int
    cache_bytes: int
    small_bytes: int
    small_segments: int
    unindexed_segments: int
    grace_s: float


class ObjectStorage:
    """The log's storage on whole-object requests: many writers, each of which has seen all before it."""

    data_start = HEADER_BYTES + TOKEN_BYTES
    tears = False
    reads_are_cheap = False
    alone = False

    def __init__(
        self,
        requests: ObjectRequests,
        address: str,
        sizes: ObjectStorageLimits,
        *,
        read_only: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._requests = requests
        self.address = address
        self.read_only = read_only
        self.segment_bytes = sizes.segment_bytes
        self.small_bytes, self.small_segments = sizes.small_bytes, sizes.small_segments
        self.unindexed_segments = sizes.unindexed_segments
        self._cache_bytes, self._grace_s = sizes.cache_bytes, sizes.grace_s
        self._clock = clock
        self._mutex = threading.Lock()
        self._unsynced: OrderedDict[int, UnsyncedSegment] = OrderedDict()
        self._current: UnsyncedSegment | None = None
        """The segment that takes appends."""
        self._cache: OrderedDict[int, memoryview] = OrderedDict()
        self._cached = 0
        self._alive: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()
        self._index_files: dict[str, memoryview] = {}
        self._index_candidates: set[str] = set()
        self._manifest = 0
        self._last = 0
        """The highest number that is known to be taken."""
        self._looked_at = float("-inf")
        """When all numbers after it were known to be free, on the monotonic clock."""
        self._retired: dict[int, float] = {}
        """Retired objects and from when on, by the clock, they may be removed."""
        self._unheld: deque[int] = deque()
        """Retired segments without a reader in this process; filled by finalizers."""
        self.on_evict: Callable[[int], None] = lambda _: None
        """Told when a segment's bytes leave the cache, so that they are not kept alive elsewhere."""
        if requests.local_folder and kind_of_folder(requests.local_folder) is StoreKind.LOG:
            raise self._is_a_log()
        if not read_only:
            requests.remove_local_leftovers(_FOLDERS)

    def examine(self, *, closed: bool) -> None:
        """Done when it was opened, and with each header."""

    def clean_up(self) -> None:
        """Done when it was opened."""

    def ends_at(self, number: int, offset: int, log_id: int) -> bool:
        del number, offset, log_id
        return False

    # -- segments --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        with self._mutex:
            waiting = set(self._unsynced)
        return sorted(waiting.union(self._look()))

    def _look(self) -> list[int]:
        """The objects that exist now."""
        started = time.monotonic()
        names = self._requests.list("segments")
        found = [int(m[1]) for name in names if (m := _SEGMENT_NAME.fullmatch(name))]
        self._last = max(found, default=0)
        self._looked_at = started
        return found

    def header(self, number: int) -> SegmentHeader:
        found = SegmentHeader.decode(self._bytes(number)[:HEADER_BYTES])
        if kind_of_header(found) is StoreKind.LOG:
            raise self._is_a_log()
        return found

    def _is_a_log(self) -> ConfigError:
        folder = self._requests.local_folder
        where = f"open it as log://{quote(folder)}" if folder else "copy it to a disk and open it as log://"
        return ConfigError(f"{self.address} holds a local log and no object store; {where}")

    def segment(self, number: int, seed: int) -> Segment:
        with self._mutex:
            segment = self._unsynced.get(number) or self._alive.get(number)
            if segment is None:
                segment = self._alive[number] = StoredSegment(number, seed, self.data_start, self._bytes)
            return segment

    def _bytes(self, number: int) -> memoryview:
        with self._mutex:
            waiting = self._unsynced.get(number)
            if waiting is not None:
                return waiting.buffer
            found = self._cache.get(number)
            if found is not None:
                self._cache.move_to_end(number)
                return found
        try:
            data = memoryview(self._requests.get(_segment(number)))
        except FileNotFoundError:
            raise SegmentGoneError(
                f"{_segment(number)} of {self.address} is gone although the log needs it; read again, and if "
                f"that does not help restore it, or run: ckpt repair {self.address}"
            ) from None
        self._remember(number, data)
        return data

    def _remember(self, number: int, data: memoryview) -> None:
        evicted: list[int] = []
        with self._mutex:
            if number not in self._cache:
                self._cached += len(data)
            self._cache[number] = data
            self._cache.move_to_end(number)
            while self._cached > self._cache_bytes and len(self._cache) > 1:
                oldest, gone = self._cache.popitem(last=False)
                self._cached -= len(gone)
                evicted.append(oldest)
        for oldest in evicted:
            self.on_evict(oldest)

    def begin(self, header: SegmentHeader, seed: int, at_least: int) -> Segment:
        segment = UnsyncedSegment(header, seed, max(self.segment_bytes, self.data_start + at_least))
        with self._mutex:
            self._unsynced[header.number] = self._current = segment
            self._alive[header.number] = segment
        return segment

    def give_back_room(self) -> None:
        """Nothing is kept in reserve; but interrupted uploads may have left something."""
        self._requests.remove_leftovers(_FOLDERS)

    def prepare(self) -> None:
        """Memory needs no preparation."""

    def capacity(self) -> int:
        current = self._current
        return current.size if current is not None else 0

    def write(self, buffers: Buffers, offset: int) -> None:
        assert self._current is not None
        self._current.write(buffers, offset)

    def resume(self, number: int, seed: int) -> Segment | None:
        del number, seed
        return None

    def abandon(self) -> None:
        self._current = None

    def cut(self, number: int, end: int) -> bool:
        del number, end
        return False

    def extent(self, number: int) -> int:
        return len(self._bytes(number))

    def written(self, number: int, start: int, end: int) -> Sequence[tuple[int, int]]:
        del number
        return [(start, end)]

    def has_frame_at(self, number: int, offset: int) -> bool:
        del offset
        return not self._is_free(number + 1)

    def _is_free(self, number: int) -> bool:
        """Whether this number was never created."""
        if self._must_look(number):
            return max(self._look(), default=0) < number
        started = time.monotonic()
        if self._requests.exists(_segment(number)):
            return False
        self._looked_at = started
        return True

    def _must_look(self, number: int) -> bool:
        """Whether the number may look free because its object was retired and removed already."""
        return number <= self._last or time.monotonic() - self._looked_at >= self._grace_s / 2

    def heal(self, number: int, start: int, end: int) -> None:
        """What can be read of an object is durable."""

    def seal(self) -> None:
        self._current = None  # what is appended from now on goes into the next object

    def sync(self) -> None:
        with self._mutex:
            waiting = [s for s in self._unsynced.values() if s is not self._current]
        for segment in waiting:
            self._upload(segment)
            with self._mutex:
                del self._unsynced[segment.number]

    def _upload(self, segment: UnsyncedSegment) -> None:
        if self._must_look(segment.number) and max(self._look(), default=0) >= segment.number:
            raise self._lost_race()
        started = time.monotonic()
        data = segment.data()
        try:
            self._requests.create(_segment(segment.number), data)
        except ObjectExistsError as other:
            # What the winner has written is read next, on the way to another try.
            self._remember(segment.number, memoryview(other.data))
            raise self._lost_race() from None
        self._remember(segment.number, memoryview(data))
        self._last = segment.number
        if time.monotonic() - started >= self._grace_s > 0 and max(self._look(), default=0) > segment.number:
            raise BackendUnavailableError(
                f"{self.address}: this process stood still for longer than grace_s={self._grace_s:g} while "
                "it wrote, and others have written since; whether the write counts is unknown: read it back"
            )
        self._looked_at = started

    def _lost_race(self) -> LostRaceError:
        return LostRaceError(f"another writer of {self.address} was first; try again")

    def first_unsynced(self) -> int | None:
        with self._mutex:
            return next((s.first_sequence for s in self._unsynced.values()), None)

    def drop_unsynced(self) -> bool:
        with self._mutex:
            dropped, self._unsynced, self._current = self._unsynced, OrderedDict(), None
            for number in dropped:
                self._alive.pop(number, None)
        return bool(dropped)

    def retire(self, segment: Segment, since_s: float) -> None:
        number = segment.number
        with self._mutex:
            if number in self._retired:
                return
            self._retired[number] = since_s + self._grace_s
            held = self._alive.pop(number, None)
            self._cached -= len(self._cache.pop(number, b""))
        if held is None:
            self._unheld.append(number)
        else:
            weakref.finalize(held, self._unheld.append, number).atexit = False

    def _remove_retired(self) -> None:
        """Remove what was retired long enough ago and has no reader here."""
        now_s = self._clock()
        due = []
        for _ in range(len(self._unheld)):
            number = self._unheld.popleft()
            if self._retired.get(number, 0.0) <= now_s:
                self._retired.pop(number, None)
                due.append(_segment(number))
            else:
                self._unheld.append(number)
        self._requests.remove(due)

    # -- index -----------------------------------------------------------------------------------

    def write_index_file(self, name: str, buffers: Buffers) -> None:
        data = b"".join(buffers)
        self._requests.create(f"index/{name}", data)
        self._index_files[name] = memoryview(data)

    def read_index_file(self, name: str) -> memoryview:
        found = self._index_files.get(name)
        if found is None:
            found = self._index_files[name] = memoryview(self._requests.get(f"index/{name}"))
        return found

    def remove_index_files(self, keep: set[str]) -> None:
        # Only those that were there before our manifest: another writer may be about to create the next one,
        # and the runs for it.
        self._requests.remove(f"index/{name}" for name in sorted(self._index_candidates - keep))
        self._index_candidates = set()
        self._index_files = {name: data for name, data in self._index_files.items() if name in keep}
        self._remove_retired()

    def read_manifest(self) -> bytes | None:
        while True:
            found = self._manifests()
            if not found:
                self._require_no_log()
                return None
            self._manifest = found[-1]
            try:
                return self._requests.get(_manifest(found[-1]))
            except FileNotFoundError:
                continue  # a newer one has replaced it meanwhile

    def _require_no_log(self) -> None:
        """A log that was copied to an object store is none yet; a local folder was looked at before."""
        if self._requests.local_folder is None and any(map(self._requests.exists, LOG_NAMES)):
            raise self._is_a_log()

    def _manifests(self) -> list[int]:
        return sorted(int(n) for n in self._requests.list("manifests") if _MANIFEST_NAME.fullmatch(n))

    def replace_manifest(self, data: bytes) -> None:
        candidates = set(self._requests.list("index"))
        number = self._manifest + 1
        try:
            self._requests.create(_manifest(number), data)
        except ObjectExistsError:
            raise self._lost_race() from None
        found = self._manifests()
        if max(found, default=0) > number:
            # The number was free because its manifest was replaced and removed long ago.
            self._requests.remove([_manifest(number)])
            raise self._lost_race()
        self._manifest = number
        self._index_candidates = candidates
        # The one before stays, for readers that have just seen it in a listing.
        self._requests.remove(_manifest(n) for n in found if n < number - 1)

    def fingerprint(self) -> object:
        return ()

    def stored_bytes(self) -> int:
        return sum(sum(self._requests.list(folder).values()) for folder in ("segments", "index"))

    def quarantine(self, name: str, data: bytes) -> str:
        try:
            self._requests.create(f"quarantine/{name}", data)
        except ObjectExistsError:
            self._requests.create(f"quarantine/{secrets.token_hex(4)}-{name}", data)
        return f"{self.address.partition('?')[0]}/quarantine"

    def require_exists(self) -> None:
        """Raise ConfigError unless there is a log here."""
        if not self._requests.list("segments"):
            raise ConfigError(f"there is no store at {self.address}; check the address")

    def close(self) -> None:
        if not self.read_only:
            self._remove_retired()
        with self._mutex:
            self._unsynced.clear()
            self._current = None
            self._cache.clear()
            self._cached = 0
        self._requests.close()


def _segment(number: int) -> str:
    return f"segments/{number:012d}.seg"


def _manifest(number: int) -> str:
    return f"manifests/{number:012d}"
