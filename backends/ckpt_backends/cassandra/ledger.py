"""Namespaces, ledgers and stamps: whatever two writers must not both have is decided by a condition.

Each is one light-weight transaction of one partition. A transaction whose outcome is unknown may be
repeated: a second one first completes what the first has left, and then finds its condition no longer true.
"""

from __future__ import annotations

import threading

from ckpt_backends.cassandra.link import CassandraLink, bigint, integer, text
from ckpt_backends.cassandra.schema import Cql

_STAMPS_AT_ONCE = 32


class Names:
    """The namespaces of a store, and over how many buckets each is spread: fixed when it is registered."""

    def __init__(self, link: CassandraLink, prefix: str, buckets: int) -> None:
        self._link, self._prefix, self._wanted = link, text(prefix), buckets
        self._buckets: dict[str, int] = {}

    def place(self, namespace: str) -> tuple[bytes, bytes]:
        """What every partition key of the namespace begins with."""
        return self._prefix, text(namespace)

    def all(self) -> list[str]:
        """Every namespace that was ever registered."""
        rows = self._link.ask(Cql.LIST_NAMES, self._prefix, level=self._link.quorum)
        self._buckets.update(rows)
        return [row[0] for row in rows]

    def buckets(self, namespace: str) -> int:
        """The number of buckets; 0 for a namespace that was never registered."""
        if known := self._buckets.get(namespace):
            return known
        rows = self._link.ask(Cql.READ_NAME, *self.place(namespace), level=self._link.quorum)
        if not rows or rows[0][0] is None:
            return 0
        self._buckets[namespace] = int(rows[0][0])
        return self._buckets[namespace]

    def register(self, namespace: str) -> None:
        """Durably note the namespace; the first handle to come decides how many buckets it has."""
        if not self.buckets(namespace):
            self._link.applied((Cql.ADD_NAME, (*self.place(namespace), integer(self._wanted))))
            self.buckets(namespace)


class CassandraLedgers:
    """The numbered records of namespaces, and stamps that are given out once."""

    def __init__(self, link: CassandraLink, names: Names) -> None:
        self._link, self._names = link, names
        self._stamps: dict[str, tuple[int, int]] = {}
        """Stamps that this handle has reserved: the last one used, and the last one that is its own."""
        self._lock = threading.Lock()

    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        """The records above a number; a serial read completes what another writer has left half done."""
        place = self._names.place(namespace)
        rows = self._link.ask(Cql.LOAD, *place, bigint(after), level=self._link.serial)
        return [(int(number), record) for number, record in rows]

    def append(self, namespace: str, number: int, record: bytes) -> bool:
        """Add the next record, and say whether it was the next."""
        place = self._names.place(namespace)
        before = bigint(number - 1) if number > 1 else None
        applied, _ = self._link.applied(
            (Cql.MOVE_HEAD, (bigint(number), *place, before)),
            (Cql.ADD_RECORD, (*place, bigint(number), record)),
        )
        return applied

    def forget(self, namespace: str, below: int) -> None:
        """Remove the records with lower numbers. Their column is written with conditions, and so removed."""
        self._link.ask(Cql.FORGET, *self._names.place(namespace), bigint(below), level=self._link.quorum)

    def new_stamp(self, namespace: str, above: int) -> int:
        """A stamp above `above`, out of those that this handle has reserved."""
        with self._lock:
            used, last = self._stamps.get(namespace, (0, 0))
            stamp = max(used, above) + 1
            if stamp > last:
                first, last = self._reserve(namespace, above)
                stamp = first
            self._stamps[namespace] = (stamp, last)
            return stamp

    def _reserve(self, namespace: str, above: int) -> tuple[int, int]:
        place = self._names.place(namespace)
        rows = self._link.ask(Cql.READ_STAMPS, *place, level=self._link.quorum)
        taken = rows[0][0] if rows else None
        while True:
            first = max(taken or 0, above) + 1
            last = first + _STAMPS_AT_ONCE - 1
            expected = None if taken is None else bigint(taken)
            applied, actual = self._link.applied((Cql.MOVE_STAMPS, (bigint(last), *place, expected)))
            if applied:
                return first, last
            taken = actual[-1] if actual else None
