"""The contract of stable storage: what every backend guarantees, and nothing about how.

A backend is synchronous and batch-first. Checkpoints are addressed by (namespace, key); keys and values are
bytes. A namespace is *plain* (last write wins) until its first `commit`; from then on it is *versioned*.

What a backend promises:

- When `put_many`, `delete_many`, `write_many`, `commit` or `truncate` returns, the change is durable at the
  level that the address names (`durability=fsync` by default).
- Two writes of one key from one thread are never reordered.
- A missing key is omitted from the answer; a store that cannot answer raises `BackendUnavailableError`; bytes
  that are not what was written raise `CorruptRecordError`. The three are never confused.
- `commit` is all or nothing, and its leftovers are invisible.
- A call with bad arguments raises before anything is written.
- Methods may be called from several threads. `close` is idempotent; every later call raises.

`ckpt.testing.BackendConformance` holds each of these sentences as a test; third-party backends subclass it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

from ckpt.contract.versions import Commit, History
from ckpt.errors import BackendUnavailableError, ConfigError, CorruptRecordError, UnsupportedError, shown_key
from ckpt.types import Block, Changes, CommitId, Epoch, check_namespace


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between backends. The conformance suite tests each flag both ways."""

    persistent: bool
    """Another process can open the same address later and finds the same checkpoints."""
    shared_writers: bool
    """Several handles may be open for writing at once; otherwise the second is refused when it opens."""
    ttl: bool
    """`put_many(..., ttl_s=...)` is honoured; otherwise it raises UnsupportedError."""
    atomic_put: bool
    """A `put_many` that a crash interrupts leaves all of its puts or none."""
    ordered_scan: bool
    """`scan` yields keys in ascending order of their bytes."""
    detects_corruption: bool
    """A changed byte in the store is reported as CorruptRecordError when it is read."""
    reads_in_process: bool = False
    """`get_many` of a plain namespace reads memory, its own or that of mapped files, and never waits.

    A timeout could not interrupt that: a thread that waits for a page holds the interpreter. So a SafeKeeper
    asks such a backend on the caller's thread, where it asks others on a thread that it can leave behind.
    """


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One thing that `verify` found wrong, and where."""

    place: str
    """File, object or row, with the offset where that helps."""
    reason: str
    namespace: str | None = None
    key: bytes | None = None

    def __str__(self) -> str:
        of = f" of {self.namespace!r}" if self.namespace is not None else ""
        what = f"key {shown_key(self.key)}{of}" if self.key is not None else f"record{of}"
        return f"{self.place}: {what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What `repair` did. Nothing is destroyed: what was taken out of service lies in `quarantine`."""

    kept_records: int
    quarantined: tuple[BadRecord, ...]
    quarantine: str | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one compaction reclaimed and what it cost."""

    bytes_before: int
    bytes_after: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """One row of `ckpt stats`. Counts marked as estimates may lag behind a running garbage collection."""

    name: str
    keys: int
    versioned: bool = False
    tip: int | None = None
    commits: int = 0


@dataclass(frozen=True, slots=True)
class BackendStats:
    """The size of a store, its namespaces, and whatever else the backend finds worth a number."""

    address: str
    namespaces: tuple[NamespaceStats, ...]
    stored_bytes: int
    details: Mapping[str, int | float | str] = field(default_factory=dict)


@runtime_checkable
class Compacts(Protocol):
    """Optional: a backend that keeps garbage and can reclaim it on request."""

    def compact(self) -> CompactionReport: ...


@runtime_checkable
class Repairs(Protocol):
    """Optional: a backend whose files a person may have to mend."""

    def repair(self) -> RepairReport: ...


@runtime_checkable
class ScansInBlocks(Protocol):
    """Optional: a backend that reads a whole namespace faster as columns than row by row."""

    def scan_blocks(
        self,
        namespace: str,
        *,
        version: int | None = None,
        commit_id: str | None = None,
        block_bytes: int = 1 << 20,
    ) -> Iterator[Block]:
        """The rows of `scan`, with all its guarantees, in blocks of about that many bytes."""
        ...


@runtime_checkable
class CommitsInBlocks(Protocol):
    """Optional: a backend that takes the rows of a commit faster as columns than as a mapping."""

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
        """The same as `commit` of these rows. A key that is put twice is a ConfigError, as in `rows_once`.

        The memory of the block may be used for something else as soon as this returns.
        """
        ...


@runtime_checkable
class Breaks(Protocol):
    """Optional: a backend that may, after a failure, refuse every write until it is opened again."""

    @property
    def is_broken(self) -> bool:
        """Whether it does so now."""
        ...


@runtime_checkable
class Counts(Protocol):
    """Optional: a backend that counts what it does at no cost, such as syncs or requests."""

    def counts(self) -> Mapping[str, int]:
        """Numbers since the backend was opened; they only grow. `durable_writes` is one for a whole group."""
        ...


class Backend(ABC):
    """Stable storage for checkpoints. Open one with `ckpt.open_backend(address)`.

    Examples
    --------
    >>> import ckpt
    >>> with ckpt.open_backend("memory://") as backend:
    ...     backend.put_many("words", {b"be": b"2"})
    ...     backend.get_many("words", [b"be", b"or"])
    {b'be': b'2'}
    """

    scheme: ClassVar[str]
    capabilities: Capabilities
    address: str
    """How to open this store again, without secrets."""

    # -- plain namespaces ------------------------------------------------------------------------

    @abstractmethod
    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        """Durably set every key; last write wins. With `ttl_s`, each is missing that many seconds later."""

    @abstractmethod
    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        """The values of those keys that exist; missing keys are omitted.

        In a versioned namespace: as of `version` (default: the newest) on the chain that ends in `commit_id`
        (default: the tip).
        """

    @abstractmethod
    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        """Durably remove every key; keys that do not exist are no error."""

    @abstractmethod
    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Every (key, value) whose key starts with `prefix`, each key once.

        Arguments are checked, and the version is fixed, when `scan` is called, not at the first `next`. A key
        that is neither written nor deleted during the scan is yielded exactly once; garbage collection and
        truncation do not disturb a scan that has begun.
        """

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        """Puts and deletes of several plain namespaces with one wait for durability where the store can."""
        deletes = {name: check_changes(name, changes) for name, changes in batches.items()}
        for namespace, changes in batches.items():
            if changes.puts:
                self.put_many(namespace, changes.puts, ttl_s=changes.ttl_s)
            if deletes[namespace]:
                self.delete_many(namespace, deletes[namespace])

    # -- versioned namespaces --------------------------------------------------------------------

    @abstractmethod
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
        """Durably add one commit, whole or not at all, and return its id (`commit_id`, or a new one).

        `base` names the commit it builds on (default: the tip). A key may not be both put and deleted. A
        plain namespace that holds keys cannot become versioned.
        """

    @abstractmethod
    def history(self, namespace: str) -> History:
        """A copy of the namespace's history: its tip, its commits, and from which version on it is kept.

        Empty for plain and unknown namespaces.
        """

    def versions(self, namespace: str) -> list[Commit]:
        """The commits that a reader may name, by version; empty for plain and unknown namespaces."""
        return self.history(namespace).commits()

    @abstractmethod
    def truncate(self, namespace: str, keep_from: int) -> None:
        """Forget garbage and every version below `keep_from` that no retained chain needs."""

    # -- namespaces and their owners -------------------------------------------------------------

    @abstractmethod
    def namespaces(self) -> list[str]:
        """Every namespace that holds a key or a commit, sorted."""

    @abstractmethod
    def drop(self, namespace: str) -> None:
        """Durably remove a namespace with everything in it; an unknown one is no error."""

    @abstractmethod
    def claim(self, namespace: str) -> Epoch:
        """Take a plain namespace over: from now on its former owner's writes raise FencedError.

        Returns the new epoch, higher than every earlier one. While a namespace is claimed, only its owner may
        write to it; a namespace without a claim takes writes from every handle.
        """

    @abstractmethod
    def release(self, namespace: str) -> None:
        """Give a claimed namespace up, so that writes need no claim again; idempotent."""

    # -- life ------------------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """Return when everything written before is durable, whatever the durability level."""

    @abstractmethod
    def close(self) -> None:
        """Flush, release what this handle claimed, and free every resource. Idempotent."""

    def verify(self) -> Iterator[BadRecord]:
        """Read everything and yield what is wrong. This default names the first bad record of a namespace."""
        for namespace in self.namespaces():
            try:
                for _ in self.scan(namespace):
                    pass
            except CorruptRecordError as error:
                yield BadRecord(self.address, str(error), namespace)

    def stats(self) -> BackendStats:
        """Sizes and counts; this default counts keys by scanning."""
        rows = []
        stored_bytes = 0
        for name in self.namespaces():
            keys = 0
            for key, value in self.scan(name):
                keys += 1
                stored_bytes += len(key) + len(value)
            commits = self.versions(name)
            tip = max((c.version for c in commits), default=None)
            rows.append(NamespaceStats(name, keys, bool(commits), tip, len(commits)))
        return BackendStats(self.address, tuple(rows), stored_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


# -- argument checks that every backend makes in the same words ----------------------------------


def check_items(items: Mapping[bytes, bytes]) -> None:
    """Raise TypeError unless every key is bytes and every value is bytes-like."""
    if type(items) is not dict and not isinstance(items, Mapping):
        raise TypeError(f"puts must be a mapping of bytes to bytes, got {type(items).__name__}")
    if not set(map(type, items.keys())) <= {bytes}:
        _raise_wrong_key(items)
    kinds = set(map(type, items.values()))
    if not kinds <= {bytes, bytearray, memoryview}:
        wrong = sorted(k.__name__ for k in kinds - {bytes, bytearray, memoryview})
        raise TypeError(
            f"values must be bytes, got {', '.join(wrong)}; serialise the state first, or use a SafeKeeper"
        )


def check_keys(keys: Iterable[bytes]) -> list[bytes]:
    """The keys as a list, each of type bytes."""
    if type(keys) is list and len(keys) == 1 and type(keys[0]) is bytes:
        return keys[:]  # the most frequent question
    if isinstance(keys, (bytes, str)):
        raise TypeError("keys must be an iterable of bytes, got one key; wrap it in a list")
    listed = list(keys)
    if not set(map(type, listed)) <= {bytes}:
        _raise_wrong_key(listed)
    return listed


_LONGEST_TTL_S = 1e12
"""About 30,000 years: a time of expiry within it fits into every store's records, infinity does not."""


def check_ttl(ttl_s: float | None) -> float | None:
    """The time to live, or a ConfigError unless it is None or a positive number of seconds."""
    if ttl_s is not None and (
        isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= _LONGEST_TTL_S
    ):
        raise ConfigError(
            f"ttl_s must be a positive number of seconds, at most {_LONGEST_TTL_S:g}, got {ttl_s!r}; "
            f"leave it out for checkpoints that never expire"
        )
    return ttl_s


def check_commit(puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> list[bytes]:
    """The deletes as a list; raises unless puts and deletes are valid and disjoint."""
    check_items(puts)
    if type(deletes) is tuple and not deletes:
        return []
    listed = check_keys(deletes)
    for key in listed:
        if key in puts:
            raise ConfigError(f"key {shown_key(key)} is both put and deleted in one batch; choose one")
    return list(dict.fromkeys(listed))


def rows_once(namespace: str, puts: Block) -> dict[bytes, bytes]:
    """The rows of a block as a mapping; raises if a key is there twice, for neither row is the right one.

    Examples
    --------
    >>> rows_once("words", Block.of([(b"be", b"2"), (b"or", b"1")]))
    {b'be': b'2', b'or': b'1'}
    """
    rows = dict(puts.rows())
    if len(rows) != len(puts):
        seen: set[bytes] = set()
        for key, _ in puts.rows():
            if key in seen:
                raise ConfigError(
                    f"a commit to namespace {namespace!r} puts key {shown_key(key)} twice; choose one"
                )
            seen.add(key)
    return rows


def check_changes(namespace: str, changes: Changes) -> list[bytes]:
    """The deletes of one namespace's changes as a list; raises unless the whole of it is valid."""
    check_namespace(namespace)
    check_ttl(changes.ttl_s)
    return check_commit(changes.puts, changes.deletes)


def check_prefix(prefix: bytes) -> bytes:
    """The prefix of a scan, or a TypeError unless it is bytes."""
    if type(prefix) is not bytes:
        raise TypeError(
            f"prefix must be bytes, got {type(prefix).__name__}; encode text with prefix.encode()"
        )
    return prefix


def require_open(closed: bool, address: str) -> None:
    """Raise once a backend was closed; the answer is the same for every call and every backend."""
    if closed:
        raise BackendUnavailableError(f"{address} is closed; open it again with open_backend()")


def versions_need_commits(namespace: str) -> UnsupportedError:
    """The error for reading a version of a plain namespace."""
    return UnsupportedError(
        f"namespace {namespace!r} is plain: it has no versions; read it without version= and commit_id="
    )


def _raise_wrong_key(keys: Iterable[object]) -> None:
    wrong = next(type(k).__name__ for k in keys if type(k) is not bytes)
    raise TypeError(f"keys must be bytes, got {wrong}; encode text with key.encode()")
