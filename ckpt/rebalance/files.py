"""Loads from CSV, Parquet and Arrow: every key of the file, or one ConfigError that names line or column.

All three have the columns `key`, `instance`, `cost` and `state`, and may have `home` and `rows`.
"""

from __future__ import annotations

import os
from typing import Any

from ckpt.errors import ConfigError, shown_key
from ckpt.rebalance.columns import Header, Table
from ckpt.rebalance.loads import MAX_INSTANCES, Loads

HEADER = Header(
    "loads",
    needed=("key", "instance", "cost", "state"),
    optional=("home", "rows"),
    whole={"instance": MAX_INSTANCES, "home": MAX_INSTANCES},
)


def read_loads(path: str | os.PathLike[str]) -> Loads:
    """The loads in a file, by its suffix: `.csv`, `.parquet`, `.arrow` or `.feather`."""
    return HEADER.read(path, _loads)


def from_arrow(table: Any) -> Loads:
    """The loads in an Arrow table or record batch."""
    return _loads(HEADER.of_arrow(table))


def _loads(table: Table) -> Loads:
    columns = table.columns
    if table.lines is not None:
        _refuse_duplicates(columns["key"], table.lines)
    return Loads(
        columns["key"],
        columns["cost"],
        columns["state"],
        columns["instance"],
        home=columns.get("home"),
        rows=columns.get("rows"),
    )


def _refuse_duplicates(keys: list[str], lines: list[int]) -> None:
    if len(set(keys)) == len(keys):
        return
    seen: dict[str, int] = {}
    for line, key in zip(lines, keys, strict=True):
        if key in seen:
            raise ConfigError(f"line {line}: key {shown_key(key)} is there already, in line {seen[key]}")
        seen[key] = line
