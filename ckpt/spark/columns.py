"""Spark's rows as columns: every value of an `UnsafeRow`, read with numpy for many rows at once, as Arrow.

Nothing loops over rows in Python, and no JVM is needed. All positions are counted in one buffer; what is
relative in the format is relative to the row or array that holds it.

```
row       null bits, 8 bytes for each 64 fields
          for each field 8 bytes: the value itself, or its place: offset << 32 | length
          places, each padded to 8 bytes
array     number of elements (8 bytes), null bits, elements of 1, 2, 4 or 8 bytes (8 for a place), places
map       length of the array of keys (8 bytes), that array, the array of values
decimal   up to 18 digits: the unscaled number; more: a place with the bytes of a big-endian number
interval  a place with months and days (4 bytes each) and microseconds (8)
variant   a place with the length of the value (4 bytes), the value, the metadata
```

Numbers are little endian, which is what JVMs on the machines Spark runs on write.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ckpt.errors import SerializationError

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SLOT_BYTES = 8
_COMPACT_DIGITS = 18
_PAD_BYTES = 16


class Bytes:
    """A buffer that can be read at many positions at once; what lies outside of it is an error."""

    def __init__(self, blob: bytes | memoryview) -> None:
        # What is null is read at position 0, so that must be there, and wide enough for any number.
        self.buffer = np.concatenate([np.frombuffer(blob, np.uint8), np.zeros(_PAD_BYTES, np.uint8)])

    def numbers(self, dtype: str, at: Positions) -> npt.NDArray[Any]:
        """The numbers of this type that begin at these positions, which need not be aligned."""
        size = np.dtype(dtype).itemsize
        if at.size and (at.min() < 0 or at.max() + size > len(self.buffer)):
            raise SerializationError("a row refers to bytes outside of it: it is no row of this schema")
        windows: npt.NDArray[Any] = np.ndarray(
            (len(self.buffer) - size + 1,), dtype, self.buffer.data, strides=(1,)
        )
        return windows[at]

    def gathered(self, at: Positions, lengths: Positions) -> tuple[Positions, npt.NDArray[np.uint8]]:
        """The pieces at these positions, one after the other, and where each begins and the last one ends."""
        ends = np.zeros(len(at) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        if at.size and (lengths.min() < 0 or at.min() < 0 or (at + lengths).max() > len(self.buffer)):
            raise SerializationError("a row refers to bytes outside of it: it is no row of this schema")
        every = np.arange(ends[-1], dtype=np.int64)
        return ends, self.buffer[every + np.repeat(at - ends[:-1], lengths)]


class Column(ABC):
    """One type: how its values are read, and what they are in Arrow and in a schema that Arrow can carry."""

    element_bytes: int = SLOT_BYTES
    """How wide it is in an array."""
    arrow: pa.DataType
    spark: Any
    """The type in Spark's JSON; what Arrow cannot carry is replaced, and everything may be null."""

    @abstractmethod
    def read(self, data: Bytes, slots: Positions, bases: Positions, nulls: Mask) -> pa.Array:
        """The values in these slots of the rows or arrays that begin at `bases`; null by `nulls`."""


class Fixed(Column):
    """Numbers, and what Spark keeps as one: dates, timestamps, times and intervals of one unit."""

    def __init__(self, dtype: str, arrow: pa.DataType, spark: str) -> None:
        self.dtype, self.arrow, self.spark = dtype, arrow, spark
        self.element_bytes = np.dtype(dtype).itemsize

    def read(self, data: Bytes, slots: Positions, bases: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        return self.of(data.numbers(self.dtype, np.where(nulls, 0, slots)), nulls)

    def of(self, numbers: npt.NDArray[Any], nulls: Mask) -> pa.Array:
        """Numbers that were read already."""
        if pa.types.is_boolean(self.arrow):
            numbers = np.packbits(numbers != 0, bitorder="little")
        content = np.ascontiguousarray(numbers)
        return pa.Array.from_buffers(self.arrow, len(nulls), [_validity(nulls), pa.py_buffer(content)])


class Placed(Column):
    """What does not fit into a slot: the slot says where it is and how long."""

    def read(self, data: Bytes, slots: Positions, bases: Positions, nulls: Mask) -> pa.Array:
        place = np.where(nulls, 0, data.numbers("<i8", np.where(nulls, 0, slots)))
        return self.read_places(data, np.where(nulls, 0, bases + (place >> 32)), place & 0xFFFFFFFF, nulls)

    @abstractmethod
    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:
        """The values at these places; those that are null are at 0 and 0 bytes long."""


class Chars(Placed):
    """Strings and binaries."""

    def __init__(self, arrow: pa.DataType, spark: str) -> None:
        self.arrow, self.spark = arrow, spark

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:
        ends, content = data.gathered(at, lengths)
        return pa.Array.from_buffers(
            self.arrow, len(nulls), [_validity(nulls), _offsets(ends), pa.py_buffer(content)]
        )


class ShortDecimal(Column):
    """A decimal of at most 18 digits: a number in the slot."""

    def __init__(self, digits: int, scale: int) -> None:
        self.arrow, self.spark = pa.decimal128(digits, scale), f"decimal({digits},{scale})"

    def read(self, data: Bytes, slots: Positions, bases: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        low = data.numbers("<i8", np.where(nulls, 0, slots))
        return _decimals(self.arrow, np.stack([low, low >> 63], axis=1), nulls)


class LongDecimal(Placed):
    """A decimal of more than 18 digits: a big-endian number of as many bytes as it needs."""

    def __init__(self, digits: int, scale: int) -> None:
        self.arrow, self.spark = pa.decimal128(digits, scale), f"decimal({digits},{scale})"

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:
        if lengths.size and lengths.max() > 16:
            raise SerializationError("a decimal is longer than 16 bytes: it is no row of this schema")
        behind = np.arange(16, dtype=np.int64)[None, :]
        inside = behind < lengths[:, None]
        places = np.where(inside, (at + lengths)[:, None] - 1 - behind, 0)
        digits = data.numbers("u1", places.reshape(-1)).reshape(places.shape)
        sign = data.numbers("i1", np.where(nulls, 0, at)) >> 7
        filled = np.where(inside, digits, sign[:, None].astype(np.uint8))
        return _decimals(self.arrow, filled.astype(np.uint8), nulls)


class CalendarIntervals(Placed):
    """Intervals of months, days and microseconds, which Arrow cannot carry to Spark: as a struct."""

    def __init__(self) -> None:
        parts = (("months", "<i4", pa.int32(), "integer"), ("days", "<i4", pa.int32(), "integer"))
        self._parts = [
            (n, Fixed(d, a, s)) for n, d, a, s in (*parts, ("microseconds", "<i8", pa.int64(), "long"))
        ]
        self.arrow = pa.struct([pa.field(name, part.arrow) for name, part in self._parts])
        self.spark = _struct_json([(name, part.spark) for name, part in self._parts])

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        read = [
            part.read(data, at + skip, at, nulls)
            for (_, part), skip in zip(self._parts, (0, 4, 8), strict=True)
        ]
        return _struct(self.arrow, read, nulls)


class Variants(Placed):
    """Variants, as the two binaries that they are made of."""

    spark = "variant"
    arrow = pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    )

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:
        first = np.where(nulls, 0, data.numbers("<i4", at)).astype(np.int64)
        binary = Chars(pa.binary(), "binary")
        none = np.zeros_like(nulls)
        value = binary.read_places(data, at + np.where(nulls, 0, 4), first, none)
        behind = np.where(nulls, 0, lengths - 4 - first)
        return _struct(
            self.arrow,
            [value, binary.read_places(data, np.where(nulls, 0, at + 4 + first), behind, none)],
            nulls,
        )


class Structs(Placed):
    """Rows in rows; the row of a key or a value itself, too."""

    def __init__(self, names: Sequence[str], columns: Sequence[Column]) -> None:
        self.names, self.columns = _distinct(names), list(columns)
        self.arrow = pa.struct([pa.field(n, c.arrow) for n, c in zip(self.names, columns, strict=True)])
        self.spark = _struct_json([(n, c.spark) for n, c in zip(self.names, columns, strict=True)])

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        return _struct(self.arrow, self.read_fields(data, at, nulls), nulls)

    def read_fields(self, data: Bytes, rows: Positions, nulls: Mask) -> list[pa.Array]:
        """Every field of the rows that begin at these positions."""
        bits = (len(self.columns) + 63) // 64 * 8
        fields = []
        for number, column in enumerate(self.columns):
            null = nulls | _bit(data, rows, np.int64(number), nulls)
            fields.append(column.read(data, rows + bits + SLOT_BYTES * number, rows, null))
        return fields


class Arrays(Placed):
    """Arrays of one type."""

    def __init__(self, element: Column) -> None:
        self._element = element
        self.arrow = pa.list_(pa.field("element", element.arrow))
        self.spark = {"type": "array", "elementType": element.spark, "containsNull": True}

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        ends, elements = read_elements(self._element, data, at, nulls)
        return pa.Array.from_buffers(
            self.arrow, len(nulls), [_validity(nulls), _offsets(ends)], children=[elements]
        )


class Maps(Placed):
    """Maps: an array of keys and an array of values."""

    def __init__(self, key: Column, value: Column) -> None:
        self._key, self._value = key, value
        self.arrow = pa.map_(pa.field("key", key.arrow, nullable=False), pa.field("value", value.arrow))
        self.spark = {
            "type": "map",
            "keyType": key.spark,
            "valueType": value.spark,
            "valueContainsNull": True,
        }

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        keys_bytes = np.where(nulls, 0, data.numbers("<i8", at))
        ends, keys = read_elements(self._key, data, np.where(nulls, 0, at + 8), nulls)
        others, values = read_elements(self._value, data, np.where(nulls, 0, at + 8 + keys_bytes), nulls)
        if not np.array_equal(ends, others):
            raise SerializationError("a map has more keys than values: it is no row of this schema")
        entries = _struct(
            pa.struct([self.arrow.key_field, self.arrow.item_field]),
            [keys, values],
            np.zeros(len(keys), np.bool_),
        )
        return pa.Array.from_buffers(
            self.arrow, len(nulls), [_validity(nulls), _offsets(ends)], children=[entries]
        )


class Nulls(Column):
    """The type whose only value is null."""

    arrow, spark = pa.null(), "void"

    def read(self, data: Bytes, slots: Positions, bases: Positions, nulls: Mask) -> pa.Array:  # noqa: ARG002
        return pa.nulls(len(nulls))


def read_elements(column: Column, data: Bytes, at: Positions, nulls: Mask) -> tuple[Positions, pa.Array]:
    """All elements of the arrays at these positions, and where those of each array begin among them."""
    counts = np.where(nulls, 0, data.numbers("<i8", at)).astype(np.int64)
    # Each element takes a bit at least, so a number beyond that is damage, and must not be allocated.
    if counts.size and (counts.min() < 0 or counts.max() > 8 * len(data.buffer)):
        raise SerializationError("an array is longer than its row: it is no row of this schema")
    ends = np.zeros(len(at) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    bases = np.repeat(at, counts)
    numbers = np.arange(ends[-1], dtype=np.int64) - np.repeat(ends[:-1], counts)
    header = np.repeat(8 + (counts + 63) // 64 * 8, counts)
    absent = _bit(data, bases + 8, numbers, np.zeros(len(bases), np.bool_))
    return ends, column.read(data, bases + header + numbers * column.element_bytes, bases, absent)


def schema_columns(schema: Mapping[str, Any]) -> Structs:
    """The columns of a schema in Spark's JSON; SerializationError if it has a type that cannot be read.

    Examples
    --------
    >>> schema = {"type": "struct", "fields": [{"name": "word", "type": "string"}]}
    >>> schema_columns(schema).arrow
    StructType(struct<word: string>)
    """
    return Structs(
        [field["name"] for field in schema["fields"]],
        [_column(field["type"], field["name"]) for field in schema["fields"]],
    )


_FIXED = {
    "boolean": ("u1", pa.bool_()),
    "byte": ("<i1", pa.int8()),
    "short": ("<i2", pa.int16()),
    "integer": ("<i4", pa.int32()),
    "long": ("<i8", pa.int64()),
    "float": ("<f4", pa.float32()),
    "double": ("<f8", pa.float64()),
    "date": ("<i4", pa.date32()),
    "timestamp": ("<i8", pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": ("<i8", pa.timestamp("us")),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_CHARS = re.compile(r"string( collate \S+)?|(var)?char\(\d+\)")


def _column(kind: Any, name: str) -> Column:
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            return schema_columns(kind)
        if kind["type"] == "array":
            return Arrays(_column(kind["elementType"], name))
        if kind["type"] == "map":
            return Maps(_column(kind["keyType"], name), _column(kind["valueType"], name))
        if kind["type"] == "udt":
            return _column(kind["sqlType"], name)
        kind = kind["type"]
    if kind in _FIXED:
        return Fixed(*_FIXED[kind], kind)
    if _CHARS.fullmatch(kind):
        return Chars(pa.string(), "string")
    if match := _DECIMAL.fullmatch(kind):
        digits, scale = int(match[1]), int(match[2])
        return (ShortDecimal if digits <= _COMPACT_DIGITS else LongDecimal)(digits, scale)
    if kind == "interval":
        return CalendarIntervals()
    if re.fullmatch(r"interval (day|hour|minute|second)( to \w+)?", kind):
        return Fixed("<i8", pa.duration("us"), kind)
    if kind.startswith("interval "):
        # Months; PyArrow has no type for them that Spark takes.
        return Fixed("<i4", pa.int32(), "integer")
    if kind.startswith("time("):
        return Fixed("<i8", pa.time64("ns"), kind)
    others: dict[str, Column] = {
        "binary": Chars(pa.binary(), "binary"),
        "variant": Variants(),
        "void": Nulls(),
        "null": Nulls(),
    }
    if kind not in others:
        raise SerializationError(f"column {name!r} is of type {kind}, which cannot be decoded; read it raw")
    return others[kind]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of fields, each once: state often has several `count`, which Arrow in the JVM takes for one."""
    taken: set[str] = set()
    chosen = []
    for name in names:
        number, candidate = 1, name
        while candidate in taken or (number > 1 and candidate in names):
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        chosen.append(candidate)
    return chosen


def _bit(data: Bytes, at: Positions, numbers: npt.NDArray[np.int64] | np.int64, nulls: Mask) -> Mask:
    """Whether that bit is set behind these positions."""
    holding = data.numbers("u1", np.where(nulls, 0, at + (numbers >> 3)))
    return np.asarray((holding >> (numbers & 7)) & 1, np.bool_)


def _validity(nulls: Mask) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _offsets(ends: Positions) -> pa.Buffer:
    if ends[-1] > np.iinfo(np.int32).max:
        raise SerializationError("the values of one batch are larger than 2 GiB; read them raw")
    return pa.py_buffer(ends.astype(np.int32))


def _decimals(arrow: pa.DataType, content: npt.NDArray[Any], nulls: Mask) -> pa.Array:
    return pa.Array.from_buffers(
        arrow, len(nulls), [_validity(nulls), pa.py_buffer(np.ascontiguousarray(content))]
    )


def _struct(arrow: pa.DataType, fields: list[pa.Array], nulls: Mask) -> pa.Array:
    return pa.Array.from_buffers(arrow, len(nulls), [_validity(nulls)], children=fields)


def _struct_json(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields],
    }
