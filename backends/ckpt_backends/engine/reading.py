"""The reading half of the contract over an engine: a reader waits for no writer and misses no record.

What is replaced under a question (a retired segment, merged runs, an index that turns out to be damaged) is
noticed, and the question is asked again.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from ckpt.contract.backend import (
    Backend,
    BackendStats,
    NamespaceStats,
    check_keys,
    check_prefix,
    require_open,
    versions_need_commits,
)
from ckpt.contract.versions import History
from ckpt.errors import CkptError, CorruptRecordError, shown_key
from ckpt.types import Block, check_namespace
from ckpt_backends.engine.blocks import by_frame, by_large_frame, pack, read_frame
from ckpt_backends.engine.catalog import NamespaceState
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.frame import Frame
from ckpt_backends.engine.maintenance import Maintenance
from ckpt_backends.engine.native import native
from ckpt_backends.engine.runs import RECORD_BITS, RECORD_MASK, SEGMENT_SHIFT, U64, IndexDamagedError, Run
from ckpt_backends.engine.segment import Segment

Answer = TypeVar("Answer")

_SAMPLED_KEYS = 16
_TRIES_WITHOUT_LOCK = 2
_WORTH_COLUMNS = 48
"""So many records of a frame are read sooner as columns than one by one."""
_MOST_RETIRED = 100
"""How often one question may find that what it was about to read was retired meanwhile."""


class EngineReader(Backend):
    """What can be asked of an engine, whatever its storage."""

    def __init__(
        self, engine: Engine, maintenance: Maintenance, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._maintenance = maintenance
        self._closed = False
        self._has_company = not engine.storage.alone
        """Others may write, so each call looks for new records first."""
        self.address = engine.storage.address

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    # -- keys ------------------------------------------------------------------------------------

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        wanted = check_keys(keys)
        if len(wanted) > 1:
            wanted = list(dict.fromkeys(wanted))
        if version is None and commit_id is None:
            answer = self._get_at_once(namespace, wanted)
            if answer is not None:
                return answer
        if type(namespace) is not str or namespace not in self._engine.catalog.by_name:
            check_namespace(namespace)
        return self._read(self._get_many, namespace, wanted, version, commit_id, of=namespace)

    def _get_at_once(self, namespace: str, keys: list[bytes]) -> dict[bytes, bytes] | None:
        """What nearly every get of a plain namespace finds; None if there is more to say, or to do."""
        if native is None or self._has_company or self._closed:
            return None
        engine = self._engine
        turn = engine.turn
        state = engine.catalog.by_name.get(namespace) if type(namespace) is str else None
        if state is None or state.history is not None or turn & 1 or engine.damages:
            return None
        answer: dict[bytes, bytes] = {}
        try:
            rest = self._get_intact(state.id, keys, answer)
        except Exception:  # noqa: BLE001 - the full read meets the same error, and handles it
            return None
        return None if rest or engine.turn != turn else answer

    def _get_intact(self, namespace: int, keys: list[bytes], answer: dict[bytes, bytes]) -> list[bytes]:
        """Put what is intact and ordinary into the answer; the keys that need a closer look."""
        assert native is not None
        engine = self._engine
        index, live, records = engine.index, engine.live, engine.records
        tables = index.recent_tables(namespace)  # before the runs, see `locate`
        return native.get_each(
            keys,
            namespace,
            index.seed,
            tables,
            index.runs,
            live.numbers,
            records.near,
            records.fetch,
            answer,
        )

    def _get_many(
        self, namespace: str, keys: list[bytes], version: int | None, commit_id: str | None
    ) -> dict[bytes, bytes]:
        engine = self._engine
        state = engine.namespace(namespace)
        if state is None:
            self._require_no_version(namespace, version, commit_id)
            return {}
        live = engine.live
        answer: dict[bytes, bytes] = {}
        if state.history is None:
            if version is not None or commit_id is not None:
                raise versions_need_commits(namespace)
            if native is not None and not engine.damages:
                keys = self._get_intact(state.id, keys, answer)
                if not keys:
                    return answer
            found = engine.index.locate(state.id, keys, live)
            if engine.damages:
                engine.require_certain(found.get(key) for key in keys)
        else:
            with engine.lock:
                commit = state.history.resolve(version, commit_id)
                layer_view = state.layer_view(commit)
            found = engine.index.locate_layered(state.id, keys, layer_view, live)
            if commit is not None and commit.id not in state.history:
                # Truncated meanwhile, and perhaps some of what it needed is merged away.
                return self._get_many(namespace, keys, version, commit_id)
        now_ms: int | None = None  # one time for all keys, and few records ask for it
        records = engine.records
        for key, location in found.items():
            try:
                frame = records.frame(location)
                if frame.expires_ms:
                    now_ms = self._now_ms() if now_ms is None else now_ms
                    if frame.expires_ms <= now_ms:
                        continue
                if location & RECORD_MASK < frame.puts:
                    answer[key] = records.verified_value(frame, location)
            except CorruptRecordError as error:
                raise _named(error, namespace, key) from error
        return answer

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        check_namespace(namespace)
        check_prefix(prefix)
        try:
            locations, segments = self._read(self._pinned, namespace, version, commit_id, of=namespace)
        except CorruptRecordError as error:
            raise _named(error, namespace) from error
        return self._scan(namespace, locations, prefix, segments)

    def scan_blocks(
        self,
        namespace: str,
        *,
        version: int | None = None,
        commit_id: str | None = None,
        block_bytes: int = 1 << 20,
    ) -> Iterator[Block]:
        """The rows of `scan`, with all its guarantees, in blocks of at most that many bytes or of one row."""
        check_namespace(namespace)
        try:
            locations, segments = self._read(self._pinned, namespace, version, commit_id, of=namespace)
        except CorruptRecordError as error:
            raise _named(error, namespace) from error
        return pack(self._scan_frames(namespace, locations, segments), block_bytes)

    def _scan_frames(self, namespace: str, locations: U64, segments: dict[int, Segment]) -> Iterator[Block]:
        now_ms = self._now_ms()
        try:
            for mine in by_frame(locations):
                if (block := read_frame(self._engine.records, mine, segments, now_ms)) is not None:
                    require_open(self._closed, self.address)
                    yield block
        except CorruptRecordError as error:
            raise _named(error, namespace) from error

    def _pinned(
        self, namespace: str, version: int | None, commit_id: str | None
    ) -> tuple[U64, dict[int, Segment]]:
        """Locations to read, and their segments, which are not reused as long as the caller holds them."""
        engine = self._engine
        for _ in range(_TRIES_WITHOUT_LOCK):
            live = engine.live
            try:
                locations = self._locations(namespace, version, commit_id)
            except CkptError:
                if engine.live is live:
                    raise
                continue  # a segment was retired meanwhile
            with engine.lock:
                if engine.live is live:  # nothing of what was found has been retired meanwhile
                    return locations, self._segments_of(locations)
        with engine.lock:  # from a log that changes that fast it is found while writers wait
            locations = self._locations(namespace, version, commit_id)
            return locations, self._segments_of(locations)

    def _segments_of(self, locations: U64) -> dict[int, Segment]:
        numbers = np.unique(locations >> np.uint64(SEGMENT_SHIFT)).tolist()
        return {n: self._engine.records.segment(n) for n in numbers}

    def _locations(self, namespace: str, version: int | None, commit_id: str | None) -> U64:
        engine = self._engine
        with engine.lock:
            state, index, live = engine.namespace(namespace), engine.index, engine.live
            if state is None:
                self._require_no_version(namespace, version, commit_id)
                return np.empty(0, np.uint64)
            if state.history is None:
                self._require_no_version(namespace, version, commit_id, plain=True)
                engine.require_certain([None])
                merge = partial(index.plain_locations, state.id, index.plain_view(state.id), live)
            else:
                layer_view = state.layer_view(state.history.resolve(version, commit_id))
                merge = partial(
                    index.layered_locations, state.id, index.layered_view(state.id), layer_view, live
                )
        return merge()  # takes a while, and writers need not wait for it

    def _scan(
        self, namespace: str, locations: U64, prefix: bytes, segments: dict[int, Segment]
    ) -> Iterator[tuple[bytes, bytes]]:
        for mine in by_large_frame(locations, _WORTH_COLUMNS):
            require_open(self._closed, self.address)
            block: Block | None = None
            if len(mine) >= _WORTH_COLUMNS and int(mine[0]) >> RECORD_BITS == int(mine[-1]) >> RECORD_BITS:
                # Of a damaged frame, rows are read one by one up to the record that is hit, which is named.
                with contextlib.suppress(CorruptRecordError):
                    block = read_frame(self._engine.records, mine, segments, self._now_ms())
            rows = self._scan_each(namespace, mine, prefix, segments) if block is None else block.rows()
            for row in rows:
                if self._closed:
                    require_open(self._closed, self.address)
                if row[0].startswith(prefix):
                    yield row

    def _scan_each(
        self, namespace: str, locations: U64, prefix: bytes, segments: dict[int, Segment]
    ) -> Iterator[tuple[bytes, bytes]]:
        records = self._engine.records
        frame: Frame | None = None
        key: bytes | None = None
        place = -1
        for location in locations.tolist():
            try:
                if frame is None or location >> RECORD_BITS != place:
                    # From the segments of this scan: where writers share a store, a number that was not
                    # synced when the scan began may belong to another writer's segment by now.
                    place, key = location >> RECORD_BITS, None
                    frame = records.intact_frame(location, segments[location >> SEGMENT_SHIFT])
                key = frame.key(location & RECORD_MASK)
                if not key.startswith(prefix):
                    continue
                value = records.value(frame, location, self._now_ms())
            except CorruptRecordError as error:
                raise _named(error, namespace, key) from error
            if value is not None:
                yield key, value

    def _require_no_version(
        self, namespace: str, version: int | None, commit_id: str | None, *, plain: bool = False
    ) -> None:
        if version is None and commit_id is None:
            return
        if plain:
            raise versions_need_commits(namespace)
        History().resolve(version, commit_id)

    # -- namespaces ------------------------------------------------------------------------------

    def history(self, namespace: str) -> History:
        check_namespace(namespace)

        def ask() -> History:
            with self._engine.lock:
                state = self._engine.namespace(namespace)
                return state.history.copy() if state is not None and state.history is not None else History()

        return self._read(ask)

    def namespaces(self) -> list[str]:
        def ask() -> list[str]:
            with self._engine.lock:
                self._engine.require_certain([None])
                return sorted(s.name for s in self._engine.catalog.by_id.values() if self._holds_keys(s))

        return self._read(ask)

    def _holds_keys(self, state: NamespaceState) -> bool:
        if state.history is not None:
            return len(state.history) > 0
        engine = self._engine
        view = engine.index.plain_view(state.id)
        return self._shows_a_value(state, view) or (
            self._count_values(engine.index.plain_locations(state.id, view, engine.live)) > 0
        )

    def _shows_a_value(self, state: NamespaceState, view: tuple[dict[bytes, int], tuple[Run, ...]]) -> bool:
        """Whether one of the first few keys has a value: a quick yes, or no answer."""
        engine = self._engine
        recent, runs = view
        some = [*itertools.islice(recent, _SAMPLED_KEYS)]
        with contextlib.suppress(CorruptRecordError):
            for run in runs:
                first = run.first_locations(state.id, _SAMPLED_KEYS)
                some += [
                    engine.records.key(loc) for loc in first if not engine.live.is_gone(loc >> SEGMENT_SHIFT)
                ]
            found = engine.index.locate(state.id, some, engine.live)
            return self._count_values(np.fromiter(found.values(), np.uint64, len(found))) > 0
        return False

    def _count_values(self, locations: U64) -> int:
        """How many of the records are values: neither deletes nor expired."""
        frames, inverse = np.unique(locations >> np.uint64(RECORD_BITS), return_inverse=True)
        now_ms = self._now_ms()
        heads = (self._engine.records.frame(int(f) << RECORD_BITS) for f in frames.tolist())
        puts = [0 if 0 < head.expires_ms <= now_ms else head.puts for head in heads]
        return int(((locations & np.uint64(RECORD_MASK)) < np.array(puts, np.uint64)[inverse]).sum())

    def stats(self) -> BackendStats:
        def ask() -> BackendStats:
            engine = self._engine
            rows = []
            for name in self.namespaces():
                keys = self._count_values(self._locations(name, None, None))
                commits = self.versions(name)
                tip = max((c.version for c in commits), default=None)
                rows.append(NamespaceStats(name, keys, bool(commits), tip, len(commits)))
            stored = sum(s.records for s in engine.summaries.values())
            details: dict[str, int | float | str] = {
                "segments": len(engine.summaries),
                "records": stored,
                "index_runs": len(engine.index.runs),
                "index_bytes": sum(r.file_bytes for r in engine.index.runs),
                "recent_records": engine.index.active.records,
                "durable_sequence": engine.durable,
                "damages": len(engine.damages),
                "compiled": "no" if native is None else "yes",
            }
            return BackendStats(self.address, tuple(rows), engine.storage.stored_bytes(), details)

        return self._read(ask)

    # -- asking ----------------------------------------------------------------------------------

    def _read(self, question: Callable[..., Answer], *about: object, of: str | None = None) -> Answer:
        """Ask the log as it is now; with a damaged index rebuild it and ask again."""
        if self._closed:
            require_open(self._closed, self.address)
        engine = self._engine
        if self._has_company:
            self._look(of)
        mended, retired = False, 0
        while True:
            turn, live = engine.turn, engine.live
            if turn & 1:
                with engine.lock:  # another thread is replacing what we are about to look at
                    continue
            try:
                answer = question(*about)
            except Exception as error:
                if engine.turn != turn:
                    continue
                if isinstance(error, CorruptRecordError) and engine.live is not live:
                    # A segment may be retired between finding a record in it and reading it: again and again
                    # where segments are small and many commit.
                    retired += 1
                    if retired < _MOST_RETIRED:
                        continue
                if mended or not self._mend(error):
                    raise
                # A reader beside a writer in another process sees only now what was retired: then once more.
                retired += 1
                mended = engine.live.numbers == live.numbers or retired >= _MOST_RETIRED
            else:
                if engine.turn == turn:
                    return answer

    def _look(self, namespace: str | None) -> None:
        """See what others have written; `namespace` is the one that is asked about, None is all."""
        del namespace
        self._engine.refresh()

    def _mend(self, error: Exception) -> bool:
        """Rebuild or look up what a question stumbled over; False if that changes nothing."""
        if isinstance(error, IndexDamagedError):
            with self._maintenance.paused():
                self._engine.rebuild()
            return True
        if isinstance(error, CorruptRecordError) and self._engine.storage.read_only:
            self._engine.reload()
            return True
        return False


def _named(error: CorruptRecordError, namespace: str, key: bytes | None = None) -> CorruptRecordError:
    """The same error, with the namespace and key of the record."""
    of = "" if key is None else f"key {shown_key(key)} of "
    return type(error)(f"{of}namespace {namespace!r}: {error}")
