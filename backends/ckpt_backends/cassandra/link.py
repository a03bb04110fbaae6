"""One session with a cluster: every request ends in bounded time, with rows or with one CkptError.

Statements are prepared when the store is opened. Values are passed as the bytes that Cassandra stores
(`text`, `integer`, `bigint`, `many` make them): binding a thousand rows through the driver's types costs as
much as sending them.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement, tuple_factory

from ckpt_backends.cassandra.errors import DRIVER_ERRORS, translated
from ckpt_backends.cassandra.options import CassandraOptions, CassandraTarget
from ckpt_backends.cells.access import tls_context

_AT_ONCE = 32
"""Requests of one call that are under way together."""
_RECONNECT_S = 0.5
_SLOWEST_HEARTBEAT_S = 5.0

Values = Sequence[bytes | None]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """One statement or one batch of statements, all of one partition."""

    statements: Sequence[tuple[str, Iterable[Values]]]
    level: int
    timestamp: int | None = None
    """The time that its cells carry, where their order must not depend on any clock."""
    page: int | None = None
    """How many rows to a page; None for all at once."""

    @classmethod
    def one(
        cls, cql: str, *values: bytes | None, level: int, timestamp: int | None = None
    ) -> PartitionRequest:
        """A single statement."""
        return cls(((cql, (values,)),), level, timestamp)


class _Timestamps(threading.local):
    """What the driver asks for the time of a request, in the thread that sends it."""

    chosen: int | None = None

    def __call__(self) -> int:
        return self.chosen if self.chosen is not None else time.time_ns() // 1000


class CassandraLink:
    """Sends requests and waits for answers; thread-safe. Made by `connect`."""

    def __init__(
        self, cluster: Cluster, session: Session, target: CassandraTarget, options: CassandraOptions
    ):
        self.at = target.at
        self.keyspace = f'"{target.keyspace}"'
        """The keyspace as it stands in statements."""
        local = options.serial_consistency == "local_serial"
        self.rows = int(ConsistencyLevel.name_to_value[options.consistency.name])
        """The consistency of rows and cells."""
        self.quorum = int(ConsistencyLevel.LOCAL_QUORUM if local else ConsistencyLevel.QUORUM)
        """The consistency of what decides; it meets what a condition has written."""
        self.serial = int(ConsistencyLevel.LOCAL_SERIAL if local else ConsistencyLevel.SERIAL)
        self._cluster, self._session = cluster, session
        self._prepared: dict[str, PreparedStatement] = {}

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, cql: str, *values: bytes | None, level: int, timestamp: int | None = None) -> list[Row]:
        """All rows of one statement."""
        return next(self.answers([PartitionRequest.one(cql, *values, level=level, timestamp=timestamp)]))

    def applied(self, *statements: tuple[str, Values]) -> tuple[bool, Row]:
        """Whether the condition of a conditional batch held, and the first row of the answer."""
        batch = PartitionRequest([(cql, (values,)) for cql, values in statements], self.quorum)
        rows = next(self.answers([batch]))
        return bool(rows[0][0]), rows[0][1:]

    def answers(self, requests: Iterable[PartitionRequest]) -> Iterator[list[Row]]:
        """The rows of each request, in order, many under way at once; the first are sent before this returns.

        The first failure is raised once all have ended.
        """
        todo = iter(requests)
        waiting: deque[Any] = deque()
        failure = self._fill(waiting, todo)
        return self._answers(waiting, todo, failure)

    def _fill(self, waiting: deque[Any], todo: Iterator[PartitionRequest]) -> Exception | None:
        try:
            while len(waiting) < _AT_ONCE and (request := next(todo, None)) is not None:
                waiting.append(self.send(request))
        except DRIVER_ERRORS as error:
            return error
        return None

    def _answers(
        self, waiting: deque[Any], todo: Iterator[PartitionRequest], failure: Exception | None
    ) -> Iterator[list[Row]]:
        while waiting:
            try:
                rows = waiting.popleft().result().current_rows
            except DRIVER_ERRORS as error:
                failure = failure or error
                continue
            if failure is None:
                yield rows
                failure = self._fill(waiting, todo)
        if failure is not None:
            raise translated(failure, self.at) from failure

    def done(self, requests: Iterable[PartitionRequest]) -> None:
        """Return when every request has succeeded."""
        for _ in self.answers(requests):
            pass

    def post(self, request: PartitionRequest) -> None:
        """Send a request without waiting for its answer; it may come to nothing."""
        with contextlib.suppress(*DRIVER_ERRORS):
            self.send(request)

    def pages(self, requests: Sequence[PartitionRequest]) -> list[Iterator[list[Row]]]:
        """For each request its pages; the first page of each is asked for at once."""
        try:
            return [self._pages(future) for future in [self.send(request) for request in requests]]
        except DRIVER_ERRORS as error:
            raise translated(error, self.at) from error

    def _pages(self, future: Any) -> Iterator[list[Row]]:
        while True:
            try:
                yield future.result().current_rows
                if not future.has_more_pages:
                    return
                future.start_fetching_next_page()
            except DRIVER_ERRORS as error:
                raise translated(error, self.at) from error

    def send(self, request: PartitionRequest) -> Any:
        """Begin a request; what it returns is the driver's own future."""
        statement = self._statement(request)
        statement.consistency_level, statement.serial_consistency_level = request.level, self.serial
        statement.fetch_size = request.page
        stamps = self._cluster.timestamp_generator
        stamps.chosen = request.timestamp
        try:
            return self._session.execute_async(statement)
        finally:
            stamps.chosen = None

    def _statement(self, request: PartitionRequest) -> Any:
        """What the driver sends: the statement itself, or a batch if there are several."""
        batch = BatchStatement(BatchType.UNLOGGED)
        bound = None
        for cql, rows in request.statements:
            bound = BoundStatement(self._prepared[cql])
            for values in rows:
                bound.values = values
                batch.add(bound)
        return bound if len(batch) == 1 else batch

    def prepare(self, statements: Iterable[str]) -> None:
        """Make statements known to the cluster; `{}` in them stands for the keyspace."""
        try:
            for cql in statements:
                self._prepared[cql] = self._session.prepare(cql.replace("{}", self.keyspace))
        except DRIVER_ERRORS as error:
            raise translated(error, self.at) from error

    # -- the cluster -----------------------------------------------------------------------------

    def run(self, cql: str) -> list[Row]:
        """Carry out a statement as it stands; after a change of the schema all nodes know it."""
        try:
            return list(self._session.execute(cql.replace("{}", self.keyspace)).current_rows)
        except DRIVER_ERRORS as error:
            raise translated(error, self.at) from error

    def nodes(self) -> dict[str, int]:
        """How many nodes each data centre has."""
        counted: dict[str, int] = {}
        for host in self._cluster.metadata.all_hosts():
            counted[host.datacenter] = counted.get(host.datacenter, 0) + 1
        return counted

    def release(self) -> str:
        """The release of Cassandra that a node runs."""
        versions = {host.release_version for host in self._cluster.metadata.all_hosts()}
        return ", ".join(sorted(str(version) for version in versions))

    def close(self) -> None:
        """End all connections; idempotent."""
        self._cluster.shutdown()


def connect(target: CassandraTarget, options: CassandraOptions) -> CassandraLink:
    """A link to the cluster; NotNowError while no host answers."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(options.local_dc or "")),
        retry_policy=FallthroughRetryPolicy(),
        request_timeout=options.timeout_s,
        row_factory=tuple_factory,
    )
    auth = PlainTextAuthProvider(target.username, target.password or "") if target.username else None
    try:
        cluster = Cluster(
            contact_points=list(target.hosts),
            port=target.hosts[0][1],
            protocol_version=5,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(_RECONNECT_S, max_attempts=None),
            auth_provider=auth,
            ssl_context=tls_context(options, check_host=options.tls_check_host),
            # Without it the kernel holds back the end of a batch until its beginning was confirmed.
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            connect_timeout=options.timeout_s,
            control_connection_timeout=options.timeout_s,
            max_schema_agreement_wait=options.timeout_s,
            idle_heartbeat_interval=min(_SLOWEST_HEARTBEAT_S, options.timeout_s),
            idle_heartbeat_timeout=options.timeout_s,
            timestamp_generator=_Timestamps(),
        )
    except DRIVER_ERRORS as error:
        # Names of hosts are resolved here.
        raise translated(error, target.at) from error
    try:
        return CassandraLink(cluster, cluster.connect(), target, options)
    except DRIVER_ERRORS as error:
        cluster.shutdown()
        raise translated(error, target.at) from error


def text(value: str) -> bytes:
    """A `text`."""
    return value.encode()


def integer(value: int) -> bytes:
    """An `int`."""
    return value.to_bytes(4, "big", signed=True)


def bigint(value: int) -> bytes:
    """A `bigint`."""
    return value.to_bytes(8, "big", signed=True)


def many(values: Sequence[bytes]) -> bytes:
    """A `list<blob>`."""
    pack = struct.Struct(">i").pack
    return b"".join((pack(len(values)), *(part for value in values for part in (pack(len(value)), value))))
