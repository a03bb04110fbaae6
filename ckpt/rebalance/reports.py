"""What a task says about the keys that it processed, as documented bytes. Scala writes, Python reads them.

All numbers little endian, framed and sealed as `wire` draws it (magic `ckrl`, format 1):

```
u64        batch            in which it was counted
u64        table version    by which rows were routed in that batch
u32        instance         that processed them
u32 n      keys             at most 65,536
f64        total            cost of all keys of the instance, listed or not
f64        lost             by how much a listed cost may be short; 0 if it was counted exactly
u64 x n    key              ascending, unsigned; on Spark the 32-bit hash
f64 x n    cost
u64 x n    rows
u64 x n    state            in bytes
           names            each of at most 1024 bytes; longer ones are cut
```
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import Name, encoded
from ckpt.rebalance.loads import F64, MAX_INSTANCES, U64, Loads
from ckpt.rebalance.window import merge
from ckpt.rebalance.wire import ColumnReader, ColumnWriter

MAGIC, FORMAT = b"ckrl", 1
MAX_KEYS = 1 << 16
MAX_NAME_BYTES = 1024

_HEAD = struct.Struct("<QQIIdd")
_MAX_COUNT = 1 << 62


@dataclass(frozen=True, eq=False)
class Report:
    """The loads of one instance in one batch."""

    batch: int
    table_version: int
    instance: int
    total: float
    lost: float
    keys: U64
    cost: F64
    rows: npt.NDArray[np.uint64]
    state: npt.NDArray[np.uint64]
    names: Sequence[Name | None]

    def __post_init__(self) -> None:
        count = len(self.keys)
        if count > MAX_KEYS:
            raise ConfigError(f"a report lists at most {MAX_KEYS} keys, not {count}")
        if any(len(column) != count for column in (self.cost, self.rows, self.state, self.names)):
            raise ConfigError(f"a column of a report is not as long as its {count} keys")
        if not 0 <= self.instance < MAX_INSTANCES:
            raise ConfigError(f"instances are from 0 to {MAX_INSTANCES - 1}, not {self.instance}")
        if (self.keys[1:] <= self.keys[:-1]).any():
            raise ConfigError("the keys of a report must be ascending")
        amounts = np.array([self.total, self.lost, *self.cost.tolist()])
        if not (np.isfinite(amounts) & (amounts >= 0)).all():
            raise ConfigError("the costs of a report must be finite and from 0")
        if (self.rows >= _MAX_COUNT).any() or (self.state >= _MAX_COUNT).any():
            raise ConfigError(f"the rows and the state of a report must be below {_MAX_COUNT}")
        if any(name is not None and len(encoded(name)) > MAX_NAME_BYTES for name in self.names):
            raise ConfigError(f"a name of a report is longer than {MAX_NAME_BYTES} bytes")

    def to_bytes(self) -> bytes:
        """The report as documented at the top of this module."""
        writer = ColumnWriter(MAGIC, FORMAT)
        counts = (self.batch, self.table_version, self.instance, len(self.keys))
        writer.numbers(_HEAD, *counts, self.total, self.lost)
        writer.column("<u8", self.keys)
        writer.column("<f8", self.cost)
        writer.column("<u8", self.rows)
        writer.column("<u8", self.state)
        writer.names(self.names)
        return writer.seal()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Report:
        """The report that these bytes are; CorruptRecordError if they are none."""
        reader = ColumnReader(data, MAGIC, FORMAT, "report of loads")
        batch, version, instance, n, total, lost = reader.numbers(_HEAD)
        keys, cost = reader.column("<u8", n), reader.column("<f8", n)
        rows, state = reader.column("<u8", n), reader.column("<u8", n)
        names = reader.names(n)
        reader.end()
        try:
            return cls(batch, version, instance, total, lost, keys, cost, rows, state, names)
        except ConfigError as error:
            raise reader.corrupt(str(error)) from None

    def loads(self) -> Loads:
        """The listed keys and the rest of the instance."""
        rest = np.zeros(self.instance + 1)
        rest[self.instance] = max(0.0, self.total - float(self.cost.sum()))
        called = [
            str(key) if name is None else name
            for key, name in zip(self.keys.tolist(), self.names, strict=True)
        ]
        place = np.full(len(self.keys), self.instance, np.int32)
        return Loads(self.keys, self.cost, self.state, place, rows=self.rows, names=called, rest=rest)


def loads_of(reports: Sequence[Report]) -> Loads:
    """The loads of one interval as its tasks reported them.

    Of two reports of one instance, from a task and its retry, the later in the list counts.
    """
    by_instance = {report.instance: report for report in reports}
    return merge([report.loads() for report in by_instance.values()])
