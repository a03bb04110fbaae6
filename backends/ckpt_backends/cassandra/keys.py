"""Keys and values as Cassandra takes them: any key fits, any value fits, and keys keep their order.

A clustering column holds at most 65,535 bytes. A longer key than `LONGEST` is stored as its beginning and a
SHA-256 of the whole, and the value then carries the whole key. Shorter keys are stored as they are, and no
stored form of a long key is that short.

| bytes of a stored value | content |
| --- | --- |
| 1 | kind: 0 = deleted, 1 = the value follows, 2 = it is in parts; plus 16 if the whole key comes first |
| 4, key | with 16: length of the whole key, big-endian, and the key |
| rest | kind 1: the value. Kind 2: the name of the parts (16) and their number (4, big-endian) |

What was announced of a write that may be under way (`Intent`): fence (8), time (8), then for each stored key
its length (4) and the key, all big-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

LONGEST = 32_768
"""Bytes of a key that are stored as they are."""
_DIGEST = 32
_DELETED, _INLINE, _IN_PARTS, _WITH_KEY = 0, 1, 2, 16
GONE = bytes([_DELETED])
"""What stands for a deleted row."""
_HEAD = bytes([_INLINE])
_LENGTH = struct.Struct(">I")
_INTENT = struct.Struct(">qq")
_PART_NAME = 16


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a large value is."""

    name: bytes
    count: int


def stored_key(key: bytes) -> bytes:
    """The key as it is stored: the key itself, unless it is very long."""
    return key if len(key) <= LONGEST else key[:LONGEST] + hashlib.sha256(key).digest()


def is_shortened(stored: bytes) -> bool:
    """Whether a stored key is not the key itself."""
    return len(stored) > LONGEST


def bucket_of(stored: bytes, buckets: int) -> int:
    """The partition that a key belongs to."""
    return xxh3_64_intdigest(stored) % buckets


def after_prefix(prefix: bytes) -> bytes | None:
    """The lowest bytes above everything that begins with `prefix`; None if there are none.

    Examples
    --------
    >>> after_prefix(b"ab"), after_prefix(b"a\\xff"), after_prefix(b"\\xff")
    (b'ac', b'b', None)
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def pack_value(key: bytes, value: bytes | Parts) -> bytes:
    """What is stored for a value, or for the place where it is."""
    if isinstance(value, Parts):
        kind, body = _IN_PARTS, value.name + _LENGTH.pack(value.count)
    else:
        if len(key) <= LONGEST:
            return _HEAD + value
        kind, body = _INLINE, value
    if len(key) <= LONGEST:
        return bytes([kind]) + body
    return bytes([kind | _WITH_KEY]) + _LENGTH.pack(len(key)) + key + body


def unpack_value(stored: bytes, raw: bytes) -> tuple[bytes, bytes | Parts | None]:
    """The whole key, and the value, or where it is; None for a deleted one. Damage is noticed above."""
    kind = raw[0] if raw else _DELETED
    if kind == _INLINE:
        return stored, raw[1:]
    if kind == _DELETED:
        return stored, None
    key, start = stored, 1
    if kind & _WITH_KEY and len(raw) >= 5:
        start = 5 + _LENGTH.unpack_from(raw, 1)[0]
        key = raw[5:start]
    body = raw[start:]
    if kind & ~_WITH_KEY == _IN_PARTS and len(body) == _PART_NAME + _LENGTH.size:
        return key, Parts(body[:_PART_NAME], _LENGTH.unpack_from(body, _PART_NAME)[0])
    return key, body


@dataclass(frozen=True, slots=True)
class Intent:
    """A write that was announced: under which fence, with which time, to which stored keys."""

    fence: int
    time: int
    keys: tuple[bytes, ...]


def pack_intent(fence: int, time: int, keys: Iterable[bytes]) -> bytes:
    """What is announced before anything is written."""
    pack = _LENGTH.pack
    return b"".join((_INTENT.pack(fence, time), *(part for key in keys for part in (pack(len(key)), key))))


def unpack_intent(raw: bytes) -> Intent:
    """What was announced."""
    fence, time = _INTENT.unpack_from(raw)
    keys, at = [], _INTENT.size
    while at < len(raw):
        end = at + 4 + _LENGTH.unpack_from(raw, at)[0]
        keys.append(raw[at + 4 : end])
        at = end
    return Intent(fence, time, tuple(keys))
