"""The contract over an engine, whatever its storage: what the log and the object store share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ckpt.contract.backend import (
    BadRecord,
    CompactionReport,
    RepairReport,
    check_changes,
    check_commit,
    require_open,
    rows_once,
    versions_need_commits,
)
from ckpt.contract.versions import Commit, History, require_plain
from ckpt.errors import UnsupportedError
from ckpt.types import Block, Changes, CommitId, Epoch, check_namespace
from ckpt_backends.engine.catalog import NamespaceState, commit_meta
from ckpt_backends.engine.columns import Columns
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.frame import Body, FrameKind, build_body, split_batch
from ckpt_backends.engine.maintenance import Maintenance
from ckpt_backends.engine.reading import EngineReader
from ckpt_backends.engine.scrub import repair_log, verify_log

Frames = Callable[[int, bytes], Iterable[Body]]
"""Makes the frames of a commit from the id of its namespace and what the last of them says of the commit."""


class EngineBackend(EngineReader):
    """Plain and versioned namespaces over one engine: each write is whole or not there at all."""

    def __init__(
        self,
        engine: Engine,
        maintenance: Maintenance,
        *,
        durable_writes: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(engine, maintenance, clock=clock)
        self._durable_writes = durable_writes

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
                            build_body(FrameKind.DATA, state.id, keys, values, gone, expires_ms=expires_ms)
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
        return self._commit(namespace, version, _frames_of(puts, deletes), base, commit_id)

    def commit_block(
        self,
        namespace: str,
        version: int,
        puts: Block,
        deletes: Sequence[bytes] = (),
        *,
        base: str | None = None,
        commit_id: str | None = None,
    ) -> CommitId:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        engine = self._engine
        if (columns := Columns.of(puts, deletes, engine.index.seed)) is None:
            rows = rows_once(namespace, puts)
            return self._commit(namespace, version, _frames_of(rows, deletes), base, commit_id)

        def frames(namespace_id: int, meta: bytes) -> list[Body]:
            return [columns.body(namespace_id, meta, engine.index.seed)]

        return self._commit(namespace, version, frames, base, commit_id)

    def _commit(
        self,
        namespace: str,
        version: int,
        frames: Frames,
        base: str | None,
        commit_id: str | None,
    ) -> CommitId:
        """Add a commit whose frames are made once the namespace has an id, and the commit has a meta."""
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
                bodies += frames(state.id, commit_meta(commit))
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
        """The catalogue record of a claim; its owner is recorded only where several writers share a store."""
        del namespace
        return {"op": "claim", "epoch": epoch}

    def _require_owner(self, namespace: str) -> None:
        """Raise FencedError if this handle may not write to a plain namespace. Callers hold the lock."""

    def release(self, namespace: str) -> None:
        # One process writes to a log at a time, and a claim ends with it: no other writer has to be told.
        require_open(self._closed, self.address)
        check_namespace(namespace)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        require_open(self._closed, self.address)
        if not self._engine.storage.read_only:
            self._engine.require_intact()
            self._engine.wait_durable(self._engine.everything())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._maintenance.close()
        finally:
            self._engine.close()

    def counts(self) -> Mapping[str, int]:
        """How often something was made durable, and how many frames there were; a group of writes is one."""
        return {"durable_writes": self._engine.syncs, "frames": self._engine.next_sequence - 1}

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


def _frames_of(puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> Frames:
    gone = check_commit(puts, deletes)
    parts = list(split_batch(list(puts), list(puts.values()), gone))

    def frames(namespace: int, meta: bytes) -> Iterator[Body]:
        for number, (keys, values, removed) in enumerate(parts, 1):
            said = meta if number == len(parts) else b""
            yield build_body(FrameKind.COMMIT, namespace, keys, values, removed, meta=said)

    return frames
