"""Sealed columns, the bytes of reports and routing tables: a changed byte is an error, never another value.

```
offset  bytes  field
     0      4  magic      which kind of document
     4      2  format     its version
     6      …  what the document's own layout says: numbers, then columns of numbers, all little endian
   end      8  checksum   xxh3-64 of everything before it
```

A column of names is three columns: the kind of each name (u8: 0 none, 1 text in UTF-8, 2 bytes), its length
in bytes (u32), and all names one after the other. Every count is compared with the bytes that are there
before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_digest

from ckpt.errors import CorruptRecordError
from ckpt.rebalance.hashing import Name, encoded
from ckpt.types import cut

CHECKSUM_BYTES = 8
NO_NAME, TEXT, BYTES = range(3)

_HEAD = struct.Struct("<4sH")


class ColumnWriter:
    """Builds one sealed document; columns are written in the order of their calls."""

    def __init__(self, magic: bytes, version: int) -> None:
        self._pieces: list[bytes] = [_HEAD.pack(magic, version)]

    def numbers(self, layout: struct.Struct, *values: int | float) -> None:
        """Some numbers, each of its own type."""
        self._pieces.append(layout.pack(*values))

    def column(self, dtype: str, values: npt.ArrayLike) -> None:
        """Numbers of one type."""
        self._pieces.append(np.ascontiguousarray(values, np.dtype(dtype)).tobytes())

    def names(self, names: Sequence[Name | None]) -> None:
        """A column of names."""
        raw = [b"" if name is None else encoded(name) for name in names]
        self.column("<u1", [_kind(name) for name in names])
        self.column("<u4", [len(name) for name in raw])
        self._pieces.extend(raw)

    def seal(self) -> bytes:
        """The document with its checksum."""
        body = b"".join(self._pieces)
        return body + xxh3_64_digest(body)[::-1]


class ColumnReader:
    """Reads what `ColumnWriter` wrote, in the same order; anything else is a CorruptRecordError."""

    def __init__(self, data: bytes | memoryview, magic: bytes, version: int, what: str) -> None:
        self._what = what
        view = memoryview(data)
        if len(view) < _HEAD.size + CHECKSUM_BYTES:
            raise self.corrupt(f"{len(view)} bytes are too few")
        found, found_version = _HEAD.unpack_from(view)
        if found != magic:
            raise self.corrupt("it begins with another magic number")
        self._body = view[:-CHECKSUM_BYTES]
        if xxh3_64_digest(self._body)[::-1] != view[-CHECKSUM_BYTES:]:
            raise self.corrupt("its checksum does not match")
        if found_version != version:
            raise self.corrupt(f"format {found_version} is not known here, only {version}")
        self._at = _HEAD.size

    def corrupt(self, why: str) -> CorruptRecordError:
        """The error to raise about this document."""
        return CorruptRecordError(f"this is no readable {self._what}: {why}")

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Some numbers, each of its own type."""
        return layout.unpack(self._take(layout.size))

    def column(self, dtype: str, count: int) -> npt.NDArray[Any]:
        """Numbers of one type, as an array of its own."""
        kind = np.dtype(dtype)
        return np.frombuffer(self._take(kind.itemsize * count), kind).astype(kind.newbyteorder("="))

    def names(self, count: int) -> list[Name | None]:
        """A column of names."""
        kinds, lengths = self.column("<u1", count), self.column("<u4", count)
        if (kinds > BYTES).any() or lengths[kinds == NO_NAME].any():
            raise self.corrupt("a name is of no known kind")
        raw = cut(self._take(int(lengths.sum(dtype=np.uint64))), lengths)
        try:
            return [_name(kind, name) for kind, name in zip(kinds.tolist(), raw, strict=True)]
        except UnicodeDecodeError:
            raise self.corrupt("a name that should be text is not UTF-8") from None

    def end(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._body):
            raise self.corrupt(f"{len(self._body) - self._at} bytes are left over")

    def _take(self, size: int) -> memoryview:
        if size > len(self._body) - self._at:
            raise self.corrupt(f"it should have {size} bytes from byte {self._at}, which are not there")
        self._at += size
        return self._body[self._at - size : self._at]


def _kind(name: Name | None) -> int:
    return NO_NAME if name is None else TEXT if isinstance(name, str) else BYTES


def _name(kind: int, raw: bytes) -> Name | None:
    if kind == NO_NAME:
        return None
    return raw.decode("utf-8", "surrogatepass") if kind == TEXT else raw
