"""Requests to the buckets of a namespace: each to one partition, each of bounded size, answers in order of
keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TypeVar

from ckpt_backends.cassandra.keys import LONGEST, after_prefix, bucket_of, is_shortened
from ckpt_backends.cassandra.ledger import Names
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, Row, Values, integer, many
from ckpt_backends.cassandra.schema import Cql

RestT = TypeVar("RestT")

_BATCH_BYTES = 1 << 20
"""The largest batch: a server refuses one of more than half a segment of its commit log."""
_BATCH_ROWS = 5000
_KEYS_TO_A_REQUEST = 200
_ROWS_TO_A_PAGE = 200


class Buckets:
    """Spreads what is asked over the partitions of a namespace, and puts answers together."""

    def __init__(self, link: CassandraLink, names: Names) -> None:
        self._link, self._names = link, names

    def partitions(self, namespace: str) -> list[tuple[bytes, bytes, bytes]]:
        """The partition key of each bucket; none if the namespace is unknown."""
        place = self._names.place(namespace)
        return [(*place, integer(bucket)) for bucket in range(self._names.buckets(namespace))]

    def grouped(self, namespace: str, stored: Iterable[bytes]) -> Iterator[tuple[Values, list[bytes]]]:
        """(partition key, keys) for requests that name keys."""
        partitions = self.partitions(namespace)
        if not partitions:
            return
        groups: list[list[bytes]] = [[] for _ in partitions]
        count = len(partitions)
        for key in stored:
            groups[bucket_of(key, count)].append(key)
        for partition, group in zip(partitions, groups, strict=True):
            for start in range(0, len(group), _KEYS_TO_A_REQUEST):
                yield partition, group[start : start + _KEYS_TO_A_REQUEST]

    def asking(
        self, namespace: str, cql: Cql, stored: Iterable[bytes], *more: bytes, level: int | None = None
    ) -> Iterator[PartitionRequest]:
        """Requests for the rows of those keys; `more` follows the keys in the statement."""
        level = self._link.rows if level is None else level
        for partition, keys in self.grouped(namespace, stored):
            yield PartitionRequest.one(cql, *partition, many(keys), *more, level=level)

    def named(
        self, namespace: str, cql: Cql, stored: Iterable[bytes], level: int | None = None
    ) -> Iterator[Row]:
        """The rows of those keys that have any."""
        return chain.from_iterable(self._link.answers(self.asking(namespace, cql, stored, level=level)))

    def scan(self, namespace: str, every: Cql, below: Cql, prefix: bytes) -> Iterator[Row]:
        """The rows with that prefix of their key, by stored key, page by page from all buckets at once."""
        start = prefix[:LONGEST]
        end = after_prefix(start)
        bounds = (start,) if end is None else (start, end)
        requests = [
            PartitionRequest(
                ((every if end is None else below, ((*partition, *bounds),)),),
                self._link.rows,
                page=_ROWS_TO_A_PAGE,
            )
            for partition in self.partitions(namespace)
        ]
        streams = [chain.from_iterable(pages) for pages in self._link.pages(requests)]
        return heapq.merge(*streams, key=itemgetter(0))


def sized(rows: Sequence[tuple[bytes, Values]]) -> Iterator[list[Values]]:
    """Batches of bounded size out of (payload, values) of one partition; the payload is what weighs."""
    start = weight = 0
    for at, (payload, _) in enumerate(rows):
        if at > start and (weight + len(payload) > _BATCH_BYTES or at - start >= _BATCH_ROWS):
            yield [values for _, values in rows[start:at]]
            start, weight = at, 0
        weight += len(payload)
    if start < len(rows):
        yield [values for _, values in rows[start:]]


def in_order(rows: Iterable[tuple[bytes, bytes, RestT]]) -> Iterator[tuple[bytes, bytes, RestT]]:
    """(stored key, whole key, …) by whole key, out of those by stored key: very long ones change places."""
    for beginning, group in groupby(rows, key=lambda row: row[0][:LONGEST] if is_shortened(row[0]) else None):
        if beginning is None:
            yield from group
        else:
            yield from sorted(group, key=itemgetter(1))
