"""The manifest: which runs hold what, and from where the log must be replayed. Disposable like the index.

```
offset size
     0    8  magic "CKPTMAN1"
     8    4  format version (2)
    12    4  length of the body
    16    8  xxh3-64 of the body
    24    …  body: msgpack map, see `Manifest`
```
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from ckpt_backends.engine.catalog import Catalog
from ckpt_backends.engine.runs import IndexDamagedError

MAGIC = b"CKPTMAN1"
FORMAT = 2
_READABLE = (1, FORMAT)
"""Format 1 does not know `closed`, and is read as if that were false."""
_HEADER = struct.Struct("<8sIIQ")


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in the log where a frame starts, or will: segment, offset, and that frame's sequence."""

    segment: int
    offset: int
    sequence: int


class Damage(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of the log that held acknowledged frames and cannot be read; its keys are unknown."""

    segment: int
    start: int
    end: int
    last_sequence: int
    """No frame in the stretch has a higher sequence."""
    reason: str

    def is_within(self, stretches: Iterable[tuple[int, int, int]]) -> bool:
        """Whether one of the stretches (segment, start, end) covers all of it."""
        return any(
            segment == self.segment and start <= self.start and self.end <= end
            for segment, start, end in stretches
        )


class SegmentSummary(msgspec.Struct, array_like=True):
    """How much a segment holds; what garbage collection needs to choose."""

    end: int
    records: int


class Manifest(msgspec.Struct, kw_only=True):
    """A consistent picture of the index: everything before `position` is in the runs and the catalog."""

    log_id: int
    position: Position
    durable: int
    """Every frame up to this sequence was durable when the manifest was written."""
    runs: list[str]
    """Newest first."""
    segments: dict[int, SegmentSummary]
    catalog: dict[str, Any]
    damages: list[Damage] = []
    needed_bytes: int = 0
    """How many bytes of records were needed at the last collection."""
    collected_bytes: int = 0
    """How long all segments together were after it."""
    closed: bool = False
    """When it was written, nothing followed `position` and no segment had a higher number.

    It stays true until the segment of `position` is longer than that: a writer that begins another segment
    instead replaces the manifest first. So a log whose last segment ends there holds nothing newer.
    """


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the manifest."""
    body = msgspec.msgpack.encode(manifest)
    return _HEADER.pack(MAGIC, FORMAT, len(body), xxh3_64_intdigest(body)) + body


_DECODER = msgspec.msgpack.Decoder(Manifest)


def decode_manifest(data: bytes) -> tuple[Manifest, Catalog]:
    """The manifest and the catalog in it, or IndexDamagedError."""
    if len(data) < _HEADER.size:
        raise IndexDamagedError("the manifest is too short")
    magic, version, length, check = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != MAGIC or version not in _READABLE or len(body) != length or xxh3_64_intdigest(body) != check:
        raise IndexDamagedError("the manifest does not match its checksum")
    try:
        manifest, catalog = _DECODER.decode(body), Catalog()
        catalog.restore(manifest.catalog)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        # An older ckpt may have written it: intact, and of no use.
        raise IndexDamagedError(f"the manifest cannot be understood: {error}") from error
    return manifest, catalog
