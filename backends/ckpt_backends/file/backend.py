"""One file per key: whatever is acknowledged survives a crash, and nothing half-written is ever visible.

`file:///dir?durability=fsync|os`. A key's file is written aside, synced, renamed into place, and its
directory synced once per batch. A versioned namespace has one file per commit instead (`file_history`).
Several processes may write to one directory at once; claims fence them (`file_claims`).

```
dir/ckpt-file                 says that this directory is such a store, and its format
      lock                      shared by every open handle; a handle that has it alone may tidy up
    aside/                    files that are being written, namespaces that are being dropped
    claims/NAME.lock .owner   the lock and the owner of a namespace
    spaces/NAME/keys/NAME     one file per key (`file_records`)
                commits/ …    one file per commit
                settled       what the last truncation decided
                name          the namespace, if NAME does not spell it
    quarantine/               what `repair` took out of service
```

NAME is a file name for arbitrary bytes (`file_names`). A crash may leave some puts of a batch and not others,
each of them whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from ckpt.contract.addresses import Address, Durability, build_options
from ckpt.contract.backend import (
    Backend,
    BackendStats,
    BadRecord,
    Capabilities,
    CompactionReport,
    RepairReport,
    check_changes,
    check_commit,
    check_keys,
    check_prefix,
    require_open,
    versions_need_commits,
)
from ckpt.contract.disk import Disk
from ckpt.contract.versions import History, require_plain
from ckpt.errors import BackendUnavailableError, ConfigError, UnsupportedError
from ckpt.types import Changes, CommitId, Epoch, check_namespace
from ckpt_backends.disk_errors import DiskErrors
from ckpt_backends.file.claims import Claims
from ckpt_backends.file.namespaces import FileNamespace, FileNamespaces
from ckpt_backends.file.records import Aside, encode_note, read_note, remove_tree
from ckpt_backends.file.upkeep import StoreUpkeep

ItemT = TypeVar("ItemT")

_FOLDERS = ("aside", "claims", "spaces", "quarantine")
_FORMAT = {"format": "ckpt-file", "version": 1}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of a file address."""

    durability: Durability = Durability.FSYNC


class FileBackend(Backend):
    """Keeps one file per key in a directory; a write that returned is on stable storage (`durability=fsync`).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with FileBackend(directory) as backend:
    ...         backend.put_many("words", {b"../be": b"2"})
    ...     with FileBackend(directory) as backend:
    ...         list(backend.scan("words"))
    [(b'../be', b'2')]
    """

    scheme: ClassVar[str] = "file"
    capabilities = Capabilities(
        persistent=True,
        shared_writers=True,
        ttl=True,
        atomic_put=False,
        ordered_scan=True,
        detects_corruption=True,
    )

    def __init__(
        self,
        directory: str,
        *,
        durability: Durability = Durability.FSYNC,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if durability is Durability.QUEUED:
            raise ConfigError("file option durability is one of fsync, os; a SafeKeeper queues above it")
        self.address = str(Address("file", quote(os.path.abspath(directory)), _shown(durability)))
        self._disk = disk or Disk()
        self._durable = durability is Durability.FSYNC
        self._clock = clock
        self._root = os.path.abspath(directory)
        token = uuid.uuid4().hex
        self._aside = Aside(self._disk, os.path.join(self._root, "aside"), token)
        self._claims = Claims(
            self._disk, os.path.join(self._root, "claims"), self.address, token, self._aside
        )
        self._spaces = FileNamespaces(
            self._disk, os.path.join(self._root, "spaces"), self._aside, clock, durable=self._durable
        )
        self._upkeep = StoreUpkeep(self._disk, self._root, self._spaces, self._claims)
        self._closed = False
        self._running = 0
        self._changed = threading.Condition()
        self._unsynced: set[str] = set()
        with DiskErrors("open", self.address):
            self._lock_fd = self._open_store()

    @classmethod
    def from_address(
        cls,
        address: Address,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
        **extra: Any,
    ) -> FileBackend:
        """Open the directory that the address names; it is created if there is none."""
        options = build_options(FileOptions, {**address.options, **extra}, of="file")
        if not address.path.startswith("/"):
            raise ConfigError(f"{address} has no absolute path; write file:///var/ckpt")
        return cls(address.path, durability=options.durability, disk=disk, clock=clock)

    # -- plain namespaces ------------------------------------------------------------------------

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.write_many({namespace: Changes(puts=items, ttl_s=ttl_s)})

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self.write_many({namespace: Changes(deletes=check_keys(keys))})

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        checked = {
            name: replace(changes, deletes=check_changes(name, changes)) for name, changes in batches.items()
        }
        with self._working(), contextlib.ExitStack() as locks:
            for name in sorted(checked):  # in one order, so that two batches cannot wait for each other
                locks.enter_context(self._claims.locked(name, alone=False))
            for name in checked:
                self._claims.require_owner(name)
                require_plain(name, self._spaces[name].is_versioned())
            self._note(self._spaces.write(checked))

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        listed = check_keys(keys)
        with self._working():
            space = self._readable(namespace, version, commit_id)
            if space.is_versioned():
                return space.commits.get_many(listed, version, commit_id)
            found = space.get_many(listed)
            if len(found) < len(listed):
                self._require_store()
            return found

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        check_prefix(prefix)
        with self._working():
            space = self._readable(namespace, version, commit_id)
            if space.is_versioned():
                return self._guarded(space.commits.scan(prefix, version, commit_id))
            found = space.scan(prefix)
            self._require_store()
            return self._guarded(found)

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
        with self._working(), self._claims.locked(namespace, alone=True):
            space = self._spaces[namespace]
            if not space.is_versioned():
                self._claims.require_owner(namespace)
                History().prepare(version, base, commit_id)
                if space.holds_keys():
                    raise UnsupportedError(
                        f"namespace {namespace!r} in {self.address} is plain and holds keys: it cannot "
                        "become versioned; commit to another namespace, or drop this one first"
                    )
                space.create()
            made, written = space.commits.commit(version, base, commit_id, delta)
            self._note(written)
            return made

    def history(self, namespace: str) -> History:
        check_namespace(namespace)
        with self._working():
            history = self._spaces[namespace].commits.history().copy()
            self._require_store()
            return history

    def truncate(self, namespace: str, keep_from: int) -> None:
        check_namespace(namespace)
        with self._working(), self._claims.locked(namespace, alone=True):
            space = self._spaces[namespace]
            if space.is_versioned():
                space.commits.truncate(keep_from)
            elif space.holds_keys():
                raise versions_need_commits(namespace)
            else:
                History().plan_truncation(keep_from)

    # -- namespaces and their owners -------------------------------------------------------------

    def namespaces(self) -> list[str]:
        with self._working():
            return sorted(space.namespace for space in self._spaces if space.holds_anything())

    def drop(self, namespace: str) -> None:
        check_namespace(namespace)
        with self._working(), self._claims.locked(namespace, alone=True):
            space = self._spaces[namespace]
            if not space.is_versioned():
                self._claims.require_owner(namespace)
            self._spaces.drop(space)

    def claim(self, namespace: str) -> Epoch:
        check_namespace(namespace)
        with self._working(), self._claims.locked(namespace, alone=True):
            require_plain(namespace, self._spaces[namespace].is_versioned())
            return self._claims.claim(namespace)

    def release(self, namespace: str) -> None:
        check_namespace(namespace)
        with self._working(), self._claims.locked(namespace, alone=True):
            self._claims.release(namespace)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        with self._working():
            self._sync_all()

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.wait_for(lambda: self._running == 0)
        with DiskErrors("close", self.address):
            try:
                self._sync_all()
                for namespace in self._claims.held():
                    with self._claims.locked(namespace, alone=True):
                        self._claims.release(namespace)
            finally:
                self._disk.close(self._lock_fd)

    def compact(self) -> CompactionReport:
        """Remove the files of expired keys and of forgotten commits."""
        with self._working():
            return self._upkeep.compact()

    def verify(self) -> Iterator[BadRecord]:
        """Read every file and yield those that are not what was written."""
        with self._working():
            return self._guarded(self._upkeep.verify())

    def repair(self) -> RepairReport:
        """Move damaged files to `quarantine/`, with every commit that builds on a damaged one."""
        with self._working():
            return self._upkeep.repair()

    def stats(self) -> BackendStats:
        """Sizes and counts; `stored_bytes` is the size of all files."""
        stats = super().stats()
        with self._working():
            files, stored_bytes, quarantined = self._upkeep.sizes()
        details = {"files": files, "quarantined_files": quarantined}
        return replace(stats, stored_bytes=stored_bytes, details=details)

    # -- inside ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """A call is running: the store is open, stays open until the call is over, and names disk errors."""
        with self._changed:
            require_open(self._closed, self.address)
            self._running += 1
        try:
            with DiskErrors("use", self.address):
                yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _guarded(self, items: Iterator[ItemT]) -> Iterator[ItemT]:
        with DiskErrors("read", self.address):
            yield from items

    def _readable(self, namespace: str, version: int | None, commit_id: str | None) -> FileNamespace:
        space = self._spaces[check_namespace(namespace)]
        if (version is not None or commit_id is not None) and not space.is_versioned():
            if space.holds_keys():
                raise versions_need_commits(namespace)
            self._require_store()
            History().resolve(version, commit_id)
        return space

    def _require_store(self) -> None:
        """What is missing is missing only while the store is there, and not unmounted or moved away."""
        if not os.path.exists(os.path.join(self._root, "ckpt-file")):
            raise BackendUnavailableError(
                f"{self.address}: the store is no longer in {self._root}; mount it again, or open another"
            )

    def _note(self, written: Iterable[str]) -> None:
        if not self._durable:
            with self._changed:
                self._unsynced.update(written)

    def _sync_all(self) -> None:
        with self._changed:
            paths, self._unsynced = self._unsynced, set()
        try:
            self._spaces.sync(paths)
        except BaseException:
            self._note(paths)
            raise

    def _open_store(self) -> int:
        """Lock the directory, make it a store if it is empty, and tidy up after crashes; the lock's fd."""
        self._disk.make_dirs(self._root)
        marker = os.path.join(self._root, "ckpt-file")
        foreign = set(os.listdir(self._root)) - {"ckpt-file", "lock", *_FOLDERS}
        if foreign and not os.path.exists(marker):
            raise ConfigError(
                f"{self._root} holds {min(foreign)!r} and is no file store; choose an empty directory"
            )
        fd = self._disk.open(os.path.join(self._root, "lock"), os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                alone = False
            for folder in _FOLDERS:
                self._disk.make_dirs(os.path.join(self._root, folder))
            if alone:  # so no living process can own what lies aside
                remove_tree(self._disk, self._aside.directory, keep_root=True)
            fcntl.flock(fd, fcntl.LOCK_SH)
            self._check_format(marker)
        except BaseException:
            self._disk.close(fd)
            raise
        return fd

    def _check_format(self, marker: str) -> None:
        found = read_note(self._disk, marker)
        if found is None:
            self._aside.replace(marker, [encode_note(_FORMAT)], durable=True)
        elif found != _FORMAT:
            raise ConfigError(f"{marker} is of format {found}, which this version of ckpt cannot read")


def _shown(durability: Durability) -> dict[str, str]:
    return {} if durability is Durability.FSYNC else {"durability": str(durability)}
