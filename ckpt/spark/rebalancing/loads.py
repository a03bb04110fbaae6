"""What the batches of a query cost, by partition and by key, as its session counted it.

The session that runs a routed query counts the rows that each exchange gets (`KeyCounts.scala`) and writes
them down after each batch, as version `batch + 1` of the namespace `rebalance/<query>/loads`. A row of it is
`loads/<group>` (see `tables`) and holds, all numbers little endian:

```
offset  bytes  field
     0      4  magic        "ckbl"
     4      2  format       1
     6      8  batch
    14      8  table        version of the routing table that placed the keys
    22      4  partitions   p
    26      4  keys         k
    30      8  error        by how many rows a count may be wrong; a key that is not listed has no more
    38    8*p  rows of each partition, exactly
          4*k  keys         Spark's hash, ascending, unsigned
          8*k  rows of each key
          2*k  lengths of names in bytes; 0: not known
               names, UTF-8
```
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ckpt.contract.backend import Backend
from ckpt.errors import CorruptRecordError
from ckpt.rebalance import Loads, RoutingTable
from ckpt.types import cut

_HEAD = struct.Struct("<4sHQQIIQ")
_MAGIC, _FORMAT = b"ckbl", 1


@dataclass(frozen=True, eq=False)
class BatchLoads:
    """The rows of one batch: of each partition, and of each heavy key."""

    batch: int
    table_version: int
    error: int
    partitions: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]
    names: list[str | None]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The loads that these bytes are; CorruptRecordError if they are none."""
        if len(data) < _HEAD.size:
            raise CorruptRecordError(f"{len(data)} bytes are no loads of a batch")
        magic, form, batch, table, p, k, error = _HEAD.unpack_from(data)
        if magic != _MAGIC or form != _FORMAT:
            raise CorruptRecordError(f"these are no loads of a batch in format {_FORMAT}")
        ends = np.cumsum([_HEAD.size, 8 * p, 4 * k, 8 * k, 2 * k])
        if ends[-1] > len(data):
            raise CorruptRecordError("the loads of a batch are shorter than they say")
        columns = [data[start:end] for start, end in itertools.pairwise(ends.tolist())]
        lengths = np.frombuffer(columns[3], "<u2")
        if ends[-1] + int(lengths.sum()) != len(data):
            raise CorruptRecordError("the loads of a batch have names of other lengths than they say")
        return cls(
            batch,
            table,
            error,
            np.frombuffer(columns[0], "<i8"),
            np.frombuffer(columns[1], "<u4").astype(np.uint64),
            np.frombuffer(columns[2], "<i8"),
            [raw.decode() or None for raw in cut(memoryview(data)[ends[-1] :], lengths)],
        )

    def loads(self, table: RoutingTable | None) -> Loads:
        """The same for a planner, under the table that placed the keys; what keys hold is not counted yet."""
        placed = RoutingTable(len(self.partitions)) if table is None else table
        instance = placed.place(self.keys)
        listed = np.bincount(instance, weights=self.rows, minlength=len(self.partitions))
        called = [
            str(key) if name is None else name
            for key, name in zip(self.keys.tolist(), self.names, strict=True)
        ]
        return Loads(
            self.keys,
            self.rows,
            np.zeros(len(self.keys)),
            instance,
            rows=self.rows,
            names=called,
            rest=np.maximum(self.partitions - listed, 0),
        )


class QueryLoads:
    """What was counted in the batches of one query."""

    def __init__(self, backend: Backend, query: str) -> None:
        self.namespace = f"rebalance/{query}/loads"
        self._backend = backend

    def batches(self) -> list[int]:
        """The batches that were counted and are kept, in order."""
        return sorted({commit.version - 1 for commit in self._backend.history(self.namespace).commits()})

    def read(self, group: int, batch: int | None = None) -> BatchLoads | None:
        """What a group's exchanges got in one batch, by default the newest; None if that was not counted."""
        key = b"loads/%d" % group
        version = None if batch is None else batch + 1
        found = self._backend.get_many(self.namespace, [key], version=version)
        return BatchLoads.from_bytes(found[key]) if found else None
