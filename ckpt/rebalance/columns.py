"""Columns from CSV, Parquet and Arrow: all that a file has to have, or one ConfigError that names the place.

In a CSV file a key is a name, whatever it looks like. In the others text and binary are names, integers
identities. All other columns are finite numbers from 0.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """What was read."""

    columns: dict[str, Any]
    """By name."""
    lines: list[int] | None = None
    """In which line of a CSV file each row is."""


@dataclass(frozen=True)
class Header:
    """The columns that files of one kind have; `key` is one of them."""

    what: str
    """What is in such a file."""
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    whole: Mapping[str, int]
    """The columns of whole numbers, each with the least number that is too large."""

    def read(self, path: str | os.PathLike[str], make: Callable[[Table], T]) -> T:
        """What `make` makes of a file in a format that its suffix says; errors begin with its path."""
        shown = os.fspath(path)
        suffix = os.path.splitext(shown)[1].lower()
        readers: dict[str, Callable[[str], Table]] = {
            ".csv": self._read_csv,
            ".parquet": self._read_parquet,
            ".arrow": self._read_arrow,
            ".feather": self._read_arrow,
        }
        if suffix not in readers:
            raise ConfigError(f"{shown}: {self.what} are read from files that end in {', '.join(readers)}")
        try:
            return make(readers[suffix](shown))
        except OSError as error:
            raise ConfigError(f"{shown} cannot be read: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"{shown}: {error}") from None

    def of_arrow(self, table: Any) -> Table:
        """The columns of an Arrow table or record batch."""
        kinds = _pyarrow().types
        self._check(table.schema.names)
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
            elif kinds.is_integer(column.type) or (name not in self.whole and kinds.is_floating(column.type)):
                empty = np.empty(0, np.int64)
                columns[name] = column.to_numpy(zero_copy_only=False) if len(column) else empty
            else:
                kind = "integers" if name in self.whole else "numbers"
                raise ConfigError(f"column {name}: {kind}, not {column.type}")
        return Table(columns)

    def _read_csv(self, path: str) -> Table:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            try:
                header = next(reader, None)
                if header is None:
                    raise ConfigError(f"the file is empty; its first line must be {','.join(self.needed)}")
                names = [name.strip() for name in header]
                self._check(names)
                lines, rows = [], []
                for row in reader:
                    if len(row) != len(names):
                        if not row:
                            continue
                        raise ConfigError(
                            f"line {reader.line_num}: {len(row)} fields for {len(names)} columns"
                        )
                    lines.append(reader.line_num)
                    rows.append(row)
            except csv.Error as error:
                raise ConfigError(f"line {reader.line_num}: {error}") from None
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"after line {reader.line_num}: this is not UTF-8: {error.reason}"
                ) from None
        columns: dict[str, list[Any]] = dict(
            zip(names, map(list, zip(*rows, strict=True)) if rows else [[] for _ in names], strict=True)
        )
        for name, column in columns.items():
            if name != "key":
                columns[name] = _numbers(name, column, lines, self.whole.get(name))
        return Table(columns, lines)

    def _read_parquet(self, path: str) -> Table:
        pa = _pyarrow()
        from pyarrow import parquet

        try:
            return self.of_arrow(parquet.read_table(path))
        except pa.ArrowException as error:
            raise ConfigError(f"this is no readable Parquet file: {error}") from None

    def _read_arrow(self, path: str) -> Table:
        pa = _pyarrow()
        from pyarrow import feather

        try:
            return self.of_arrow(feather.read_table(path))
        except pa.ArrowException as error:
            raise ConfigError(f"this is no readable Arrow file: {error}") from None

    def _check(self, names: Iterable[str]) -> None:
        listed = list(names)
        known = (*self.needed, *self.optional)
        for name in listed:
            if name not in known:
                raise ConfigError(f"unknown column {name!r:.60}; {suggestion(name, known)}")
            if listed.count(name) > 1:
                raise ConfigError(f"column {name} is there twice")
        for name in self.needed:
            if name not in listed:
                raise ConfigError(f"column {name} is missing; needed are {', '.join(self.needed)}")


def _numbers(name: str, column: list[str], lines: list[int], end: int | None) -> list[Any]:
    convert: Callable[[str], Any] = float if end is None else int
    kind = "a finite number from 0" if end is None else f"a whole number from 0 to {end - 1}"
    numbers = []
    for line, text in zip(lines, column, strict=True):
        try:
            number = convert(text)
        except ValueError:
            number = -1
        if not 0 <= number < (float("inf") if end is None else end):
            raise ConfigError(f"line {line}: {name} must be {kind}, not {text!r:.60}")
        numbers.append(number)
    return numbers


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        hint = "install it with: pip install pyarrow"
        raise ConfigError(f"Parquet and Arrow need a package that is not installed; {hint}") from None
    return pa
