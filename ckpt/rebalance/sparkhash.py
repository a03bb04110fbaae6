"""Spark's hash of typed columns: the number that `pyspark.sql.functions.hash(*columns)` gives.

How `Murmur3Hash` sees each type (`HashExpression` in Spark's catalyst; the primitives are in `hashing`):

| type | hashed as |
| --- | --- |
| null, of any type | not at all: the seed stays |
| boolean, byte, short, int, date | int (true is 1; a date is days since 1970-01-01) |
| long, timestamp | long (a timestamp is microseconds since 1970-01-01 in UTC) |
| float, double | the bits as int or long; -0.0 as 0.0, every NaN as one NaN |
| decimal(p, s), p up to 18 | its unscaled value as long |
| decimal(p, s), p from 19 | its unscaled value as bytes, big endian, as few as two's complement needs |
| string, binary | its bytes; a string's are UTF-8 |
| struct | its fields one after the other |
| array | its elements one after the other |

Strings with a collation other than UTF8_BINARY are hashed by their collation key, which is not known here.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import SEED, U32, hash_bytes, hash_ints, hash_longs

_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_LONG_DECIMAL_PRECISION = 18
"""Unscaled values of up to this many digits fit a long."""
_DECIMAL_DIGITS = 80
"""More than the 38 of Spark's longest decimal, whatever its scale."""
_EPOCH = dt.date(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Struct:
    """The type of a struct column: the types of its fields. Its values are sequences of field values."""

    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """The type of an array column: the type of its elements. Its values are sequences."""

    element: Type


Type = str | Struct | Array
"""A type by its name in Spark's DDL (`int`, `string`, `decimal(10,2)` …), or a nested one."""


def spark_hash(columns: Sequence[tuple[Type, Sequence[Any]]], seed: int = SEED) -> U32:
    """Spark's hash of each row of these columns: each one's hash is the seed of the next.

    Examples
    --------
    >>> spark_hash([("string", ["Spark", None]), ("int", [1, 2])]).view(np.int32).tolist()
    [205329825, 1765031574]
    """
    if not columns:
        raise ConfigError("a hash needs at least one column")
    lengths = {len(values) for _, values in columns}
    if len(lengths) != 1:
        raise ConfigError(f"columns of a hash must have one length, not {sorted(lengths)}")
    hashes = np.full(lengths.pop(), seed, np.uint32)
    for kind, values in columns:
        hashes = _hash_column(kind, values, hashes)
    return hashes


def _hash_column(kind: Type, values: Sequence[Any], seeds: U32) -> U32:
    present = np.array([value is not None for value in values], np.bool_)
    hashes = seeds.copy()
    if present.any():
        there = [value for value in values if value is not None]
        hashes[present] = _hash_present(kind, there, seeds[present])
    return hashes


def _hash_present(kind: Type, values: list[Any], seeds: U32) -> U32:
    if isinstance(kind, Struct):
        for at, field in enumerate(kind.fields):
            seeds = _hash_column(field, [value[at] for value in values], seeds)
        return seeds
    if isinstance(kind, Array):
        longest = max(map(len, values))
        for at in range(longest):
            having = np.array([len(value) > at for value in values], np.bool_)
            elements = [value[at] for value in values if len(value) > at]
            seeds = seeds.copy()
            seeds[having] = _hash_column(kind.element, elements, seeds[having])
        return seeds
    if decimal := _DECIMAL.fullmatch(kind):
        unscaled = [_unscaled(value, int(decimal[2])) for value in values]
        if int(decimal[1]) <= _LONG_DECIMAL_PRECISION:
            return hash_longs(np.array(unscaled, np.int64), seeds)
        return hash_bytes([_shortest(value) for value in unscaled], seeds)
    name = _ALIASES.get(kind, kind)
    if name in _INTS:
        return hash_ints(np.array([_INTS[name](value) for value in values], np.int32), seeds)
    if name in _LONGS:
        return hash_longs(np.array([_LONGS[name](value) for value in values], np.int64), seeds)
    if name in _BYTES:
        return hash_bytes([_BYTES[name](value) for value in values], seeds)
    known = [*_INTS, *_LONGS, *_BYTES, *_ALIASES, "decimal(p,s)"]
    raise ConfigError(f"Spark's hash of type {kind!r:.60} is not known here; {suggestion(kind, known)}")


def _float_bits(value: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", _plain(value)))[0])


def _double_bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", _plain(value)))[0])


def _plain(value: float) -> float:
    """One zero and one NaN."""
    return 0.0 if value == 0 else float("nan") if value != value else value


def _days(value: dt.date) -> int:
    return (value - _EPOCH).days


def _microseconds(value: dt.datetime) -> int:
    """A time without zone is taken as UTC, which is right for `timestamp_ntz` and a UTC session."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH_UTC) // _MICROSECOND


def _unscaled(value: Decimal, scale: int) -> int:
    with localcontext(prec=_DECIMAL_DIGITS):
        return int(value.scaleb(scale).to_integral_exact())


def _shortest(value: int) -> bytes:
    """Two's complement in as few bytes as hold it, as `BigInteger.toByteArray` gives it."""
    bits = value.bit_length() if value >= 0 else (-value - 1).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


_INTS: dict[str, Callable[[Any], int]] = {
    "boolean": int,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "date": _days,
    "float": _float_bits,
}
_LONGS: dict[str, Callable[[Any], int]] = {
    "bigint": int,
    "timestamp": _microseconds,
    "timestamp_ntz": _microseconds,
    "double": _double_bits,
}
_BYTES: dict[str, Callable[[Any], bytes]] = {"string": str.encode, "binary": bytes}
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
