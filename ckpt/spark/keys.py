"""The stored bytes of one key, so that it can be looked up without reading its store.

The inverse of `ckpt.spark.encodings` for keys of numbers, dates, timestamps, strings, binaries, decimals and
structs of these. What is not among them is found by looking at every key.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ckpt.spark.catalogue import Family
from ckpt.spark.columns import SLOT_BYTES, Chars, Column, Fixed, ShortDecimal, Structs, schema_columns

_SLOT = struct.Struct("<q")
_LENGTH = struct.Struct("<i")
_TIME = struct.Struct(">Q")


def stored_key(family: Family, key: Mapping[str, Any]) -> bytes | None:
    """Where the row of this key is, or None if only looking at all keys can tell.

    Values may be what JSON has for them: a date is text.
    """
    columns = schema_columns(family.key_schema)
    if family.multiple or family.encoding != "unsaferow" or list(key) != columns.names:
        return None
    values = list(key.values())
    try:
        if family.key_encoder == "noPrefix":
            return family.prefix + _row(columns, values)
        if family.key_encoder == "prefix":
            count = len(family.ordinals)
            first = _row(Structs(columns.names[:count], columns.columns[:count]), values[:count])
            rest = _row(Structs(columns.names[count:], columns.columns[count:]), values[count:])
            return family.prefix + _LENGTH.pack(len(first)) + first + rest
        if family.key_encoder in ("timestampPrefix", "timestampPostfix"):
            row = _row(Structs(columns.names[:-1], columns.columns[:-1]), values[:-1])
            time = _TIME.pack(int(values[-1]) + (1 << 63))
            return family.prefix + (time + row if family.key_encoder == "timestampPrefix" else row + time)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError, struct.error):
        return None
    return None


def _row(columns: Structs, values: list[Any]) -> bytes:
    return b"\0" + _unsafe_row(columns, values)


def _unsafe_row(columns: Structs, values: list[Any]) -> bytes:
    bits = bytearray((len(values) + 63) // 64 * 8)
    base = len(bits) + SLOT_BYTES * len(values)
    slots, places = bytearray(), bytearray()
    for number, (column, value) in enumerate(zip(columns.columns, values, strict=True)):
        if value is None:
            bits[number >> 3] |= 1 << (number & 7)
            slots += bytes(SLOT_BYTES)
            continue
        content = _content(column, value)
        if isinstance(column, (Fixed, ShortDecimal)):
            slots += content.ljust(SLOT_BYTES, b"\0")
            continue
        slots += _SLOT.pack((base + len(places)) << 32 | len(content))
        places += content + bytes(-len(content) % 8)
    return bytes(bits + slots + places)


def _content(column: Column, value: Any) -> bytes:
    if isinstance(column, Structs):
        if list(value) != column.names:
            raise ValueError("not all columns of a struct are named")
        return _unsafe_row(column, list(value.values()))
    if isinstance(column, Chars):
        if not isinstance(value, str):
            raise TypeError("not a text")
        if pa.types.is_binary(column.arrow):
            return bytes.fromhex(value.removeprefix("hex:"))
        return value.encode()
    if isinstance(column, ShortDecimal):
        unscaled = pa.scalar(str(value)).cast(column.arrow).as_py().scaleb(column.arrow.scale)
        return _SLOT.pack(int(unscaled))
    if isinstance(column, Fixed):
        number = pa.array([value]).cast(column.arrow)
        if pa.types.is_boolean(column.arrow):
            number = number.cast(pa.int8())
        return bytes(number.buffers()[1])[: column.element_bytes]
    raise NotImplementedError(type(column).__name__)
