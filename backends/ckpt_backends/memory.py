"""Checkpoints in this process: the whole contract at the speed of a dict, and nothing survives the process.

`memory://` is a fresh store for each open. `memory://name` is one store for every handle of that name in the
process; it outlives its handles, so that a test can close and reopen it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from ckpt.contract.addresses import Address, build_options
from ckpt.contract.backend import (
    Backend,
    Capabilities,
    check_changes,
    check_commit,
    check_keys,
    check_prefix,
    require_open,
    versions_need_commits,
)
from ckpt.contract.versions import Commit, History, require_plain
from ckpt.errors import FencedError, UnsupportedError
from ckpt.types import Changes, CommitId, Epoch, check_namespace


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The options of a memory address: there are none."""


@dataclass(slots=True)
class _Cell:
    value: bytes
    expires_s: float | None = None


@dataclass(slots=True)
class _Namespace:
    """A plain namespace has cells, a versioned one has a history and one delta per stored commit."""

    cells: dict[bytes, _Cell] = field(default_factory=dict)
    history: History = field(default_factory=History)
    deltas: dict[CommitId, dict[bytes, bytes | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _Store:
    lock: threading.RLock = field(default_factory=threading.RLock)
    namespaces: dict[str, _Namespace] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """Epochs outlive a drop: an owner that comes back afterwards is still fenced."""
    owners: dict[str, object] = field(default_factory=dict)


_named: dict[str, _Store] = {}
_named_lock = threading.Lock()


class MemoryBackend(Backend):
    """Holds checkpoints in this process; a write is visible to every handle of the store when it returns.

    Examples
    --------
    >>> with MemoryBackend() as backend:
    ...     first = backend.commit("store", 1, {b"k": b"old"})
    ...     second = backend.commit("store", 2, {b"k": b"new"})
    ...     backend.get_many("store", [b"k"], version=1)
    {b'k': b'old'}
    """

    scheme: ClassVar[str] = "memory"
    capabilities = Capabilities(
        persistent=False,
        shared_writers=True,
        ttl=True,
        atomic_put=True,
        ordered_scan=True,
        detects_corruption=False,
        reads_in_process=True,
    )

    def __init__(self, name: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.address = f"memory://{quote(name or '')}"
        if name:
            with _named_lock:
                self._store = _named.setdefault(name, _Store())
        else:
            self._store = _Store()
        self._clock = clock
        self._claims: dict[str, int] = {}
        self._closed = False

    @classmethod
    def from_address(
        cls, address: Address, *, clock: Callable[[], float] = time.time, **extra: Any
    ) -> MemoryBackend:
        """Open the store of that name, or a fresh one without a name."""
        build_options(MemoryOptions, {**address.options, **extra}, of="memory")
        return cls(unquote(address.location) or None, clock=clock)

    # -- plain namespaces ------------------------------------------------------------------------

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.write_many({namespace: Changes(puts=items, ttl_s=ttl_s)})

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self.write_many({namespace: Changes(deletes=check_keys(keys))})

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        checked: list[tuple[str, dict[bytes, bytes], list[bytes], float | None]] = []
        for namespace, changes in batches.items():
            deletes = check_changes(namespace, changes)
            puts = {key: bytes(value) for key, value in changes.puts.items()}
            checked.append((namespace, puts, deletes, changes.ttl_s))
        with self._store.lock:
            self._require_open()
            for namespace, _, _, _ in checked:
                self._require_owner(namespace)
                require_plain(namespace, self._is_versioned(namespace))
            for namespace, puts, deletes, ttl_s in checked:
                cells = self._store.namespaces.setdefault(namespace, _Namespace()).cells
                expires_s = None if ttl_s is None else self._clock() + ttl_s
                cells.update((key, _Cell(value, expires_s)) for key, value in puts.items())
                for key in deletes:
                    cells.pop(key, None)

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        listed = check_keys(keys)
        with self._store.lock:
            found = self._find(namespace, version, commit_id)
            if isinstance(found, list):
                values = ((key, _newest(found, key)) for key in listed)
                return {key: value for key, value in values if value is not None}
            return {key: found[key].value for key in listed if key in found and self._alive(found[key])}

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        check_prefix(prefix)
        with self._store.lock:
            found = self._find(namespace, version, commit_id)
            if isinstance(found, list):
                items = list(_squashed(found).items())
            else:
                items = [(key, cell.value) for key, cell in found.items() if self._alive(cell)]
        return iter(sorted(item for item in items if item[0].startswith(prefix)))

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
        delta: dict[bytes, bytes | None] = {key: bytes(value) for key, value in puts.items()}
        delta.update(dict.fromkeys(removed))
        with self._store.lock:
            self._require_open()
            if not self._is_versioned(namespace):
                self._require_owner(namespace)
            space = self._store.namespaces.get(namespace) or _Namespace()
            if any(map(self._alive, space.cells.values())):
                raise UnsupportedError(
                    f"namespace {namespace!r} in {self.address} is plain and holds keys: it cannot become "
                    "versioned; commit to another namespace, or drop this one first"
                )
            commit = space.history.prepare(version, base, commit_id)
            space.cells.clear()
            space.deltas[commit.id] = delta
            space.history.add(commit)
            self._store.namespaces[namespace] = space
            return commit.id

    def history(self, namespace: str) -> History:
        check_namespace(namespace)
        with self._store.lock:
            self._require_open()
            space = self._store.namespaces.get(namespace)
            return space.history.copy() if space else History()

    def truncate(self, namespace: str, keep_from: int) -> None:
        check_namespace(namespace)
        with self._store.lock:
            self._require_open()
            space = self._store.namespaces.get(namespace) or _Namespace()
            if any(map(self._alive, space.cells.values())):
                raise versions_need_commits(namespace)
            plan = space.history.plan_truncation(keep_from)
            floors: dict[CommitId, dict[bytes, bytes | None]] = {
                floor: dict(_squashed(self._chain(space, space.history[floor]))) for floor in plan.floors
            }
            space.history.apply(plan)
            space.deltas.update(floors)
            for forgotten in plan.forgotten:
                space.deltas.pop(forgotten, None)

    # -- namespaces and their owners -------------------------------------------------------------

    def namespaces(self) -> list[str]:
        with self._store.lock:
            self._require_open()
            return sorted(
                name
                for name, space in self._store.namespaces.items()
                if len(space.history) or any(map(self._alive, space.cells.values()))
            )

    def drop(self, namespace: str) -> None:
        check_namespace(namespace)
        with self._store.lock:
            self._require_open()
            if not self._is_versioned(namespace):
                self._require_owner(namespace)
            self._store.namespaces.pop(namespace, None)

    def claim(self, namespace: str) -> Epoch:
        check_namespace(namespace)
        with self._store.lock:
            self._require_open()
            require_plain(namespace, self._is_versioned(namespace))
            epoch = self._store.epochs.get(namespace, 0) + 1
            self._store.epochs[namespace] = epoch
            self._store.owners[namespace] = self
            self._claims[namespace] = epoch
            return Epoch(epoch)

    def release(self, namespace: str) -> None:
        check_namespace(namespace)
        with self._store.lock:
            self._require_open()
            self._release(namespace)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._require_open()

    def close(self) -> None:
        with self._store.lock:
            for namespace in list(self._claims):
                self._release(namespace)
            self._closed = True

    # -- under the lock --------------------------------------------------------------------------

    def _require_open(self) -> None:
        require_open(self._closed, self.address)

    def _require_owner(self, namespace: str) -> None:
        mine = self._claims.get(namespace)
        epoch = self._store.epochs.get(namespace)
        # A handle that lost its claim stays fenced after the new owner has gone: it may hold old state.
        fenced = namespace in self._store.owners if mine is None else mine != epoch
        if fenced:
            raise FencedError(
                f"namespace {namespace!r} in {self.address} was claimed by another owner (epoch {epoch}); "
                "stop writing, or claim() it to take it over"
            )

    def _release(self, namespace: str) -> None:
        if self._claims.pop(namespace, None) is not None and self._store.owners.get(namespace) is self:
            del self._store.owners[namespace]

    def _is_versioned(self, namespace: str) -> bool:
        space = self._store.namespaces.get(namespace)
        return space is not None and len(space.history) > 0

    def _alive(self, cell: _Cell) -> bool:
        return cell.expires_s is None or self._clock() < cell.expires_s

    def _find(
        self, namespace: str, version: int | None, commit_id: str | None
    ) -> dict[bytes, _Cell] | list[dict[bytes, bytes | None]]:
        """The cells of a plain namespace, or the deltas of a versioned one as of a version, newest first."""
        check_namespace(namespace)
        self._require_open()
        space = self._store.namespaces.get(namespace) or _Namespace()
        if len(space.history):
            return self._chain(space, space.history.resolve(version, commit_id))
        if version is not None or commit_id is not None:
            if any(map(self._alive, space.cells.values())):
                raise versions_need_commits(namespace)
            space.history.resolve(version, commit_id)
        return space.cells

    @staticmethod
    def _chain(space: _Namespace, commit: Commit | None) -> list[dict[bytes, bytes | None]]:
        return [space.deltas[c.id] for c in space.history.chain(commit)]


def _newest(deltas: list[dict[bytes, bytes | None]], key: bytes) -> bytes | None:
    return next((delta[key] for delta in deltas if key in delta), None)


def _squashed(deltas: list[dict[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """The state that a chain of deltas, newest first, adds up to."""
    state: dict[bytes, bytes | None] = {}
    for delta in reversed(deltas):
        state.update(delta)
    return {key: value for key, value in state.items() if value is not None}
