"""Checkpoints in an object store, through any fsspec filesystem: the log's frames as immutable objects.

One request makes a whole commit group durable, however many keys, namespaces and threads it holds. Several
handles may write to one store at once: objects are numbered, each is created only if its number is free, so
every writer has seen all that came before it. A writer that comes second looks again and writes on top.

The address is `fsspec+PROTOCOL://PLACE?option=…`. Options of `FsspecOptions` are ours; `fs.NAME=value` goes
to the filesystem, see `fsspec_filesystems`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from fsspec.core import strip_protocol

from ckpt.contract.addresses import Address, build_options
from ckpt.contract.backend import BackendStats, Capabilities, CompactionReport, RepairReport, require_open
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, CkptError, ConfigError, CorruptRecordError, FencedError
from ckpt.types import Block, Changes, CommitId, Epoch, check_namespace
from ckpt_backends.engine.backend import EngineBackend
from ckpt_backends.engine.engine import Engine
from ckpt_backends.engine.maintenance import Maintenance
from ckpt_backends.engine.options import check_engine_options
from ckpt_backends.engine.storage import LostRaceError
from ckpt_backends.objects.drivers import LOCAL, S3, driver_of
from ckpt_backends.objects.filesystems import (
    FS_OPTION,
    check_s3_place,
    filesystem_arguments,
    open_filesystem,
    shown_options,
)
from ckpt_backends.objects.requests import ObjectRequests
from ckpt_backends.objects.storage import ObjectStorage, ObjectStorageLimits

Answer = TypeVar("Answer")

_LONGEST_WAIT_S = 0.1
_MOST_RACES = 100
_MOST_LONG_RACES = 10
"""Of work that reads the whole store each time: a handle that writes meanwhile wins, and goes on writing."""


@dataclass(frozen=True, slots=True)
class FsspecOptions:
    """The options of an `fsspec+PROTOCOL://` address, apart from those of the filesystem (`fs.NAME`)."""

    mode: str = "write"
    """`write`: reads and writes. `read`: changes nothing, not even by chance."""
    segment_bytes: int = 8 << 20
    """The size of the objects that compaction makes, and the most that is read to find one key."""
    cache_bytes: int = 256 << 20
    """How much of the objects read last stays in memory, beside the index of 16 bytes a key."""
    recent_records: int = 1 << 17
    """How many records may be unknown to the index files; bounds memory and the replay when opening."""
    unindexed_segments: int = 64
    """Likewise, how many objects; each of them is a request when opening."""
    gc: bool = True
    gc_trigger: float = 0.5
    gc_select: float = 0.5
    """As in the log: garbage that starts a compaction, and what share of an object must be garbage."""
    small_bytes: int = 1 << 20
    """Objects below this size are merged into large ones, whatever they hold,"""
    small_segments: int = 256
    """once there are so many of them."""
    grace_s: float = 120.0
    """How long an object stays after it was compacted away. Scans by other handles may take that long, and
    the clocks of hosts that share a store must agree to within half of it."""
    stale_s: float = 0.0
    """A read may miss what other handles have written in this time; 0 asks the store each time."""
    retry_s: float = 10.0
    """How long a failing request is tried again before BackendUnavailableError."""
    timeout_s: float = 10.0
    """How long the store may take to answer one request, and one second more for each MiB."""
    sole_writer: bool = False
    """The user sees to it that one handle at a time writes. Without that, a store that cannot create an
    object only if there is none of its name takes no writes."""

    def __post_init__(self) -> None:
        check_engine_options(self, of="fsspec", least_segment_bytes=4 << 10)
        for name in ("unindexed_segments", "small_segments"):
            if getattr(self, name) < 1:
                raise ConfigError(f"fsspec option {name} is at least 1, got {getattr(self, name)}")
        for name in ("cache_bytes", "small_bytes", "grace_s", "stale_s", "retry_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"fsspec option {name} is not below 0, got {getattr(self, name)}")
        if not self.timeout_s > 0:
            raise ConfigError(f"fsspec option timeout_s is above 0, got {self.timeout_s}")


class FsspecBackend(EngineBackend):
    """Checkpoints as immutable objects of any fsspec filesystem: durable when the store has answered.

    Examples
    --------
    >>> import ckpt
    >>> with ckpt.open_backend("fsspec+memory://docs/one") as store:
    ...     store.put_many("words", {b"be": b"2"})
    >>> with ckpt.open_backend("fsspec+memory://docs/one") as store:
    ...     store.get_many("words", [b"be", b"or"])
    {b'be': b'2'}
    """

    scheme: ClassVar[str] = "fsspec"
    reads_need_mode: ClassVar[bool] = True
    """A handle that only reads opens the store with `mode=read`: it must exist, and nothing is written."""

    def __init__(
        self,
        filesystem: Any,
        root: str,
        options: FsspecOptions | None = None,
        *,
        protocol: str,
        address: str,
        owns_filesystem: bool = False,
        clock: Callable[[], float] = time.time,
        disk: Disk | None = None,
    ) -> None:
        options = options or FsspecOptions()
        driver = driver_of(
            filesystem,
            protocol,
            root,
            timeout_s=options.timeout_s,
            owns_filesystem=owns_filesystem,
            disk=disk,
        )
        self._requests = ObjectRequests(
            driver, root, address=address, retry_s=options.retry_s, sole_writer=options.sole_writer
        )
        if options.mode == "write":
            self._requests.require_atomic()
        sizes = ObjectStorageLimits(
            **{f.name: getattr(options, f.name) for f in dataclasses.fields(ObjectStorageLimits)}
        )
        storage = ObjectStorage(self._requests, address, sizes, read_only=options.mode == "read", clock=clock)
        if options.mode == "read":
            storage.require_exists()
        engine = Engine(storage)
        storage.on_evict = lambda number: engine.records.forget(number)
        maintenance = Maintenance(engine, options, clock=clock)
        super().__init__(engine, maintenance, durable_writes=True, clock=clock)
        self._stale_s = options.stale_s
        self._looked_at = time.monotonic()
        self._looks = threading.local()
        """Whether the question that this thread asks has looked already, and goes on with what it saw."""
        self._owner = secrets.token_hex(8)
        self._claims: dict[str, int] = {}
        """The epochs of the namespaces that this handle has claimed, whether or not it still owns them."""
        self.capabilities = Capabilities(
            persistent=protocol != "memory",
            shared_writers=not options.sole_writer,
            ttl=True,
            atomic_put=True,
            ordered_scan=False,
            detects_corruption=True,
        )

    @classmethod
    def from_address(cls, address: Address, **extra: Any) -> Self:
        """Open the store that an address names; `filesystem=` takes a ready fsspec filesystem instead."""
        seams = {name: extra.pop(name) for name in ("clock", "disk") if name in extra}
        filesystem = extra.pop("filesystem", None)
        protocol = address.scheme.removeprefix("fsspec").removeprefix("+")
        if protocol in S3:
            check_s3_place(address.path)
        shown = str(Address(address.scheme, address.location, shown_options(address.options)))
        all_options = {**address.options, **extra}
        ours = {name: value for name, value in all_options.items() if not name.startswith(FS_OPTION)}
        options = build_options(FsspecOptions, ours, of="fsspec")
        if not protocol:
            raise ConfigError(f"{shown} names no protocol; write fsspec+PROTOCOL://, such as fsspec+s3://")
        if not address.path.strip("/") or (protocol in LOCAL and not address.path.startswith("/")):
            example = (
                "file:///absolute/path (three slashes)" if protocol in LOCAL else f"{protocol}://name/path"
            )
            raise ConfigError(f"{shown} names no place; write fsspec+{example}")
        owns = filesystem is None
        if owns:
            arguments = filesystem_arguments(all_options)
            filesystem = open_filesystem(protocol, arguments, address=shown, timeout_s=options.timeout_s)
        root = strip_protocol(f"{protocol}://{address.path}")
        return cls(filesystem, root, options, protocol=protocol, address=shown, owns_filesystem=owns, **seams)

    # -- writing beside others -------------------------------------------------------------------

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        changes = {name: _listed(change) for name, change in batches.items()}
        emptied = [name for name, change in changes.items() if not change.puts]
        add = super().write_many
        self._write(lambda: add(changes), must_know=emptied)

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
        gone = deletes if isinstance(deletes, (bytes, str)) else list(deletes)
        add = super().commit
        return self._write(lambda: add(namespace, version, puts, gone, base=base, commit_id=commit_id))

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
        add = super().commit_block
        return self._write(lambda: add(namespace, version, puts, deletes, base=base, commit_id=commit_id))

    def truncate(self, namespace: str, keep_from: int) -> None:
        forget = super().truncate
        self._write(lambda: forget(namespace, keep_from))

    def drop(self, namespace: str) -> None:
        remove = super().drop
        self._write(lambda: remove(namespace), must_know=[namespace])

    def claim(self, namespace: str) -> Epoch:
        take = super().claim
        epoch = self._write(lambda: take(namespace))
        self._claims[namespace] = epoch
        return epoch

    def release(self, namespace: str) -> None:
        require_open(self._closed, self.address)
        check_namespace(namespace)
        if self._claims.get(namespace) is not None:
            self._write(lambda: self._release([namespace]))

    def flush(self) -> None:
        # Every write waits for its own durability; what another writer's victory undid is repeated there.
        require_open(self._closed, self.address)

    def compact(self) -> CompactionReport:
        """Merge small objects and drop garbage now. The room is free `grace_s` after that, see the docs."""
        merge = super().compact
        return self._write(merge, races=_MOST_LONG_RACES)

    def repair(self) -> RepairReport:
        """Rebuild the index, save what is intact, and move what is not to quarantine.

        Beside writers that never pause it gives up after a few tries, with BackendUnavailableError.
        """
        mend = super().repair
        return self._write(mend, races=_MOST_LONG_RACES)

    def close(self) -> None:
        if not self._closed and not self._engine.storage.read_only:
            try:
                mine = [name for name in self._claims if self._owns(name)]
                if mine:
                    self._write(lambda: self._release(mine))
            except CkptError:
                pass  # this handle stays the owner until another one claims
        super().close()

    def _write(
        self, write: Callable[[], Answer], *, must_know: Iterable[str] = (), races: int = _MOST_RACES
    ) -> Answer:
        """Write on top of what all handles have written; again, if another was first.

        To remove something from a namespace that we do not know is no empty task: another may just have made
        it. Such ones are in `must_know`. To come second `races` times is to fail.
        """
        require_open(self._closed, self.address)
        engine = self._engine
        wait_s, lost = 0.001, 0
        if any(name not in engine.catalog.by_name for name in must_know if isinstance(name, str)):
            self._look(None)
        while True:
            self._look_anew()
            seen = engine.next_sequence
            try:
                return write()
            except LostRaceError as error:
                lost += 1
                if lost >= races:
                    advice = (
                        "Give each writer a path of its own, or let fewer of them write at once"
                        if races == _MOST_RACES
                        else "Try again when nobody writes to it"
                    )
                    raise BackendUnavailableError(
                        f"{self.address}: others were first {lost} times in a row; nothing was written. "
                        f"{advice}"
                    ) from error
                # Half of the wait is random, so that writers that collided do not collide again.
                time.sleep(wait_s * (0.5 + random.random() / 2))
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            except BackendUnavailableError:
                raise  # whether it was written is unknown: to try again may be to write it twice
            except CkptError:
                # What forbids the write may have changed since we last looked; but where others write all
                # the time there is always news.
                lost += 1
                if lost >= races or not self._has_news(seen):
                    raise

    def _look_anew(self) -> bool:
        """After a failed or lost write: drop what is not stored, read what is. False if there was none."""
        if not self._engine.has_failed:
            return False
        with self._maintenance.paused():
            if self._engine.has_failed:
                self._engine.reload()
        return True

    def _has_news(self, seen: int) -> bool:
        try:
            self._look(None)
        except BackendUnavailableError:
            return False
        return self._engine.next_sequence != seen

    # -- owners ----------------------------------------------------------------------------------

    def _claim_of(self, namespace: str, epoch: int) -> dict[str, Any]:
        return {"op": "claim", "epoch": epoch, "name": namespace, "owner": self._owner}

    def _require_owner(self, namespace: str) -> None:
        epoch, owner = self._engine.catalog.owners.get(namespace, (0, ""))
        mine = self._claims.get(namespace)
        # A handle that lost its claim stays fenced after the new owner has gone: it may hold old state.
        if (mine != epoch) if mine is not None else owner:
            raise FencedError(
                f"namespace {namespace!r} in {self.address} was claimed by another owner (epoch {epoch}); "
                "stop writing, or claim() it to take it over"
            )

    def _owns(self, namespace: str) -> bool:
        return self._engine.catalog.owners.get(namespace) == (self._claims.get(namespace), self._owner)

    def _release(self, names: Iterable[str]) -> None:
        engine = self._engine
        with engine.lock:
            engine.require_writable()
            said = [{"op": "release", "name": n, "epoch": self._claims[n]} for n in names if self._owns(n)]
            ticket = engine.append([engine.control(s) for s in said]) if said else engine.everything()
            for control in said:
                engine.catalog.apply(ticket.sequence, control)
        engine.wait_durable(ticket)
        for name in names:
            self._claims.pop(name, None)

    # -- reading what others write ---------------------------------------------------------------

    def _look(self, namespace: str | None) -> None:
        if getattr(self._looks, "are_over", False):
            return
        now_s = time.monotonic()
        # What we have appended and could not store is not to be seen, whether or not we own the namespace.
        if self._look_anew():
            self._looked_at = now_s
            return
        # No other handle writes to a namespace that we own, so there is nothing to look for.
        if namespace is not None and self._owns(namespace):
            return
        if now_s - self._looked_at < self._stale_s:
            return
        engine = self._engine
        if engine.storage.read_only:
            engine.refresh()
        else:
            self._catch_up()
        self._looked_at = now_s

    def _catch_up(self) -> None:
        engine = self._engine
        # While frames of this handle are under way it is unknown whether another handle was first. From the
        # second round on, those frames were begun after this call, on top of everything that was stored then.
        for _ in range(4):
            with contextlib.suppress(BackendUnavailableError):  # the call that appended them raises it
                engine.wait_durable(engine.everything())
            if self._look_anew():
                return
            is_behind = engine.is_behind()
            if is_behind:
                with self._maintenance.paused():
                    is_behind = not engine.refresh()
            if is_behind is False:
                return

    def _mend(self, error: Exception) -> bool:
        if isinstance(error, CorruptRecordError):
            # Another writer may have compacted away what our index still points to.
            with self._maintenance.paused():
                self._engine.reload()
            return True
        return super()._mend(error)

    def stats(self) -> BackendStats:
        require_open(self._closed, self.address)
        self._look(None)
        self._looks.are_over = True  # not once more for every namespace
        try:
            found = super().stats()
        finally:
            self._looks.are_over = False
        requests = {f"requests_{kind}": count for kind, count in sorted(self._requests.counts.items())}
        return dataclasses.replace(found, details={**found.details, **requests})


def _listed(changes: Changes) -> Changes:
    """The same, with deletes that can be read twice."""
    if isinstance(changes.deletes, (bytes, str, list, tuple)):
        return changes
    return dataclasses.replace(changes, deletes=list(changes.deletes))
