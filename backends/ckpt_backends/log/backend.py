"""The log behind the backend contract: plain and versioned namespaces over one engine."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from ckpt.backend import (
    Backend,
    BackendStats,
    BadRecord,
    Capabilities,
    CompactionReport,
    NamespaceStats,
    RepairReport,
    check_changes,
    check_commit,
    check_keys,
    check_prefix,
    require_open,
    versions_need_commits,
)
from ckpt.config import Address, Durability, build_options
from ckpt.disk import Disk
from ckpt.errors import ConfigError, CorruptRecordError, UnsupportedError, shown_key
from ckpt.types import Changes, CommitId, Epoch, check_namespace
from ckpt.versions import Commit, History, require_plain
from ckpt_backends.log.catalog import NamespaceState, commit_meta
from ckpt_backends.log.engine import Engine
from ckpt_backends.log.frame import Body, Frame, Kind, build_body, split_batch
from ckpt_backends.log.local import LocalStorage
from ckpt_backends.log.maintenance import Maintenance
from ckpt_backends.log.runs import (
    MAX_SEGMENT_BYTES,
    RECORD_BITS,
    RECORD_MASK,
    SEGMENT_SHIFT,
    U64,
    IndexDamagedError,
    Run,
)
from ckpt_backends.log.scrub import repair_log, verify_log
from ckpt_backends.log.segment import Segment
from ckpt_backends.log.sight import Live

Answer = TypeVar("Answer")

_SAMPLED_KEYS = 16


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a `log://` address."""

    durability: Durability = Durability.FSYNC
    mode: str = "write"
    """`write`: the one writer. `read`: one of many readers; sees what the writer does, changes nothing."""
    segment_bytes: int = 64 << 20
    recent_records: int = 1 << 17
    """How many records may be unknown to the index files; bounds memory and the replay after a crash."""
    gc: bool = True
    gc_trigger: float = 0.5
    """Garbage collection starts when this share of all records is garbage."""
    gc_select: float = 0.5
    """It rewrites the segments of whose records less than this share is needed."""

    def __post_init__(self) -> None:
        if self.mode not in ("read", "write"):
            raise ConfigError(f"log option mode is read or write, got {self.mode!r}")
        if not 1 << 14 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ConfigError(
                f"log option segment_bytes is between 16KiB and 64MiB, got {self.segment_bytes}"
            )
        if self.recent_records < 1:
            raise ConfigError(f"log option recent_records is at least 1, got {self.recent_records}")
        for name in ("gc_trigger", "gc_select"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"log option {name} is between 0 and 1, got {getattr(self, name)}")


class EngineBackend(Backend):
    """The contract over an engine, whatever its storage: what the log and the object store share."""

    def __init__(
        self,
        engine: Engine,
        maintenance: Maintenance,
        *,
        durable_writes: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._maintenance = maintenance
        self._durable_writes = durable_writes
        self._closed = False
        self.address = engine.storage.address

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    # -- plain namespaces ------------------------------------------------------------------------

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.write_many({namespace: Changes(items, (), ttl_s)})

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self.write_many({namespace: Changes({}, keys)})

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        require_open(self._closed, self.address)
        prepared = []
        for name, changes in batches.items():
            deletes = check_changes(name, changes)
            ttl_s = changes.ttl_s
            expires_ms = int((self._clock() + ttl_s) * 1000) if ttl_s else 0
            prepared.append((name, changes.puts, deletes, expires_ms))
        self._maintenance.wait_for_room()
        with self._engine.lock:
            self._engine.require_writable()
            bodies: list[Body] = []
            created: list[NamespaceState] = []
            try:
                for name, puts, deletes, expires_ms in prepared:
                    state = self._engine.catalog.by_name.get(name)
                    require_plain(name, state is not None and state.history is not None)
                    self._require_owner(name)
                    if state is None:
                        if not puts:
                            continue
                        state = self._create(name, bodies, created)
                    parts = split_batch(list(puts), list(puts.values()), deletes)
                    for keys, values, gone in parts if puts or deletes else ():
                        bodies.append(
                            build_body(Kind.DATA, state.id, keys, values, gone, expires_ms=expires_ms)
                        )
                if not bodies:
                    return
                ticket = self._engine.append(bodies)
            except BaseException:
                self._undo_create(created)
                raise
        if self._durable_writes:
            self._engine.wait_durable(ticket)

    def _create(self, name: str, bodies: list[Body], created: list[NamespaceState]) -> NamespaceState:
        state = self._engine.catalog.create(name)
        created.append(state)
        bodies.append(self._engine.control({"op": "create", "id": state.id, "name": name}))
        return state

    def _undo_create(self, created: list[NamespaceState]) -> None:
        for state in created:
            self._engine.catalog.by_name.pop(state.name, None)
            self._engine.catalog.by_id.pop(state.id, None)

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        wanted = list(dict.fromkeys(check_keys(keys)))
        check_namespace(namespace)
        return self._read(lambda: self._get_many(namespace, wanted, version, commit_id), namespace)

    def _get_many(
        self, namespace: str, keys: list[bytes], version: int | None, commit_id: str | None
    ) -> dict[bytes, bytes]:
        engine = self._engine
        state = engine.namespace(namespace)
        if state is None:
            self._require_no_version(namespace, version, commit_id)
            return {}
        live = engine.live
        if state.history is None:
            self._require_no_version(namespace, version, commit_id, plain=True)
            found = engine.index.locate(state.id, keys, live)
            if engine.damages:
                engine.require_certain(found.get(key) for key in keys)
        else:
            with engine.lock:
                commit = state.history.resolve(version, commit_id)
                sight = state.sight(commit)
            found = engine.index.locate_layered(state.id, keys, sight, live)
            if commit is not None and commit.id not in state.history:
                # Truncated meanwhile, and perhaps some of what it needed is merged away.
                return self._get_many(namespace, keys, version, commit_id)
        now_ms = self._now_ms()
        records = engine.records
        answer = {}
        for key, location in found.items():
            try:
                value = records.value(records.frame(location), location, now_ms)
            except CorruptRecordError as error:
                raise _named(error, namespace, key) from error
            if value is not None:
                answer[key] = value
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
            locations, segments = self._read(lambda: self._pinned(namespace, version, commit_id), namespace)
        except CorruptRecordError as error:
            raise _named(error, namespace) from error
        return self._scan(namespace, locations, prefix, segments)

    def _pinned(
        self, namespace: str, version: int | None, commit_id: str | None
    ) -> tuple[U64, dict[int, Segment]]:
        """Locations to read, and their segments: whoever holds these keeps them from being reused."""
        with self._engine.lock:  # what is found is not retired before it is held
            locations = self._locations(namespace, version, commit_id)
            numbers = np.unique(locations >> np.uint64(SEGMENT_SHIFT)).tolist()
            return locations, {n: self._engine.records.segment(n) for n in numbers}

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
                sight = state.sight(state.history.resolve(version, commit_id))
                merge = partial(index.layered_locations, state.id, index.layered_view(state.id), sight, live)
        return merge()  # takes a while, and writers need not wait for it

    def _scan(
        self, namespace: str, locations: U64, prefix: bytes, segments: dict[int, Segment]
    ) -> Iterator[tuple[bytes, bytes]]:
        records = self._engine.records
        frame: Frame | None = None
        key: bytes | None = None
        place = -1
        for location in locations.tolist():
            require_open(self._closed, self.address)
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

    def _read(self, question: Callable[[], Answer], namespace: str | None = None) -> Answer:
        """Ask the log as it is now; with a damaged index rebuild it and ask again."""
        require_open(self._closed, self.address)
        engine = self._engine
        self._look(namespace)
        tried_again = False
        while True:
            turn, live = engine.turn, engine.live
            if turn & 1:
                with engine.lock:  # another thread is replacing what we are about to look at
                    continue
            try:
                answer = question()
            except Exception as error:
                if engine.turn != turn:
                    continue
                if tried_again or not self._can_ask_again(error, live):
                    raise
                tried_again = True
            else:
                if engine.turn == turn:
                    return answer

    def _look(self, namespace: str | None) -> None:
        """See what others have written; `namespace` is the one that is asked about, None is all."""
        del namespace
        if self._engine.storage.read_only:
            self._engine.refresh()

    def _can_ask_again(self, error: Exception, live: Live) -> bool:
        """Mend or look up what a question stumbled over; False if that changes nothing."""
        if isinstance(error, IndexDamagedError):
            with self._maintenance.paused():
                self._engine.rebuild()
            return True
        if not isinstance(error, CorruptRecordError):
            return False
        # A segment may have been retired between finding a record in it and reading it.
        if self._engine.storage.read_only:
            self._engine.reload()
            return True
        return self._engine.live is not live

    # -- versioned namespaces --------------------------------------------------------------------

    def commit(
        self,
        namespace: str,
        version: int,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes] = (),
        *,
        base: str | None = None,
        commit_id: str | None = None,
    ) -> CommitId:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        gone = check_commit(puts, deletes)
        parts = list(split_batch(list(puts), list(puts.values()), gone))
        self._maintenance.wait_for_room()
        engine = self._engine
        if (known := engine.catalog.by_name.get(namespace)) is not None and known.history is None:
            # Asked again under the lock; this time a damaged index can be mended.
            self._read(partial(self._require_no_keys, known))
        with engine.lock:
            engine.require_writable()
            state = engine.namespace(namespace)
            bodies: list[Body] = []
            created: list[NamespaceState] = []
            replaced = state if state is not None and state.history is None else None
            if state is None or state.history is None:
                self._require_owner(namespace)
            if replaced is not None:
                self._require_no_keys(replaced)
                bodies.append(engine.control({"op": "drop", "id": replaced.id}))
            try:
                if state is None or state.history is None:
                    prepared = History().prepare(version, base, commit_id)
                    if replaced is not None:
                        engine.catalog.apply(0, {"op": "drop", "id": replaced.id})
                    state = self._create(namespace, bodies, created)
                else:
                    prepared = state.history.prepare(version, base, commit_id)
                first = engine.next_sequence + len(bodies)
                commit = Commit(prepared.id, prepared.version, prepared.base, first, prepared.replaces)
                meta = commit_meta(commit)
                for number, (keys, values, removed) in enumerate(parts, 1):
                    said = meta if number == len(parts) else b""
                    bodies.append(build_body(Kind.COMMIT, state.id, keys, values, removed, meta=said))
                ticket = engine.append(bodies, commit=commit)
            except BaseException:
                self._undo_create(created)
                if replaced is not None:
                    engine.catalog.put(replaced)
                raise
        if self._durable_writes:
            engine.wait_durable(ticket)
        return commit.id

    def _require_no_keys(self, state: NamespaceState) -> None:
        with self._engine.lock:
            holds_keys = self._holds_keys(state)
        if holds_keys:
            raise UnsupportedError(
                f"namespace {state.name!r} is plain and holds keys; commit to another one, or drop it first"
            )

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

    def history(self, namespace: str) -> History:
        check_namespace(namespace)

        def ask() -> History:
            with self._engine.lock:
                state = self._engine.namespace(namespace)
                return state.history.copy() if state is not None and state.history is not None else History()

        return self._read(ask)

    def truncate(self, namespace: str, keep_from: int) -> None:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        engine = self._engine
        with engine.lock:
            engine.require_writable()
            state = engine.namespace(namespace)
            if state is not None and state.history is None:
                raise versions_need_commits(namespace)
            truncation = (state.history if state and state.history else History()).plan_truncation(keep_from)
            assert state is not None
            ticket = engine.append(
                [engine.control({"op": "truncate", "id": state.id, "keep_from": keep_from})]
            )
            state.truncate(truncation)
        if self._durable_writes:
            engine.wait_durable(ticket)

    # -- namespaces and their owners -------------------------------------------------------------

    def namespaces(self) -> list[str]:
        def ask() -> list[str]:
            with self._engine.lock:
                self._engine.require_certain([None])
                return sorted(s.name for s in self._engine.catalog.by_id.values() if self._holds_keys(s))

        return self._read(ask)

    def drop(self, namespace: str) -> None:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        engine = self._engine
        with engine.lock:
            engine.require_writable()
            state = engine.catalog.by_name.get(namespace)
            if state is None or state.history is None:
                self._require_owner(namespace)
            if state is None:
                return
            dropped = {"op": "drop", "id": state.id}
            ticket = engine.append([engine.control(dropped)])
            engine.catalog.apply(ticket.sequence, dropped)
        if self._durable_writes:
            engine.wait_durable(ticket)

    def claim(self, namespace: str) -> Epoch:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        engine = self._engine
        with engine.lock:
            engine.require_writable()
            state = engine.catalog.by_name.get(namespace)
            if state is not None and state.history is not None:
                raise UnsupportedError(f"namespace {namespace!r} is versioned: it has branches, not an owner")
            claimed = self._claim_of(namespace, engine.catalog.last_epoch + 1)
            ticket = engine.append([engine.control(claimed)])
            engine.catalog.apply(ticket.sequence, claimed)
            epoch = Epoch(engine.catalog.last_epoch)
        if self._durable_writes:
            engine.wait_durable(ticket)
        return epoch

    def _claim_of(self, namespace: str, epoch: int) -> dict[str, Any]:
        """What the log says of a claim; who owns the namespace matters only where writers share a store."""
        del namespace
        return {"op": "claim", "epoch": epoch}

    def _require_owner(self, namespace: str) -> None:
        """Raise FencedError if this handle may not write to a plain namespace. Callers hold the lock."""

    def release(self, namespace: str) -> None:
        # One process writes to a log at a time, and a claim ends with it: there is nobody to tell.
        require_open(self._closed, self.address)
        check_namespace(namespace)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        require_open(self._closed, self.address)
        if not self._engine.storage.read_only:
            self._engine.require_writable()
            self._engine.wait_durable(self._engine.everything())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._maintenance.close()
        finally:
            self._engine.close()

    def compact(self) -> CompactionReport:
        """Reclaim what garbage collection would leave for later; readers and writers go on."""
        require_open(self._closed, self.address)
        self._engine.require_writable()
        return self._maintenance.compact()

    def verify(self) -> Iterator[BadRecord]:
        require_open(self._closed, self.address)
        with self._maintenance.paused():
            return iter(self._read(lambda: list(verify_log(self._engine))))

    def repair(self) -> RepairReport:
        """Rebuild the index, save what is intact, and move what is not to quarantine."""
        require_open(self._closed, self.address)
        self._engine.require_writable()
        with self._maintenance.paused():
            report = repair_log(self._engine)
        self._maintenance.flush()
        return report

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
            }
            return BackendStats(self.address, tuple(rows), engine.storage.stored_bytes(), details)

        return self._read(ask)


def _named(error: CorruptRecordError, namespace: str, key: bytes | None = None) -> CorruptRecordError:
    """The same error, saying whose record it is."""
    of = "" if key is None else f"key {shown_key(key)} of "
    return type(error)(f"{of}namespace {namespace!r}: {error}")


class LogBackend(EngineBackend):
    """Checkpoints in an append-only indexed log on a local disk: durable, checksummed, one writer.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with LogBackend(folder) as log:
    ...     log.put_many("words", {b"be": b"2"})
    >>> with LogBackend(folder) as log:
    ...     log.get_many("words", [b"be", b"or"])
    {b'be': b'2'}
    """

    scheme: ClassVar[str] = "log"
    reads_need_mode: ClassVar[bool] = True
    """Who only reads opens a log with `mode=read`; without it they would be its writer."""

    def __init__(
        self,
        path: str,
        options: LogOptions | None = None,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = options or LogOptions()
        read_only = options.mode == "read"
        storage = LocalStorage(path, segment_bytes=options.segment_bytes, read_only=read_only, disk=disk)
        try:
            engine = Engine(storage)
            maintenance = Maintenance(
                engine,
                recent_records=options.recent_records,
                gc=options.gc,
                gc_trigger=options.gc_trigger,
                gc_select=options.gc_select,
                clock=clock,
            )
        except BaseException:
            storage.close()
            raise
        super().__init__(
            engine, maintenance, durable_writes=options.durability is Durability.FSYNC, clock=clock
        )
        self.capabilities = Capabilities(
            persistent=True,
            shared_writers=False,
            ttl=True,
            atomic_put=True,
            ordered_scan=False,
            detects_corruption=True,
        )

    @classmethod
    def from_address(cls, address: Address, **extra: Any) -> Self:
        """Open the log that an address names."""
        seams = {name: extra.pop(name) for name in ("disk", "clock") if name in extra}
        options = build_options(LogOptions, {**address.options, **extra}, of="log")
        if not address.path.startswith("/"):
            raise ConfigError(f"{address} names no absolute path; write log:///absolute/path (three slashes)")
        if options.mode == "read" and not os.path.isdir(os.path.join(address.path, "segments")):
            raise ConfigError(f"there is no log at {address.path}; check the address")
        return cls(address.path, options, **seams)
