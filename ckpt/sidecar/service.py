"""What a sidecar does with a request: the backend is asked once, and a repeated commit is done once.

No socket is known here. An answer is a sequence of responses; parts of a load are made while earlier ones are
being sent, so that memory does not grow with the namespace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ckpt.contract.backend import Backend, Breaks, CommitsInBlocks, Counts, ScansInBlocks, rows_once
from ckpt.contract.versions import EMPTY
from ckpt.errors import ConfigError, UnsupportedError, VersionNotFoundError
from ckpt.sidecar.counters import Counters
from ckpt.sidecar.frames import (
    ID_BYTES,
    Buffer,
    ResponseStatus,
    encode_committed,
    encode_history,
    encode_names,
    encode_rows_in_all,
    encode_stats,
    row_block,
    row_block_bytes,
)
from ckpt.sidecar.requests import (
    CommitRequest,
    DropRequest,
    GetRequest,
    HistoryRequest,
    LoadRequest,
    NamespacesRequest,
    PingRequest,
    Request,
    StageRequest,
    StatsRequest,
    TruncateRequest,
)
from ckpt.types import Block, CommitId

_LEAST_PART_BYTES = 1 << 12
_MOST_PART_BYTES = 16 << 20
_GET_PART_BYTES = 1 << 20

Response = tuple[ResponseStatus, list[Buffer]]


class Service:
    """Answers the requests of all connections with one backend; its owner closes the backend."""

    def __init__(
        self,
        backend: Backend,
        *,
        max_frame_bytes: int,
        gauges: Callable[[], Mapping[str, float]] = dict,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self.backend = backend
        self.counters = Counters()
        self._gauges = gauges
        self._on_broken = on_broken
        self._room_bytes = max_frame_bytes - ID_BYTES
        # Asked once: to ask whether an object has the methods of a protocol takes longer than many a request.
        self._in_blocks = backend if isinstance(backend, CommitsInBlocks) else None
        self._counting = backend if isinstance(backend, Counts) else None
        self._under_way: dict[tuple[str, str], threading.Lock] = {}
        """Each held by the thread that makes the commit; a lock, because an event takes 5 µs to make."""
        self._told_writes = self._counting.counts().get("durable_writes", 0) if self._counting else 0
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Generator[Response, None, None]:
        """The responses to one request, the last of them DONE; raises what the backend raises."""
        match request:
            case CommitRequest():
                yield ResponseStatus.DONE, encode_committed(self._commit(request), self._durable_writes())
            case LoadRequest():
                yield from self._load(request)
            case GetRequest():
                yield from self._get(request)
            case HistoryRequest():
                history = self.backend.history(request.namespace)
                tip = history.tip.id if history.tip else ""
                yield ResponseStatus.DONE, self._fitting(encode_history(history.commits(), tip))
            case TruncateRequest():
                self.backend.truncate(request.namespace, request.keep_from)
                self.counters.add(truncates=1)
                yield ResponseStatus.DONE, []
            case DropRequest():
                self.backend.drop(request.namespace)
                self.counters.add(drops=1)
                yield ResponseStatus.DONE, []
            case NamespacesRequest():
                names = [n for n in self.backend.namespaces() if n.startswith(request.prefix)]
                yield ResponseStatus.DONE, self._fitting(encode_names(names))
            case StatsRequest():
                yield ResponseStatus.DONE, encode_stats(self.stats())
            case PingRequest():
                yield ResponseStatus.DONE, []
            case StageRequest():
                raise AssertionError("parts of a commit stay with their connection until it is whole")

    def stats(self) -> dict[str, float]:
        """The counts of this sidecar and, if it counts anything, of its backend."""
        stats = {**self.counters.read(), **self._gauges()}
        if self._counting is not None:
            counts = self._counting.counts()
            stats |= {f"backend_{name}": float(count) for name, count in counts.items()}
            if groups := counts.get("durable_writes"):
                stats["group_size"] = stats["commits"] / groups
        return stats

    def _durable_writes(self) -> int:
        """How often the backend made something durable since the last commit was answered.

        Each time is told to one client, so that the sum over all clients is right. A backend that does
        not count makes each commit durable by itself.
        """
        if self._counting is None:
            return 1
        with self._lock:
            now = self._counting.counts().get("durable_writes", 0)
            new, self._told_writes = now - self._told_writes, now
        return new

    def note_error(self) -> None:
        """A request has failed: say so if the backend will fail every write from now on."""
        self.counters.add(errors=1)
        self.ends_if_broken()

    def ends_if_broken(self) -> bool:
        """Whether the backend is of no use until it is opened again; then its owner is told."""
        broken = isinstance(self.backend, Breaks) and self.backend.is_broken
        if broken:
            self._on_broken()
        return broken

    # -- commits ---------------------------------------------------------------------------------

    def _commit(self, request: CommitRequest) -> CommitId:
        began = time.perf_counter()
        with self._turn(request):
            try:
                commit_id = self._add(request)
                repeated = 0
            except (ConfigError, VersionNotFoundError):
                done = self._done_before(request)
                if done is None:
                    raise
                commit_id, repeated = done, 1
        self.counters.add(
            commits=1,
            commits_repeated=repeated,
            commit_rows=len(request.puts) + len(request.deletes),
            commit_bytes=request.puts.total_bytes + sum(map(len, request.deletes)),
            commit_seconds=time.perf_counter() - began,
        )
        return commit_id

    def _add(self, request: CommitRequest) -> CommitId:
        namespace, version, deletes = request.namespace, request.version, request.deletes
        base, commit_id = request.base, request.commit_id
        if self._in_blocks is not None:
            return self._in_blocks.commit_block(
                namespace, version, request.puts, deletes, base=base, commit_id=commit_id
            )
        puts = rows_once(namespace, request.puts)
        return self.backend.commit(namespace, version, puts, deletes, base=base, commit_id=commit_id)

    @contextmanager
    def _turn(self, request: CommitRequest) -> Iterator[None]:
        """Alone with a commit id: a repeated request waits for the first one, which may still be under way.

        A backend may show a commit before it is durable; without this a repeat would be told too early.
        """
        if request.commit_id is None:
            yield
            return
        mine, key = threading.Lock(), (request.namespace, request.commit_id)
        with mine:
            while True:
                with self._lock:
                    other = self._under_way.setdefault(key, mine)
                if other is mine:
                    break
                with other:
                    pass
            try:
                yield
            finally:
                with self._lock:
                    del self._under_way[key]

    def _done_before(self, request: CommitRequest) -> CommitId | None:
        """The id, if the namespace holds this very commit: the client repeats because an answer was lost."""
        if request.commit_id is None:
            return None
        history = self.backend.history(request.namespace)
        if request.commit_id not in history:
            return None
        known = history[request.commit_id]
        bases = {None, known.base or EMPTY}
        # A truncation forgets a floor's base; a request that names one then cannot be contradicted any more.
        is_floor = known.base is None and history.truncated_below > 0
        if known.version != request.version or (request.base not in bases and not is_floor):
            return None
        self.backend.flush()
        return known.id

    # -- reads -----------------------------------------------------------------------------------

    def _load(self, request: LoadRequest) -> Iterator[Response]:
        began = time.perf_counter()
        part_bytes = min(max(request.part_bytes, _LEAST_PART_BYTES), _MOST_PART_BYTES, self._room_bytes)
        rows = sent_bytes = 0
        for block in self._blocks(request, part_bytes):
            yield self._part(block, request.namespace)
            rows += len(block)
            sent_bytes += block.total_bytes
        yield ResponseStatus.DONE, encode_rows_in_all(rows)
        seconds = time.perf_counter() - began
        self.counters.add(loads=1, load_rows=rows, load_bytes=sent_bytes, load_seconds=seconds)

    def _blocks(self, request: LoadRequest, part_bytes: int) -> Iterator[Block]:
        backend, namespace = self.backend, request.namespace
        if isinstance(backend, ScansInBlocks):
            return backend.scan_blocks(
                namespace, version=request.version, commit_id=request.commit_id, block_bytes=part_bytes
            )
        rows = backend.scan(namespace, version=request.version, commit_id=request.commit_id)
        return blocks_of(rows, part_bytes)

    def _get(self, request: GetRequest) -> Iterator[Response]:
        # One question, so that all values are of one commit, whatever others commit or truncate meanwhile.
        found = self.backend.get_many(
            request.namespace, request.keys, version=request.version, commit_id=request.commit_id
        )
        for block in blocks_of(found.items(), min(_GET_PART_BYTES, self._room_bytes)):
            yield self._part(block, request.namespace)
        yield ResponseStatus.DONE, encode_rows_in_all(len(found))
        self.counters.add(gets=1, get_rows=len(found))

    def _part(self, block: Block, namespace: str) -> Response:
        size = row_block_bytes(block)
        if size > self._room_bytes:
            raise UnsupportedError(
                f"namespace {namespace!r} in {self.backend.address} holds a row that fits into no frame "
                f"({size} bytes, at most {self._room_bytes}); read it without the sidecar"
            )
        return ResponseStatus.PART, row_block(block)

    def _fitting(self, body: list[Buffer]) -> list[Buffer]:
        size = sum(map(len, body))
        if size > self._room_bytes:
            raise UnsupportedError(
                f"the answer is {size} bytes long and a frame at most {self._room_bytes}; "
                "truncate old versions, or ask with a longer prefix"
            )
        return body


def blocks_of(rows: Iterable[tuple[bytes, bytes]], block_bytes: int) -> Iterator[Block]:
    """The rows in blocks that are at most that many bytes longer than one row.

    Examples
    --------
    >>> [list(block.rows()) for block in blocks_of([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], 20)]
    [[(b'a', b'1'), (b'b', b'2')], [(b'c', b'3')]]
    """
    held: list[tuple[bytes, bytes]] = []
    size = 0
    for row in rows:
        row_bytes = len(row[0]) + len(row[1]) + 8
        if held and size + row_bytes > block_bytes:
            yield Block.of(held)
            held, size = [], 0
        held.append(row)
        size += row_bytes
    if held:
        yield Block.of(held)
