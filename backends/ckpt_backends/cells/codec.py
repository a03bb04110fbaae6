"""One value as a server stores it: a changed byte, or a row in the wrong place, is noticed when it is read.

| bytes | content |
| --- | --- |
| 1 | format, 1 |
| 8 | xxh3-64 of the rest, little-endian; seeded by xxh3-64 of the key, seeded by that of the namespace |
| 1 | flags: 1 = a tombstone, 2 = expires |
| 8 | with flag 2: when it expires, in milliseconds since 1970, little-endian |
| rest | the value |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from ckpt.errors import CorruptRecordError, shown_key

_FORMAT = b"\x01"
_TOMBSTONE, _EXPIRES = 1, 2
_PLAIN_FLAGS = b"\x00"
_EXPIRY = struct.Struct("<BQ")
_HEAD = struct.Struct("<cQB")
_START = _HEAD.size


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as it was written: `value` is None for a tombstone."""

    value: bytes | None
    expires_s: float | None = None

    def is_alive(self, now_s: float) -> bool:
        """There is a value, and it has not expired."""
        return self.value is not None and (self.expires_s is None or now_s < self.expires_s)


class CellCodec:
    """Encodes and decodes the cells of one namespace.

    Examples
    --------
    >>> codec = CellCodec("words", "cells://")
    >>> codec.decode(b"be", codec.encode(b"be", b"2"))
    Cell(value=b'2', expires_s=None)
    >>> codec.decode(b"or", codec.encode(b"be", b"2"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ckpt.errors.CorruptRecordError: key b'or' of namespace 'words' in cells:// is damaged: ...
    """

    def __init__(self, namespace: str, address: str) -> None:
        self._namespace, self._address = namespace, address
        self._seed = xxh3_64_intdigest(namespace.encode())

    def encode(
        self, key: bytes, value: bytes | bytearray | memoryview, expires_s: float | None = None
    ) -> bytes:
        """The bytes to store for a value."""
        head = _PLAIN_FLAGS if expires_s is None else _EXPIRY.pack(_EXPIRES, round(expires_s * 1000))
        body = head + value
        check = xxh3_64_intdigest(body, xxh3_64_intdigest(key, self._seed))
        return _FORMAT + check.to_bytes(8, "little") + body

    def tombstone(self, key: bytes) -> bytes:
        """The bytes that stand for a deleted key."""
        body = bytes([_TOMBSTONE])
        check = xxh3_64_intdigest(body, xxh3_64_intdigest(key, self._seed))
        return _FORMAT + check.to_bytes(8, "little") + body

    def decode(self, key: bytes, raw: bytes) -> Cell:
        """What was stored, or CorruptRecordError."""
        if len(raw) < _START or raw[:1] != _FORMAT:
            raise self._damaged(key, "it is not in a format that this version of ckpt knows")
        check = xxh3_64_intdigest(raw[9:], xxh3_64_intdigest(key, self._seed))
        if check.to_bytes(8, "little") != raw[1:9]:
            raise self._damaged(key, "its checksum does not match")
        flags = raw[9]
        if flags == 0:
            return Cell(raw[_START:])
        if flags == _EXPIRES and len(raw) >= 9 + _EXPIRY.size:
            return Cell(raw[9 + _EXPIRY.size :], _EXPIRY.unpack_from(raw, 9)[1] / 1000)
        if flags == _TOMBSTONE:
            return Cell(None)
        raise self._damaged(key, "its flags are unknown")

    def value(self, key: bytes, raw: bytes, now_s: float) -> bytes | None:
        """The value that was stored, unless it has expired or is a tombstone; or CorruptRecordError."""
        return self.values((key,), {key: raw}, now_s).get(key)

    def values(self, keys: Iterable[bytes], rows: Mapping[bytes, bytes], now_s: float) -> dict[bytes, bytes]:
        """`value` of those keys that have a row and a value: one loop, because each step of it counts."""
        found: dict[bytes, bytes] = {}
        row_of, digest, unpack, seed = rows.get, xxh3_64_intdigest, _HEAD.unpack_from, self._seed
        for key in keys:
            raw = row_of(key)
            if raw is None:
                continue
            # The form of nearly all rows, in half the time of `decode`, which handles every other form.
            if len(raw) >= _START:
                form, check, flags = unpack(raw)
                if flags == 0 and form == _FORMAT:
                    body = raw[9:]
                    if check == digest(body, digest(key, seed)):
                        found[key] = body[1:]
                        continue
            cell = self.decode(key, raw)
            if cell.value is not None and cell.is_alive(now_s):
                found[key] = cell.value
        return found

    def _damaged(self, key: bytes, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"key {shown_key(key)} of namespace {self._namespace!r} in {self._address} is damaged: {reason}; "
            "restore it from a copy, or delete the key"
        )
