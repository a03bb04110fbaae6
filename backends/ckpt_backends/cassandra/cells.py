"""Cells of versioned namespaces: one row per key and stamp, newest first, written with the stamp as its time.

So everything up to a stamp is removed by one statement for a key, or for a whole partition, and a cell that
arrives afterwards is removed with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ckpt_backends.cassandra.buckets import Buckets, in_order, sized
from ckpt_backends.cassandra.fences import Fences
from ckpt_backends.cassandra.keys import Parts, bucket_of, pack_value, stored_key, unpack_value
from ckpt_backends.cassandra.ledger import Names
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, Values, bigint
from ckpt_backends.cassandra.parts import INLINE_BYTES, PartStore, require_size
from ckpt_backends.cassandra.schema import Cql


class CassandraCells:
    """The cells of versioned namespaces."""

    def __init__(
        self, link: CassandraLink, names: Names, fences: Fences, buckets: Buckets, parts: PartStore
    ) -> None:
        self._link, self._names, self._fences = link, names, fences
        self._buckets, self._parts = buckets, parts
        self._marked: set[str] = set()

    def write(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        """Durably write one cell per key."""
        partitions = self._buckets.partitions(namespace)
        rows: list[list[tuple[bytes, Values]]] = [[] for _ in partitions]
        at = bigint(stamp)
        for key, value in cells.items():
            stored = stored_key(key)
            raw = pack_value(
                key, value if len(value) <= INLINE_BYTES else self._split(namespace, stamp, key, value)
            )
            bucket = bucket_of(stored, len(partitions))
            rows[bucket].append((raw, (raw, *partitions[bucket], stored, at)))
        self._link.done(
            PartitionRequest(((Cql.PUT_CELL, batch),), self._link.rows, stamp)
            for group in rows
            for batch in sized(group)
        )

    def _split(self, namespace: str, stamp: int, key: bytes, value: bytes) -> Parts:
        require_size(namespace, key, value)
        if namespace not in self._marked:
            self._link.ask(Cql.MARK_BIG_CELLS, *self._names.place(namespace), level=self._link.quorum)
            self._marked.add(namespace)
        return self._parts.write(namespace, key, value, timestamp=stamp)

    def newest(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        """Of each key that has one, the newest cell at or below its bound."""
        by_bound: defaultdict[int, list[bytes]] = defaultdict(list)
        for key, bound in bounds.items():
            by_bound[bound].append(stored_key(key))
        requests = (
            request
            for bound, stored_keys in by_bound.items()
            for request in self._buckets.asking(namespace, Cql.NEWEST, stored_keys, bigint(bound))
        )
        found: dict[bytes, tuple[int, bytes]] = {}
        for rows in self._link.answers(requests):
            for stored, stamp, raw in rows:
                key, value = unpack_value(stored, raw)
                found[key] = stamp, self._whole(namespace, stored, value)
        return found

    def scan(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        """Every cell at or below a stamp, by key, newest first."""
        rows = self._buckets.scan(namespace, Cql.SCAN_CELLS, Cql.SCAN_CELLS_BELOW, prefix)
        whole = (
            (stored, unpack_value(stored, raw)[0], (stamp, raw))
            for stored, stamp, raw in rows
            if stamp <= bound
        )
        for stored, key, (stamp, raw) in in_order(whole):
            if key.startswith(prefix):
                yield key, stamp, self._whole(namespace, stored, unpack_value(stored, raw)[1])

    def _whole(self, namespace: str, stored: bytes, value: bytes | Parts | None) -> bytes:
        if isinstance(value, Parts):
            # Nothing is no cell that was ever written: it is taken for what it is, damage.
            return self._parts.read(namespace, stored, value) or b""
        return value or b""

    def remove(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        """Of each key, remove the cells up to a stamp."""
        stamps = {stored_key(key): stamp for key, stamp in up_to.items()}
        requests: list[PartitionRequest] = []
        for partition, keys in self._buckets.grouped(namespace, stamps):
            doomed = [(bigint(stamps[key]), *partition, key) for key in keys]
            requests.append(PartitionRequest(((Cql.REMOVE, doomed),), self._link.rows))
        self._link.done(requests)
        if self._fences.look(namespace).big_cells:
            self._parts.remove(namespace, stamps.items())

    def clear(self, namespace: str, up_to: int) -> None:
        """Remove every cell up to a stamp: one statement for each partition."""
        if self._fences.look(namespace).big_cells:
            rows = self._buckets.scan(namespace, Cql.SCAN_CELLS, Cql.SCAN_CELLS_BELOW, b"")
            large = (
                (key, up_to)
                for key, stamp, raw in rows
                if stamp <= up_to and isinstance(unpack_value(key, raw)[1], Parts)
            )
            self._parts.remove(namespace, large)
        self._link.done(
            PartitionRequest.one(Cql.CLEAR_CELLS, bigint(up_to), *partition, level=self._link.rows)
            for partition in self._buckets.partitions(namespace)
        )
