"""Recorded streams from CSV, Parquet and Arrow, in the formats and with the errors of `rb.read_loads`.

Each row is about one key: that tuples came, what they cost, and what they added to its state.

| column | |
| --- | --- |
| `key` | needed |
| `time` or `interval` | one of them: seconds, which are cut into intervals, or the number of the interval |
| `tuples` | how many came; else 1 |
| `cost` | their work in seconds; else `tuple_s` for each tuple |
| `state` | bytes added; else `tuple_bytes` for each tuple |

Rows may be in any order, and several may be about one key in one interval: they add up. Intervals are counted
from the first one that has rows; those between the first and the last that have none are empty.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.columns import Header, Table
from ckpt.rebalance.hashing import Name
from ckpt.rebalance.loads import Loads, amounts, sums
from ckpt.rebalance.simulate.generators.keyset import I64, not_negative
from ckpt.rebalance.simulate.interval import Interval

MAX_INTERVALS = 1_000_000
"""More are a mistake, such as times in nanoseconds."""

HEADER = Header(
    "recorded streams",
    needed=("key",),
    optional=("time", "interval", "tuples", "cost", "state"),
    whole={"interval": 1 << 63},
)


def read_intervals(
    path: str | os.PathLike[str],
    *,
    interval_s: float = 10.0,
    tuple_s: float = 1e-3,
    tuple_bytes: float = 64,
) -> list[Interval]:
    """The intervals in a file, by its suffix: `.csv`, `.parquet`, `.arrow` or `.feather`."""
    not_negative(tuple_s=tuple_s, tuple_bytes=tuple_bytes)
    if not interval_s > 0:
        raise ConfigError(f"interval_s must be above 0, not {interval_s}")
    return HEADER.read(path, lambda table: _intervals(table, interval_s, tuple_s, tuple_bytes))


def _intervals(table: Table, interval_s: float, tuple_s: float, tuple_bytes: float) -> list[Interval]:
    columns = table.columns
    if ("time" in columns) == ("interval" in columns):
        raise ConfigError("exactly one of the columns time and interval is needed")
    rows = len(columns["key"])
    if not rows:
        return []
    known, number = _numbered(columns["key"])
    tuples = amounts("tuples", columns.get("tuples", np.ones(rows)), rows)
    cost = amounts("cost", columns.get("cost", tuples * tuple_s), rows)
    state = amounts("state", columns.get("state", tuples * tuple_bytes), rows)
    when = amounts("time", columns["time"], rows) // interval_s if "time" in columns else columns["interval"]
    at = np.asarray(amounts("interval", when, rows))
    first, count = at.min(), at.max() - at.min() + 1
    if count > MAX_INTERVALS:
        raise ConfigError(f"{count:.0f} intervals are more than {MAX_INTERVALS}; times are seconds")
    order = np.argsort(at, kind="stable")
    ends = np.searchsorted(at[order], first + np.arange(count), side="right")
    intervals = []
    for chosen in np.split(order, ends[:-1]):
        keys, of = np.unique(number[chosen], return_inverse=True)
        came, work, added = (sums(of, column[chosen], len(keys)) for column in (tuples, cost, state))
        names = None if known.names is None else known.names[keys]
        intervals.append(Interval(known.keys[keys], came, work, added, names))
    return intervals


def _numbered(keys: Sequence[Name] | npt.NDArray[np.integer]) -> tuple[Loads, I64]:
    """The different keys, ascending by identity, and for each row which of them it is about."""
    if isinstance(keys, np.ndarray):
        different, of = np.unique(keys, return_inverse=True)
        listed: Any = different
    else:
        numbers: dict[Name, int] = {}
        of = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(keys))
        listed = list(numbers)
    nothing = np.zeros(len(listed))
    known = Loads(listed, nothing, nothing, nothing.astype(np.int32))
    order = np.argsort(known.keys)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return known.take(order), rank[of]
