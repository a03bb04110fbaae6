"""Plain rows: the last write wins, and nothing that was written under a lower fence is seen once one is up.

How a write keeps that is told in `fences`. A deleted key is a row that says so and expires after
`deleted_s`: a scan passes over such rows like over any other.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ckpt_backends.cassandra.buckets import Buckets, in_order, sized
from ckpt_backends.cassandra.fences import STEP, AnnouncedWrite, Fences
from ckpt_backends.cassandra.keys import (
    GONE,
    LONGEST,
    Intent,
    Parts,
    bucket_of,
    pack_value,
    stored_key,
    unpack_value,
)
from ckpt_backends.cassandra.ledger import Names
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, Values, bigint, integer
from ckpt_backends.cassandra.parts import INLINE_BYTES, PartStore, require_size
from ckpt_backends.cassandra.schema import Cql
from ckpt_backends.cells import NotNowError

_ANNOUNCED_BYTES = 512 << 10
_LONGEST_TTL_S = 365 * 86_400
"""What lives longer is not removed by Cassandra, which takes no time beyond 2038; readers skip it then."""
_TTL_SLACK_S, _TTL_SPREAD_S = 60, 3600
"""Cassandra removes an expired row by its own clock; a reader's may be behind. And not all at once."""
_TRIES = STEP // 64
_MOST_FENCES, _MOST_TRIES = 63, _TRIES - 3


class CassandraRows:
    """The rows of plain namespaces."""

    def __init__(
        self,
        link: CassandraLink,
        names: Names,
        fences: Fences,
        buckets: Buckets,
        parts: PartStore,
        deleted_s: float,
    ) -> None:
        self._link, self._names, self._fences = link, names, fences
        self._buckets, self._parts = buckets, parts
        self._deleted_s = math.ceil(deleted_s)
        self._settled: dict[str, tuple[int, frozenset[bytes]]] = {}
        """When the last fence of this handle went up, and the keys of writes that may still arrive."""
        self._tries: dict[tuple[str, int], int] = {}
        self._marked: set[str] = set()
        self._lock = threading.Lock()

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
    ) -> bool:
        """Write rows if that fence is up; False if another is."""
        for key, value in puts.items():
            if len(value) > INLINE_BYTES:
                require_size(namespace, key, value)
        lasts_s = 0
        if ttl_s is not None and ttl_s <= _LONGEST_TTL_S:
            lasts_s = math.ceil(ttl_s) + _TTL_SLACK_S + random.randrange(_TTL_SPREAD_S)
        changes: dict[bytes, bytes | None] = {}
        weight = 0
        gone: Iterable[tuple[bytes, bytes | None]] = ((key, None) for key in deletes)
        for key, change in chain(puts.items(), gone):
            changes[key] = change
            weight += len(key) + 4
            if weight > _ANNOUNCED_BYTES:
                if not self._write(namespace, changes, lasts_s, fence):
                    return False
                changes, weight = {}, 0
        return not changes or self._write(namespace, changes, lasts_s, fence)

    def _write(self, namespace: str, changes: dict[bytes, bytes | None], lasts_s: int, fence: int) -> bool:
        stored = tuple(changes) if max(map(len, changes)) <= LONGEST else tuple(map(stored_key, changes))
        write = self._fences.begin(namespace, fence, stored)
        # Nothing is sent of these before the write is admitted; they are made while it is announced.
        batches = self._batches(namespace, stored, changes, lasts_s)
        if not self._fences.is_admitted(write):
            return False
        try:
            large = {k: v for k, v in changes.items() if v is not None and len(v) > INLINE_BYTES}
            superseded = self._in_parts(namespace, stored) if write.big else []
            requests = [
                PartitionRequest(((statement, rows),), self._link.rows, write.time)
                for statement, rows in batches
            ]
            self._link.done(chain(requests, self._write_parts(write, large, lasts_s)) if large else requests)
            if not self._fences.finish(write):
                return False
        except BaseException:
            self._fences.doubt(write)
            raise
        if superseded or large:
            # The parts of this very write have its time, those of earlier values an earlier one.
            doomed = {*superseded, *map(stored_key, large)}
            self._parts.remove(namespace, ((key, write.time - 1) for key in doomed))
        return True

    def _batches(
        self, namespace: str, stored: tuple[bytes, ...], changes: Mapping[bytes, bytes | None], lasts_s: int
    ) -> list[tuple[Cql, list[Values]]]:
        """What to send for changes, but for values that go into parts."""
        partitions = self._buckets.partitions(namespace)
        count = len(partitions)
        puts: list[list[tuple[bytes, Values]]] = [[] for _ in partitions]
        gone: list[list[tuple[bytes, Values]]] = [[] for _ in partitions]
        for_s, forgotten_s = integer(lasts_s), integer(self._forgotten_s())
        for at, (key, value) in zip(stored, changes.items(), strict=True):
            bucket = bucket_of(at, count)
            if value is None:
                gone[bucket].append((at, (forgotten_s, GONE, *partitions[bucket], at)))
            elif len(value) <= INLINE_BYTES:
                raw = pack_value(key, value)
                values = (raw, *partitions[bucket], at)
                puts[bucket].append((raw, (for_s, *values) if lasts_s else values))
        statement = Cql.PUT_FOR if lasts_s else Cql.PUT
        return [
            *((statement, rows) for group in puts for rows in sized(group)),
            *((Cql.PUT_FOR, rows) for group in gone for rows in sized(group)),
        ]

    def _forgotten_s(self) -> int:
        """How long a deleted row is kept: rows that were deleted together do not expire together."""
        return self._deleted_s + random.randrange(self._deleted_s)

    def _write_parts(
        self, write: AnnouncedWrite, large: Mapping[bytes, bytes], lasts_s: int
    ) -> Iterator[PartitionRequest]:
        """Durably write each large value in parts, and then what names them."""
        if write.namespace not in self._marked:
            place = self._names.place(write.namespace)
            self._link.ask(Cql.MARK_BIG_ROWS, *place, level=self._link.quorum)
            self._marked.add(write.namespace)
        partitions = self._buckets.partitions(write.namespace)
        for key, value in large.items():
            parts = self._parts.write(write.namespace, key, value, timestamp=write.time, ttl_s=lasts_s)
            at = stored_key(key)
            partition = partitions[bucket_of(at, len(partitions))]
            values = (integer(lasts_s), pack_value(key, parts), *partition, at)
            yield PartitionRequest.one(Cql.PUT_FOR, *values, level=self._link.rows, timestamp=write.time)

    def _in_parts(self, namespace: str, stored: Sequence[bytes]) -> list[bytes]:
        """Those of the keys whose values are in parts now."""
        return [
            key
            for key, raw in self._buckets.named(namespace, Cql.GET, stored)
            if isinstance(unpack_value(key, raw)[1], Parts)
        ]

    # -- reading ---------------------------------------------------------------------------------

    def read(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows of those keys that exist."""
        found: dict[bytes, bytes] = {}
        for stored, raw in self._buckets.named(namespace, Cql.GET, map(stored_key, keys)):
            key, value = unpack_value(stored, raw)
            if isinstance(value, Parts):
                value = self._whole(namespace, stored, value)
            if value is not None:
                found[key] = value
        return found

    def _whole(self, namespace: str, stored: bytes, parts: Parts) -> bytes | None:
        """The value that a row names; what the row says now, if its parts are gone."""
        whole = self._parts.read(namespace, stored, parts)
        if whole is not None:
            return whole
        for key, raw in self._buckets.named(namespace, Cql.GET, [stored]):
            _, value = unpack_value(key, raw)
            if not isinstance(value, Parts):
                return value
            # Nothing is no value that was ever written: it is taken for what it is, damage.
            return self._parts.read(namespace, stored, value) or b""
        return None

    def scan(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row whose key starts with `prefix`, by key."""
        rows = self._buckets.scan(namespace, Cql.SCAN, Cql.SCAN_BELOW, prefix)
        whole = ((stored, unpack_value(stored, raw)[0], raw) for stored, raw in rows)
        for stored, key, raw in in_order(whole):
            if not key.startswith(prefix):
                continue
            _, value = unpack_value(stored, raw)
            if isinstance(value, Parts):
                value = self._whole(namespace, stored, value)
            if value is not None:
                yield key, value

    # -- owners ----------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int) -> None:
        """Put a fence up, and make sure that nothing announced under a lower one is seen from now on."""
        raised = self._fences.put_up(namespace, number)
        late = {slot: intent for slot, intent in raised.intents.items() if intent.fence < number}
        if late and raised.fence > number:
            raise NotNowError(f"namespace {namespace!r} of {self._link.at} is being claimed by another owner")
        keys = self._outdate(namespace, number, late) if late else frozenset()
        self._fences.settle(namespace, number, ((slot, intent.time) for slot, intent in late.items()))
        with self._lock:
            self._settled[namespace] = (raised.mark, keys)

    def _outdate(self, namespace: str, number: int, late: Mapping[bytes, Intent]) -> frozenset[bytes]:
        """Write announced keys again as they are, at a time between that of the write and all later ones.

        A higher fence writes at a higher time, and so does a second try: what is left of the first may still
        arrive too.
        """
        with self._lock:
            tries = self._tries[namespace, number] = self._tries.get((namespace, number), 0) + 1
        times: dict[bytes, int] = {}
        for intent in late.values():
            offset = min(number - intent.fence, _MOST_FENCES) * _TRIES + min(tries, _MOST_TRIES)
            for key in intent.keys:
                times[key] = max(times.get(key, 0), intent.time + offset)
        level = self._link.quorum
        found = {
            key: (raw, ttl_s or 0)
            for key, raw, ttl_s in self._buckets.named(namespace, Cql.GET_WITH_TTL, times, level=level)
        }
        requests: list[PartitionRequest] = []
        for partition, keys in self._buckets.grouped(namespace, times):
            rows: list[tuple[bytes, Values]] = []
            for key in keys:
                raw, ttl_s = found.get(key, (GONE, self._forgotten_s()))
                rows.append((raw, (integer(ttl_s), bigint(times[key]), raw, *partition, key)))
            requests += [PartitionRequest(((Cql.PUT_AT, group),), level) for group in sized(rows)]
        self._link.done(requests)
        return frozenset(times)

    def clear(self, namespace: str) -> None:
        """Remove every row that was written before the fence went up: one range of each partition."""
        with self._lock:
            settled = self._settled.get(namespace)
        mark, late = settled or (self._fences.raised(namespace).mark, frozenset())
        if not mark:
            return
        # Above everything announced before the fence, below everything after it.
        before, at = mark + STEP - 2, mark + STEP - 1
        level = self._link.rows
        if self._fences.look(namespace).big_rows:
            rows = self._buckets.scan(namespace, Cql.SCAN, Cql.SCAN_BELOW, b"")
            large = ((key, before) for key, raw in rows if isinstance(unpack_value(key, raw)[1], Parts))
            self._parts.remove(namespace, large)
        self._link.done(
            PartitionRequest.one(Cql.CLEAR, bigint(before), *partition, level=level)
            for partition in self._buckets.partitions(namespace)
        )
        gone_s = integer(self._forgotten_s())
        for partition, keys in self._buckets.grouped(namespace, late):
            again = [(gone_s, bigint(at), GONE, *partition, key) for key in keys]
            self._link.done([PartitionRequest(((Cql.PUT_AT, again),), level)])
