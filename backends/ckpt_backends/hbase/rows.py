"""Rows and cells of HBase: any key and any value has a place, and every place is found again from the key.

Row keys (HBase takes 1 to 32,767 bytes):

| row | of |
| --- | --- |
| `m` namespace | what is known about a namespace (its ledger, its fence, its stamps) |
| `d` escaped namespace, `00 00`, key | one key of up to 30,000 bytes |
| `d` escaped namespace, `00 00`, first 30,000 bytes, SHA-256 of the key | a longer key |

With `prefix=…`, `M` and `D` stand for `m` and `d`, and the escaped prefix and `00 00` follow. Escaping writes
`00 FF` for `00`, so no namespace's rows lie among another's. Rows of keys up to 30,000 bytes are in the order
of their keys; longer ones only as far as their first 30,000 bytes.

A cell begins with one byte of flags:

| flag | meaning |
| --- | --- |
| 1 | a tombstone: nothing follows |
| 2 | a longer key: its length (4 bytes, big-endian) and the key itself follow |
| 4 | the value is in parts: their number (4) and the value's length (8) follow instead of it |

The parts lie in columns `p0`, `p1`, … of the same row and family under the same timestamp. They are written
before the cell that names them, so who sees the cell finds them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from ckpt.errors import CorruptRecordError

WHOLE_KEY_BYTES = 30_000
INLINE_BYTES = 32 << 10
"""A longer value is in parts, so that a page of rows stays small."""
PART_BYTES = 1 << 20

FoundT = TypeVar("FoundT", bound=tuple[Any, ...])

_TOMBSTONE, _LONG_KEY, _PARTS = 1, 2, 4
_END = b"\x00\x00"
_KEY_LENGTH = struct.Struct(">I")
_PARTS_HEAD = struct.Struct(">IQ")
_VALUE = b"\x00"


@dataclass(frozen=True, slots=True)
class Stored:
    """A cell, decoded. One of: a tombstone, a value, or where the parts of a value are."""

    key: bytes | None
    """The whole key, where the row does not hold it."""
    value: bytes | None
    parts: int = 0
    """How many parts a large value is in."""
    value_bytes: int = 0

    @property
    def is_tombstone(self) -> bool:
        """Whether it stands for a deleted key."""
        return self.value is None and not self.parts


def tombstone(key: bytes) -> bytes:
    """The cell of a deleted key."""
    return _head(key, _TOMBSTONE)


def encode(key: bytes, value: bytes) -> bytes:
    """The cell of a value; a large one has `parts` beside it.

    Examples
    --------
    >>> encode(b"be", b"2")
    b'\\x002'
    """
    if len(value) > INLINE_BYTES:
        return _head(key, _PARTS) + _PARTS_HEAD.pack(-(-len(value) // PART_BYTES), len(value))
    return _VALUE + value if len(key) <= WHOLE_KEY_BYTES else _head(key, 0) + value


def parts(value: bytes) -> Iterator[bytes]:
    """The parts of a large value, in order."""
    return (value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES))


def simple_value(row: bytes, raw: bytes, start_bytes: int) -> bytes | None:
    """The value of a cell without parts in a row that holds its whole key; None for all others."""
    return raw[1:] if raw[:1] == _VALUE and len(row) <= start_bytes + WHOLE_KEY_BYTES else None


def decode(raw: bytes) -> Stored:
    """What a cell says; CorruptRecordError if it is none of ours."""
    if raw[:1] == _VALUE:
        return Stored(None, raw[1:])
    try:
        flags, at, key = raw[0], 1, None
        if flags & _LONG_KEY:
            (length,) = _KEY_LENGTH.unpack_from(raw, at)
            at += _KEY_LENGTH.size
            key, at = raw[at : at + length], at + length
        if flags & _TOMBSTONE:
            return Stored(key, None)
        if flags & _PARTS:
            count, value_bytes = _PARTS_HEAD.unpack_from(raw, at)
            return Stored(key, None, count, value_bytes)
    except (IndexError, struct.error) as error:
        raise CorruptRecordError("a cell is shorter than it says; restore it from a copy") from error
    if flags & ~(_TOMBSTONE | _LONG_KEY | _PARTS):
        raise CorruptRecordError("a cell is in no format that this version of ckpt knows; update ckpt")
    return Stored(key, raw[at:])


def _head(key: bytes, flags: int) -> bytes:
    if len(key) <= WHOLE_KEY_BYTES:
        return bytes([flags])
    return bytes([flags | _LONG_KEY]) + _KEY_LENGTH.pack(len(key)) + key


class RowNames:
    """Where the rows of one store are.

    Examples
    --------
    >>> names = RowNames("")
    >>> names.meta("words"), names.data("words") + b"be"
    (b'mwords', b'dwords\\x00\\x00be')
    >>> RowNames("team-a").data("words")
    b'Dteam-a\\x00\\x00words\\x00\\x00'
    """

    def __init__(self, prefix: str) -> None:
        escaped = _escaped(prefix.encode("utf-8", "surrogatepass"))
        self.all_meta = b"M" + escaped + _END if prefix else b"m"
        """How every row begins that describes a namespace."""
        self._all_data = b"D" + escaped + _END if prefix else b"d"

    def meta(self, namespace: str) -> bytes:
        """The row that describes a namespace."""
        return self.all_meta + namespace.encode()

    def namespace(self, meta: bytes) -> str:
        """The namespace that a row describes."""
        return meta[len(self.all_meta) :].decode()

    def data(self, namespace: str) -> bytes:
        """How every row of a key of this namespace begins."""
        return self._all_data + _escaped(namespace.encode()) + _END


def row_of(start: bytes, key: bytes) -> bytes:
    """The row of a key, after the start of its namespace."""
    if len(key) <= WHOLE_KEY_BYTES:
        return start + key
    return start + key[:WHOLE_KEY_BYTES] + hashlib.sha256(key).digest()


def rows_of(start: bytes, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Row to key, for every key."""
    return {row_of(start, key): key for key in keys}


def key_of(start: bytes, row: bytes, stored: Stored) -> bytes:
    """The key whose cell was found in a row; CorruptRecordError if it belongs to another row."""
    short = row[len(start) :]
    if stored.key is None and len(short) <= WHOLE_KEY_BYTES:
        return short
    if stored.key is None or row_of(start, stored.key) != row:
        raise CorruptRecordError(
            "the cell of a long key does not belong to the row it is in; restore it from a copy"
        )
    return stored.key


def in_key_order(start: bytes, found: Iterable[FoundT]) -> Iterator[FoundT]:
    """(row, key, …) in the order of keys, where they come in the order of rows.

    Only long keys that share their first 30,000 bytes are held back, until all of them are there.
    """
    longest = len(start) + WHOLE_KEY_BYTES
    held: list[FoundT] = []
    for one in found:
        if held and (len(one[0]) <= longest or held[0][0][:longest] != one[0][:longest]):
            yield from sorted(held, key=itemgetter(1))
            held = []
        if len(one[0]) <= longest:
            yield one
        else:
            held.append(one)
    yield from sorted(held, key=itemgetter(1))


def scan_range(start: bytes, prefix: bytes) -> tuple[bytes, bytes]:
    """From which row on, and before which, the keys with a prefix are."""
    first = start + prefix[:WHOLE_KEY_BYTES]
    return first, after_all(first)


def after_all(start: bytes) -> bytes:
    """The first row that is behind every row with this start; empty if there is none.

    Examples
    --------
    >>> after_all(b"da"), after_all(b"d\\xff"), after_all(b"\\xff")
    (b'db', b'e', b'')
    """
    trimmed = start.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b""


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"\x00", b"\x00\xff")
