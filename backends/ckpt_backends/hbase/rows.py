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

A cell begins with one byte. After 0 comes the value. All other cells have a header:

| bytes | content |
| --- | --- |
| 1 | 1 = a tombstone, 2 = a value, 3 = a value in parts |
| 8 | xxh3-64 of the header without these bytes |
| 4 | length of the key, if it stands here because the row does not hold it; else 0 |
| 4 8 | number of parts, and length of the value in them; else 0 |
| … | the key, then the value |

Numbers are big-endian. A damaged header makes the whole cell a value that was never written, which the
checksum of values then tells, with the key it belongs to.

The parts lie in columns `p0`, `p1`, … of the same row and family under the same timestamp. They are written
before the cell that names them, so a reader that sees the cell finds them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from xxhash import xxh3_64_intdigest

WHOLE_KEY_BYTES = 30_000
INLINE_BYTES = 32 << 10
"""A longer value is in parts, so that a page of rows stays small."""
PART_BYTES = 1 << 20

FoundT = TypeVar("FoundT", bound=tuple[Any, ...])

_SIMPLE = b"\x00"
_TOMBSTONE, _VALUE, _PARTS = _KINDS = 1, 2, 3
_HEADER = struct.Struct(">BQIIQ")
_END = b"\x00\x00"


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
    return _head(_TOMBSTONE, key)


def encode(key: bytes, value: bytes) -> bytes:
    """The cell of a value; a large one has `parts` beside it.

    Examples
    --------
    >>> encode(b"be", b"2")
    b'\\x002'
    """
    if len(value) > INLINE_BYTES:
        return _head(_PARTS, key, -(-len(value) // PART_BYTES), len(value))
    return _SIMPLE + value if len(key) <= WHOLE_KEY_BYTES else _head(_VALUE, key) + value


def parts(value: bytes) -> Iterator[bytes]:
    """The parts of a large value, in order."""
    return (value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES))


def simple_value(row: bytes, raw: bytes, start_bytes: int) -> bytes | None:
    """The value of a cell without parts in a row that holds its whole key; None for all others."""
    return raw[1:] if raw[:1] == _SIMPLE and len(row) <= start_bytes + WHOLE_KEY_BYTES else None


def decode(raw: bytes) -> Stored:
    """What a cell says. A damaged one is taken for a value, and the checksum of values will tell."""
    if raw[:1] == _SIMPLE:
        return Stored(None, raw[1:])
    if len(raw) < _HEADER.size:
        return Stored(None, raw)
    kind, check, key_bytes, count, value_bytes = _HEADER.unpack_from(raw)
    end = _HEADER.size + key_bytes
    if kind not in _KINDS or end > len(raw) or check != _check(raw[:end]):
        return Stored(None, raw)
    key = raw[_HEADER.size : end] if key_bytes else None
    return Stored(key, raw[end:] if kind == _VALUE else None, count, value_bytes)


def _head(kind: int, key: bytes, count: int = 0, value_bytes: int = 0) -> bytes:
    kept = key if len(key) > WHOLE_KEY_BYTES else b""
    head = _HEADER.pack(kind, 0, len(kept), count, value_bytes) + kept
    return _HEADER.pack(kind, _check(head), len(kept), count, value_bytes) + kept


def _check(head: bytes) -> int:
    return xxh3_64_intdigest(head[:1] + head[9:])


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


def key_of(start: bytes, row: bytes, stored: Stored) -> bytes:
    """The key whose cell was found in a row.

    For the damaged cell of a long key, what the row holds: under no key is its value whole.
    """
    if stored.key is not None and row_of(start, stored.key) == row:
        return stored.key
    return row[len(start) :]


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
