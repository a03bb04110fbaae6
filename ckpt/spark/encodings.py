"""Keys and values of a column family, decoded as Spark's own encoders encode them.

A stored key is the id of its family (two bytes, big endian), then what the family's key encoder made of the
row. A row is a byte 0 (the version of the encoding), then an `UnsafeRow` (`ckpt.spark.columns`).

```
noPrefix           row
prefix             length of the first row (4 bytes, little endian), row of the prefix, row of the others
range              length of the first row (4 bytes, little endian), row of what sorts, row of the others
timestampPrefix    time (8 bytes), row without its last field
timestampPostfix   row without its last field, time (8 bytes)
```

A field that orders keys is a binary: 0 (negative), 1 (not negative) or 2 (null), then the number, big
endian; of negative floats and doubles all bits are flipped. The time is big endian, its first bit flipped.

The value is a row. In a family with several values for a key, the stored key ends in the number of a *chunk*
(4 bytes, big endian); a chunk is values one after the other, each a length (4 bytes, little endian) and a
row; the values of a key are those of its chunks in their order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ckpt.errors import SerializationError
from ckpt.spark.catalogue import Family
from ckpt.spark.columns import Bytes, Column, Fixed, Mask, Placed, Positions, Structs, schema_columns
from ckpt.types import Block

CHUNK_BYTES = 4
_VERSION_BYTES = 1
_TIME_BYTES = 8
_LENGTH = struct.Struct("<i")


class FamilyDecoder:
    """Blocks of a family's stored rows to Arrow: one array of key structs and one of values.

    A value is a struct, or a list of structs in a family with several values for a key.
    """

    def __init__(self, family: Family) -> None:
        if family.encoding != "unsaferow":
            raise SerializationError(
                f"family {family.name!r} is encoded as {family.encoding}, which cannot be decoded here; read "
                "it raw, or with Spark's `statestore` reader"
            )
        self.family = family
        self.key = schema_columns(family.key_schema)
        self._row = schema_columns(family.value_schema)
        self.value_arrow = (
            pa.list_(pa.field("element", self._row.arrow)) if family.multiple else self._row.arrow
        )
        self.value_spark = (
            {"type": "array", "elementType": self._row.spark, "containsNull": True}
            if family.multiple
            else self._row.spark
        )

    def decode(self, block: Block) -> tuple[pa.Array, pa.Array]:
        """The keys and the values of a block of this family's rows.

        If a key has several values, the block holds all of its chunks.
        """
        if self.family.multiple:
            return self._decode_chunks(block)
        values = Bytes(block.values)
        return self._keys(block.keys, block.key_lengths), _rows(
            self._row, values, _starts(block.value_lengths)
        )

    def _decode_chunks(self, block: Block) -> tuple[pa.Array, pa.Array]:
        keys: list[bytes] = []
        counts: list[int] = []
        places: list[int] = []
        pieces: list[bytes] = []
        length = 0
        for key, chunks in groupby(sorted(block.rows()), lambda row: row[0][:-CHUNK_BYTES]):
            before = len(places)
            for _, chunk in chunks:
                places.extend(length + place for place in values_of(chunk))
                pieces.append(chunk)
                length += len(chunk)
            keys.append(key)
            counts.append(len(places) - before)
        elements = _rows(self._row, Bytes(b"".join(pieces)), np.array(places, np.int64))
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        values = pa.Array.from_buffers(
            self.value_arrow, len(keys), [None, pa.py_buffer(ends)], children=[elements]
        )
        return self._keys(b"".join(keys), np.fromiter(map(len, keys), np.uint32, len(keys))), values

    def _keys(self, blob: bytes | memoryview, lengths: npt.NDArray[np.uint32]) -> pa.Array:
        data = Bytes(blob)
        starts = _starts(lengths) + 2
        ends = _starts(lengths) + lengths
        names, columns = self.key.names, self.key.columns
        encoder, ordinals = self.family.key_encoder, self.family.ordinals
        if encoder == "noPrefix":
            fields = _fields(self.key, data, starts)
        elif encoder in ("timestampPrefix", "timestampPostfix"):
            first = encoder == "timestampPrefix"
            rows = Structs(names[:-1], columns[:-1])
            fields = _fields(rows, data, starts + _TIME_BYTES if first else starts)
            fields.append(_times(data, starts if first else ends - _TIME_BYTES, columns[-1]))
        elif encoder in ("prefix", "range"):
            rest = [n for n in range(len(columns)) if n not in ordinals]
            inner = [Ordered(columns[n]) if encoder == "range" else columns[n] for n in ordinals]
            first_row = Structs([names[n] for n in ordinals], inner)
            second_row = Structs([names[n] for n in rest], [columns[n] for n in rest])
            behind = starts + _LENGTH.size + data.numbers("<i4", starts)
            read = [*_fields(first_row, data, starts + _LENGTH.size), *_fields(second_row, data, behind)]
            order = [*ordinals, *rest]
            fields = [read[order.index(n)] for n in range(len(columns))]
        else:
            raise SerializationError(
                f"family {self.family.name!r} has keys of kind {encoder!r}, which this version of ckpt does "
                "not know; read it raw, or with a newer one"
            )
        return pa.Array.from_buffers(self.key.arrow, len(lengths), [None], children=fields)


class Ordered(Placed):
    """A number in a binary whose bytes sort as the numbers do."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.arrow, self.spark = column.arrow, column.spark

    def read_places(self, data: Bytes, at: Positions, lengths: Positions, nulls: Mask) -> pa.Array:
        if not isinstance(self._column, Fixed):
            raise SerializationError("keys are ordered by a column that is no number")
        # Spark writes nothing at all for a boolean.
        missing = nulls | (lengths == 0)
        marker = data.numbers("u1", np.where(missing, 0, at))
        absent = missing | (marker == _NULL)
        dtype = self._column.dtype.replace("<", ">")
        numbers = data.numbers(dtype, np.where(absent, 0, at + 1)).astype(self._column.dtype)
        if numbers.dtype.kind == "f":
            bits = numbers.view(f"<u{numbers.itemsize}")
            numbers = np.where(marker == _NEGATIVE, ~bits, bits).view(self._column.dtype)
        return self._column.of(numbers, absent)


_NEGATIVE, _NULL = 0, 2


def values_of(chunk: bytes) -> list[int]:
    """Where in a chunk each of its values begins."""
    places = []
    at = 0
    while at < len(chunk):
        if at + _LENGTH.size > len(chunk):
            raise SerializationError("a list of values ends in the middle of one")
        (length,) = _LENGTH.unpack_from(chunk, at)
        at += _LENGTH.size
        if length < 0 or at + length > len(chunk):
            raise SerializationError("a list of values ends in the middle of one")
        places.append(at)
        at += length
    return places


def _starts(lengths: Sequence[int] | npt.NDArray[np.uint32]) -> Positions:
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - np.asarray(lengths, np.int64)


def _rows(columns: Structs, data: Bytes, at: Positions) -> pa.Array:
    return pa.Array.from_buffers(columns.arrow, len(at), [None], children=_fields(columns, data, at))


def _fields(columns: Structs, data: Bytes, at: Positions) -> list[pa.Array]:
    if data.numbers("u1", at).any():
        raise SerializationError("a row is of a format that this version of ckpt does not know; read it raw")
    return columns.read_fields(data, at + _VERSION_BYTES, np.zeros(len(at), np.bool_))


def _times(data: Bytes, at: Positions, column: Column) -> pa.Array:
    if not isinstance(column, Fixed):
        raise SerializationError("the time of a key is no number")
    numbers = data.numbers(">u8", at).astype("<u8") ^ np.uint64(1 << 63)
    return column.of(numbers.view("<i8"), np.zeros(len(at), np.bool_))
