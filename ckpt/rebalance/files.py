"""Loads from CSV, Parquet and Arrow: every key of the file, or one ConfigError that names line or column.

All three have the columns `key`, `instance`, `cost` and `state`, and may have `home` and `rows`. In a CSV
file a key is a name, whatever it looks like. In the others text and binary are names, integers identities.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError, shown_key
from ckpt.rebalance.loads import MAX_INSTANCES, Loads

NEEDED = ("key", "instance", "cost", "state")
OPTIONAL = ("home", "rows")

_WHOLE = ("instance", "home")


def read_loads(path: str | os.PathLike[str]) -> Loads:
    """The loads in a file, by its suffix: `.csv`, `.parquet`, `.arrow` or `.feather`."""
    shown = os.fspath(path)
    suffix = os.path.splitext(shown)[1].lower()
    readers: dict[str, Callable[[str], Loads]] = {
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".arrow": _read_arrow,
        ".feather": _read_arrow,
    }
    if suffix not in readers:
        raise ConfigError(f"{shown}: loads are read from files that end in {', '.join(readers)}")
    try:
        return readers[suffix](shown)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None


def from_arrow(table: Any) -> Loads:
    """The loads in an Arrow table or record batch."""
    kinds = _pyarrow().types
    _check_columns(table.schema.names)
    columns = {}
    for name in table.schema.names:
        column = table.column(name)
        if column.null_count:
            raise ConfigError(f"column {name}: {column.null_count} entries are null")
        if name == "key" and not kinds.is_integer(column.type):
            column = column.cast(column.type.value_type) if kinds.is_dictionary(column.type) else column
            named = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
            if not any(kind(column.type) for kind in named):
                raise ConfigError(f"column key: text, binary or integers, not {column.type}")
            columns[name] = column.to_pylist()
        elif kinds.is_integer(column.type) or (name not in _WHOLE and kinds.is_floating(column.type)):
            columns[name] = column.to_numpy(zero_copy_only=False) if len(column) else np.empty(0, np.int64)
        else:
            kind = "integers" if name in _WHOLE else "numbers"
            raise ConfigError(f"column {name}: {kind}, not {column.type}")
    return _loads(columns)


def _read_csv(path: str) -> Loads:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise ConfigError(f"the file is empty; its first line must be {','.join(NEEDED)}")
            names = [name.strip() for name in header]
            _check_columns(names)
            lines, rows = [], []
            for row in reader:
                if len(row) != len(names):
                    if not row:
                        continue
                    raise ConfigError(f"line {reader.line_num}: {len(row)} fields for {len(names)} columns")
                lines.append(reader.line_num)
                rows.append(row)
        except csv.Error as error:
            raise ConfigError(f"line {reader.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"after line {reader.line_num}: this is not UTF-8: {error.reason}") from None
    columns: dict[str, list[Any]] = dict(
        zip(names, map(list, zip(*rows, strict=True)) if rows else [[] for _ in names], strict=True)
    )
    for name, column in columns.items():
        if name != "key":
            columns[name] = _numbers(name, column, lines)
    _refuse_duplicates(columns["key"], lines)
    return _loads(columns)


def _numbers(name: str, column: list[str], lines: list[int]) -> list[Any]:
    whole = name in _WHOLE
    convert: Callable[[str], Any] = int if whole else float
    kind = f"a whole number from 0 to {MAX_INSTANCES - 1}" if whole else "a finite number from 0"
    end = MAX_INSTANCES if whole else float("inf")
    numbers = []
    for line, text in zip(lines, column, strict=True):
        try:
            number = convert(text)
        except ValueError:
            number = -1
        if not 0 <= number < end:
            raise ConfigError(f"line {line}: {name} must be {kind}, not {text!r:.60}")
        numbers.append(number)
    return numbers


def _refuse_duplicates(keys: list[str], lines: list[int]) -> None:
    if len(set(keys)) == len(keys):
        return
    seen: dict[str, int] = {}
    for line, key in zip(lines, keys, strict=True):
        if key in seen:
            raise ConfigError(f"line {line}: key {shown_key(key)} is there already, in line {seen[key]}")
        seen[key] = line


def _read_parquet(path: str) -> Loads:
    pa = _pyarrow()
    from pyarrow import parquet

    try:
        return from_arrow(parquet.read_table(path))
    except pa.ArrowException as error:
        raise ConfigError(f"this is no readable Parquet file: {error}") from None


def _read_arrow(path: str) -> Loads:
    pa = _pyarrow()
    from pyarrow import feather

    try:
        return from_arrow(feather.read_table(path))
    except pa.ArrowException as error:
        raise ConfigError(f"this is no readable Arrow file: {error}") from None


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        hint = "install it with: pip install pyarrow"
        raise ConfigError(f"Parquet and Arrow need a package that is not installed; {hint}") from None
    return pa


def _check_columns(names: Iterable[str]) -> None:
    listed = list(names)
    known = (*NEEDED, *OPTIONAL)
    for name in listed:
        if name not in known:
            raise ConfigError(f"unknown column {name!r:.60}; {suggestion(name, known)}")
        if listed.count(name) > 1:
            raise ConfigError(f"column {name} is there twice")
    for name in NEEDED:
        if name not in listed:
            raise ConfigError(f"column {name} is missing; needed are {', '.join(NEEDED)}")


def _loads(columns: dict[str, Any]) -> Loads:
    return Loads(
        columns["key"],
        columns["cost"],
        columns["state"],
        columns["instance"],
        home=columns.get("home"),
        rows=columns.get("rows"),
    )
