"""The whole contract on any server that offers rows, cells, a ledger and a fence (`CellServer`).

- A **plain** write is one request that names the fence it was made under; the ledger is only read when the
  server says that another fence is up.
- A **commit** writes one cell per key under a stamp of its own, then adds itself to the ledger. Readers
  believe only stamps that the ledger gives to the commits of their chain, so what a crashed commit has left
  is never seen. Several writers may commit at once: only one adds the next record, the others look again.
- A **claim** is a record that puts a fence up.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import msgspec

from ckpt.contract.addresses import Address
from ckpt.contract.backend import (
    Backend,
    BackendStats,
    BadRecord,
    CompactionReport,
    check_changes,
    check_commit,
    check_keys,
    check_prefix,
    require_open,
    versions_need_commits,
)
from ckpt.contract.versions import History, require_plain
from ckpt.errors import BackendUnavailableError, CorruptRecordError
from ckpt.types import Changes, CommitId, Epoch, check_namespace
from ckpt_backends.cells.access import ServerLocation, read_location
from ckpt_backends.cells.cleaning import Cleaner
from ckpt_backends.cells.commits import Committer
from ckpt_backends.cells.ledger import LedgerState
from ckpt_backends.cells.namespace import CellNamespace
from ckpt_backends.cells.options import CellOptions
from ckpt_backends.cells.plain import PlainRows
from ckpt_backends.cells.reading import CommitReader
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import CellServer

_NAMESPACES_AT_ONCE = 8


class CellBackend(Backend):
    """Keeps checkpoints on a server; what a call has acknowledged is as durable as the server's answer."""

    reads_need_mode: ClassVar[bool] = True
    """A handle that only reads opens the store with `mode=read`: it must exist, and nothing is written."""

    def __init__(
        self,
        server: CellServer,
        options: CellOptions,
        *,
        address: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.address = address
        self._reads_only = options.mode == "read"
        self._server, self._clock = server, clock
        self._closing = threading.Event()
        self._closed = False
        self._handle = uuid.uuid4().hex
        self._retries = Retries(options.retry_s, self._closing)
        self._rows = PlainRows(server, self._retries, options, address, clock)
        self._committer = Committer(server, self._retries, self._rows)
        self._cleaner = Cleaner(server, self._retries, self._handle, options.grace_s)
        self._reader = CommitReader(server, options.grace_s)
        self._spaces: dict[str, CellNamespace] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_address(cls, address: Address, *, clock: Callable[[], float] = time.time, **extra: Any) -> Self:
        """Open the store that an address names; the server has answered when this returns."""
        location = read_location(address)
        server, options, shown = cls._reached(location, {**address.options, **extra})
        return cls(server, options, address=shown, clock=clock)

    @classmethod
    @abstractmethod
    def _reached(
        cls, location: ServerLocation, values: Mapping[str, Any]
    ) -> tuple[CellServer, CellOptions, str]:
        """A server that has answered, its options, and the address to show; or nothing is left open."""

    # -- plain namespaces ------------------------------------------------------------------------

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.write_many({namespace: Changes(puts=items, ttl_s=ttl_s)})

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self.write_many({namespace: Changes(deletes=check_keys(keys))})

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        deletes = {name: check_changes(name, changes) for name, changes in batches.items()}
        self._require_writer()
        spaces = {name: self._space(name) for name in batches}
        for space in spaces.values():
            self._rows.require_writable(space)
        for name, changes in batches.items():
            if changes.puts or deletes[name]:
                self._rows.write(spaces[name], changes, deletes[name])

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        listed = list(dict.fromkeys(check_keys(keys)))
        space = self._opened(namespace)
        if version is None and commit_id is None and space.is_loaded and not space.ledger.is_versioned:
            found = self._rows.read(space, listed)
            if len(found) == len(listed):
                return found
        # Only a namespace without keys becomes versioned, so where all keys were found, it is plain still.
        space.refresh()
        if space.ledger.is_versioned:
            return self._reader.get(space, listed, version, commit_id)
        self._require_no_version(space, version, commit_id)
        return self._rows.read(space, listed)

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        check_prefix(prefix)
        space = self._opened(namespace)
        space.refresh()
        if space.ledger.is_versioned:
            return self._reader.scan(space, prefix, version, commit_id)
        self._require_no_version(space, version, commit_id)
        return space.live_rows(prefix, self._clock)

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
        check_namespace(namespace)
        removed = check_commit(puts, deletes)
        self._require_writer()
        return self._committer.commit(self._opened(namespace), version, puts, removed, base, commit_id)

    def history(self, namespace: str) -> History:
        space = self._opened(namespace)
        space.refresh()
        with space.ledger.lock:
            return space.ledger.history.copy()

    def truncate(self, namespace: str, keep_from: int) -> None:
        self._require_writer()
        space = self._opened(namespace)
        space.refresh()
        ledger = space.ledger
        if not ledger.is_versioned and self._rows.is_any(space):
            raise versions_need_commits(namespace)
        self._clean_if_due(space)

        def follow(_: int) -> LedgerState | None:
            plan = ledger.history.plan_truncation(keep_from)
            if plan.forgotten or plan.keep_from > ledger.history.truncated_below:
                return ledger.truncated(plan, self._clock())
            return None

        space.append(follow, fences=False)
        self._clean_if_due(space)

    # -- namespaces and their owners -------------------------------------------------------------

    def namespaces(self) -> list[str]:
        self._require_open()
        names = sorted(self._retries.call(self._server.names))
        # Each is a round trip or two. The first failure is raised, and nothing more is asked after it.
        with ThreadPoolExecutor(_NAMESPACES_AT_ONCE, thread_name_prefix="ckpt-namespaces") as pool:
            return [name for name, there in zip(names, pool.map(self._is_there, names), strict=True) if there]

    def _is_there(self, namespace: str) -> bool:
        """Whether a namespace that was registered holds anything now."""
        space = self._space(namespace)
        space.refresh()
        return space.ledger.is_versioned or self._rows.is_any(space)

    def drop(self, namespace: str) -> None:
        self._require_writer()
        space = self._opened(namespace)
        space.refresh()
        ledger = space.ledger
        if not ledger.is_versioned:
            space.require_owner()
            if not self._rows.is_any(space):
                return
        stamp = self._committer.new_stamp(namespace, ledger.state.stamp_floor)

        def follow(number: int) -> LedgerState:
            if not ledger.is_versioned:
                space.require_owner()
            state = ledger.state
            return LedgerState(
                epoch=state.epoch,
                owner=state.owner,
                fence=number,
                stamp_floor=max(stamp, ledger.highest_stamp, state.stamp_floor),
                cleaned=state.cleaned,
                dropped=number,
            )

        space.append(follow, fences=True)
        floor = ledger.state.stamp_floor
        self._retries.call(lambda: self._server.clear_plain(namespace))
        self._retries.call(lambda: self._server.clear_cells(namespace, floor))

    def claim(self, namespace: str) -> Epoch:
        self._require_writer()
        space = self._opened(namespace)
        space.refresh()

        def follow(number: int) -> LedgerState:
            require_plain(namespace, space.ledger.is_versioned)
            return msgspec.structs.replace(
                space.ledger.whole(), mode="plain", epoch=number, owner=self._handle, fence=number
            )

        # Writes of this handle that are under way belong to the old fence; they end before the new one.
        with self._rows.turn(space):
            epoch = space.append(follow, fences=True)
        assert epoch is not None
        space.claim = epoch
        return Epoch(epoch)

    def release(self, namespace: str) -> None:
        space = self._opened(namespace)
        self._release(space)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._require_open()
        self._retries.call(self._server.flush)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            spaces = list(self._spaces.values())
        # From here on nothing is tried twice: closing a handle of a dead server should not take long.
        self._closing.set()
        try:
            for space in spaces:
                self._release(space)
        except BackendUnavailableError:
            # A claim that cannot be given up now does no harm: the next owner takes it over.
            pass
        finally:
            self._server.close()

    def compact(self) -> CompactionReport:
        """Remove cells that no read can see any more, once the grace for running readers is over."""
        self._require_writer()
        started_s = time.monotonic()
        before = after = 0
        for name in self.namespaces():
            space = self._space(name)
            if self._cleaner.is_due(space, self._clock(), thorough=True):
                cleaned = self._cleaner.clean(space)
                before += cleaned.read_bytes
                after += cleaned.read_bytes - cleaned.removed_bytes
        return CompactionReport(before, after, 0, time.monotonic() - started_s)

    def verify(self) -> Iterator[BadRecord]:
        """Read every row, and every cell that a commit shows, and yield what is wrong."""
        for name in self.namespaces():
            space = self._space(name)
            rows: Iterator[tuple[bytes, bytes]]
            if space.ledger.is_versioned:
                rows = ((key, raw) for key, _, raw in space.cells(b"", space.ledger.highest_stamp))
            else:
                rows = space.rows(b"")
            for key, raw in rows:
                try:
                    space.codec.decode(key, raw)
                except CorruptRecordError as error:
                    yield BadRecord(self.address, str(error), name, key)

    def stats(self) -> BackendStats:
        counted = super().stats()
        details = self._retries.call(self._server.details)
        return BackendStats(counted.address, counted.namespaces, counted.stored_bytes, details)

    # -- parts -------------------------------------------------------------------------

    def _require_no_version(self, space: CellNamespace, version: int | None, commit_id: str | None) -> None:
        if version is not None or commit_id is not None:
            if self._rows.is_any(space):
                raise versions_need_commits(space.namespace)
            space.ledger.history.resolve(version, commit_id)

    def _clean_if_due(self, space: CellNamespace) -> None:
        if self._cleaner.is_due(space, self._clock(), thorough=False):
            self._cleaner.clean(space)

    def _release(self, space: CellNamespace) -> None:
        mine, space.claim = space.claim, None
        if mine is None:
            return

        def follow(number: int) -> LedgerState | None:
            state = space.ledger.state
            if state.owner != self._handle or state.epoch != mine:
                return None
            return msgspec.structs.replace(space.ledger.whole(), owner=None, fence=number)

        with self._rows.turn(space):
            space.append(follow, fences=True)

    def _opened(self, namespace: str) -> CellNamespace:
        check_namespace(namespace)
        self._require_open()
        return self._space(namespace)

    def _space(self, namespace: str) -> CellNamespace:
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None:
                space = CellNamespace(self._server, namespace, self.address, self._handle, self._retries)
                self._spaces[namespace] = space
            return space

    def _require_writer(self) -> None:
        self._require_open()
        if self._reads_only:
            raise BackendUnavailableError(f"{self.address} is open for reading; open it without mode=read")

    def _require_open(self) -> None:
        require_open(self._closed, self.address)
