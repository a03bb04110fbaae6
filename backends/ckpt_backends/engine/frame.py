"""Frames: a batch of records as columns, each byte of it covered by a checksum.

A frame is the unit of writing; on the append path nothing loops per record in Python. All numbers are little
endian, every frame starts at a multiple of 16 bytes in its segment.

```
offset size
     0    4  magic "CKF1"
     4    1  format version (1)
     5    1  kind: 1 data, 2 commit, 3 moved records of a commit, 4 control
     6    2  flags: 1 = the batch continues in the next frame
     8    8  sequence of this frame
    16    8  durable: every frame up to this sequence was durable when this one was written
    24    4  epoch of the segment
    28    4  namespace id
    32    8  layer: the sequence of the commit that the records belong to; 0 in plain namespaces
    40    4  count of records, puts first, then deletes
    44    4  how many of them are deletes
    48    4  length of meta
    52    4  length of all keys
    56    8  expiry in milliseconds since 1970; 0 = never
    64    8  xxh3-64 of columns, meta and keys, seeded
    72    4  length of all values
    76    4  low half of the xxh3-64 of bytes 0 to 75, seeded
    80    …  column: end of each key        u32 x count
          …  column: end of each value      u32 x puts
          …  column: check of each value    u32 x puts   (low half of its xxh3-64)
          …  meta (msgpack; commit and control frames)
          …  keys, one after the other
          …  values, one after the other
          …  zeros up to a multiple of 16
```

Ends instead of lengths make record i addressable without summing. The seed belongs to the segment, so a stale
frame in a recycled segment is never taken for a new one. Values have a check each, so one read verifies one
value; the header has its own, so one read verifies what it relies on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_intdigest

from ckpt.errors import ConfigError

MAGIC = b"CKF1"
FORMAT = 1
ALIGN = 16
HEADER = struct.Struct("<4sBBHQQIIQIIIIQQII")
HEADER_BYTES = HEADER.size
MAX_RECORDS = 1 << 14
MAX_FRAME_BYTES = 32 << 20
"""A batch is split into frames of at most this many records and bytes; one larger value is a frame alone."""
MAX_VALUE_BYTES = 1 << 31
CONTINUES = 1

_CHECKED = HEADER_BYTES - 4
_U32 = struct.Struct("<I")
_PAIR = struct.Struct("<II")
_PADDING = bytes(ALIGN)
_LOW32 = np.uint64(0xFFFFFFFF)


class FrameKind(IntEnum):
    """What the records of a frame are."""

    DATA = 1
    COMMIT = 2
    MOVED = 3
    CONTROL = 4


_KINDS = {int(kind): kind for kind in FrameKind}


class BadFrameError(Exception):
    """These bytes are not a frame, or not any more. Internal: callers decide what that means."""


class Body(msgspec.Struct, frozen=True, eq=False):
    """Everything of a frame that does not depend on where and when it is written."""

    # A struct, which a frozen dataclass of so many fields takes ten times as long to make.

    kind: FrameKind
    namespace: int
    count: int
    deletes: int
    meta_bytes: int
    keys_bytes: int
    values_bytes: int
    expires_ms: int
    middle: bytes
    """Columns, meta and keys."""
    values: Sequence[bytes | memoryview]
    keys: Sequence[bytes]
    layer: int = 0
    hashes: npt.NDArray[np.uint64] | None = None
    """The index hashes of all keys, where they have been computed already."""

    @property
    def frame_bytes(self) -> int:
        """The length of the whole frame, padding included."""
        return -(-(HEADER_BYTES + len(self.middle) + self.values_bytes) // ALIGN) * ALIGN

    def key_ends_column(self) -> npt.NDArray[np.uint32]:
        """Where each key ends, from the start of the keys."""
        return np.frombuffer(self.middle, "<u4", self.count)

    def key_blob(self) -> memoryview:
        """All keys, one after the other, those of puts first."""
        return memoryview(self.middle)[len(self.middle) - self.keys_bytes :]


def build_body(
    kind: FrameKind,
    namespace: int,
    keys: Sequence[bytes],
    values: Sequence[bytes | memoryview],
    deletes: Sequence[bytes] = (),
    *,
    meta: bytes = b"",
    expires_ms: int = 0,
    layer: int = 0,
) -> Body:
    """The body of one frame."""
    puts = len(values)
    all_keys = [*keys, *deletes] if deletes else keys
    count = len(all_keys)
    if puts == 1 and count == 1:
        return _single(kind, namespace, keys[0], values[0], meta, expires_ms, layer)
    key_ends = np.fromiter(map(len, all_keys), np.uint32, count).cumsum(dtype=np.uint64)
    value_ends = np.fromiter(map(len, values), np.uint32, puts).cumsum(dtype=np.uint64)
    values_bytes = int(value_ends[-1]) if puts else 0
    keys_bytes = int(key_ends[-1]) if count else 0
    checks = np.fromiter(map(xxh3_64_intdigest, values), np.uint64, puts) & _LOW32
    middle = b"".join(
        (
            key_ends.astype("<u4").tobytes(),
            value_ends.astype("<u4").tobytes(),
            checks.astype("<u4").tobytes(),
            meta,
            *all_keys,
        )
    )
    # One joined buffer is cheaper than a thousand small iovecs; few large values are better left alone.
    joined: Sequence[bytes | memoryview] = values if values_bytes > puts << 16 else (b"".join(values),)
    return Body(
        kind,
        namespace,
        count,
        len(deletes),
        len(meta),
        keys_bytes,
        values_bytes,
        expires_ms,
        middle,
        joined,
        all_keys,
        layer,
    )


def _single(
    kind: FrameKind,
    namespace: int,
    key: bytes,
    value: bytes | memoryview,
    meta: bytes,
    expires_ms: int,
    layer: int,
) -> Body:
    """The same bytes for the most frequent small frame, without numpy's fixed costs."""
    check = xxh3_64_intdigest(value) & 0xFFFFFFFF
    middle = b"".join((_PAIR.pack(len(key), len(value)), _U32.pack(check), meta, key))
    return Body(
        kind, namespace, 1, 0, len(meta), len(key), len(value), expires_ms, middle, (value,), (key,), layer
    )


def split_batch(
    keys: Sequence[bytes], values: Sequence[bytes | memoryview], deletes: Sequence[bytes]
) -> Iterable[tuple[Sequence[bytes], Sequence[bytes | memoryview], Sequence[bytes]]]:
    """Cut a batch into parts that fit a frame; usually the batch itself."""
    if memoryview in set(map(type, values)):
        values = [as_bytes(value) if type(value) is memoryview else value for value in values]
    count = len(keys) + len(deletes)
    if (count == 1 and (not values or len(values[0]) <= MAX_FRAME_BYTES)) or (
        count <= MAX_RECORDS and _total(keys, values, deletes) <= MAX_FRAME_BYTES
    ):
        yield keys, values, deletes
        return
    if values and (largest := max(map(len, values))) > MAX_VALUE_BYTES:
        raise ConfigError(
            f"a value of {largest} bytes is over the limit of {MAX_VALUE_BYTES}; split the state"
        )
    start = 0
    while start < len(keys):
        end, size = start, 0
        while end < len(keys) and end - start < MAX_RECORDS:
            size += len(keys[end]) + len(values[end])
            if size > MAX_FRAME_BYTES and end > start:
                break
            end += 1
        yield keys[start:end], values[start:end], ()
        start = end
    at_once = MAX_RECORDS
    while at_once > 1 and at_once * max(map(len, deletes), default=0) > 2 * MAX_FRAME_BYTES:
        at_once //= 2
    for first in range(0, len(deletes), at_once):
        yield (), (), deletes[first : first + at_once]


def as_bytes(view: memoryview) -> bytes | memoryview:
    """The same bytes with one item for each: a view may have larger items, more dimensions or gaps."""
    return view.cast("B") if view.c_contiguous else view.tobytes()


def lengths_of_ends(ends: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """How long each piece is whose ends these are."""
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    return lengths


def _total(*columns: Sequence[bytes | memoryview]) -> int:
    return sum(sum(map(len, column)) for column in columns)


def seal(
    body: Body, *, sequence: int, durable: int, epoch: int, seed: int, layer: int, continues: bool = False
) -> list[bytes | memoryview]:
    """The buffers of the finished frame, in order, ready for one `pwritev`."""
    head = HEADER.pack(
        MAGIC,
        FORMAT,
        body.kind,
        CONTINUES if continues else 0,
        sequence,
        durable,
        epoch & 0xFFFFFFFF,
        body.namespace,
        layer,
        body.count,
        body.deletes,
        body.meta_bytes,
        body.keys_bytes,
        body.expires_ms,
        xxh3_64_intdigest(body.middle, seed),
        body.values_bytes,
        0,
    )[:_CHECKED]
    check = _U32.pack(xxh3_64_intdigest(head, seed) & 0xFFFFFFFF)
    padding = -(HEADER_BYTES + len(body.middle) + body.values_bytes) % ALIGN
    if body.values_bytes < 1 << 16:
        return [b"".join((head, check, body.middle, *body.values, _PADDING[:padding]))]
    return [head + check + body.middle, *body.values, _PADDING[:padding]]


class Frame:
    """A frame in a buffer: its header is verified when it is opened, the rest when asked.

    Raises BadFrameError if the bytes at `offset` do not begin with a frame that this segment may contain.
    """

    __slots__ = (
        "_checks_at",
        "_intact",
        "_keys_at",
        "_meta_at",
        "_value_ends_at",
        "buffer",
        "count",
        "deletes",
        "durable",
        "end",
        "expires_ms",
        "flags",
        "hash",
        "keys_bytes",
        "kind",
        "layer",
        "meta_bytes",
        "namespace",
        "offset",
        "owner",
        "puts",
        "seed",
        "sequence",
        "values_at",
        "values_bytes",
    )

    def __init__(self, buffer: memoryview, offset: int, seed: int, owner: object = None) -> None:
        self.owner = owner
        """Kept alive with the frame: the segment whose memory this is."""
        if offset + HEADER_BYTES > len(buffer):
            raise BadFrameError("the segment ends inside a frame header")
        (
            magic,
            version,
            kind,
            self.flags,
            self.sequence,
            self.durable,
            _,
            self.namespace,
            self.layer,
            self.count,
            self.deletes,
            self.meta_bytes,
            self.keys_bytes,
            self.expires_ms,
            self.hash,
            self.values_bytes,
            check,
        ) = HEADER.unpack_from(buffer, offset)
        if magic != MAGIC:
            raise BadFrameError("no frame starts here")
        if xxh3_64_intdigest(buffer[offset : offset + _CHECKED], seed) & 0xFFFFFFFF != check:
            raise BadFrameError("the frame header does not match its checksum")
        if version != FORMAT or kind not in _KINDS:
            raise BadFrameError(
                f"frame format {version} kind {kind} is newer than this ckpt; upgrade to read it"
            )
        self.kind = _KINDS[kind]
        self.buffer, self.offset, self.seed = buffer, offset, seed
        self._intact: bool | None = None
        self.puts = self.count - self.deletes
        self._value_ends_at = offset + HEADER_BYTES + 4 * self.count
        self._checks_at = self._value_ends_at + 4 * self.puts
        self._meta_at = self._checks_at + 4 * self.puts
        self._keys_at = self._meta_at + self.meta_bytes
        self.values_at = self._keys_at + self.keys_bytes
        self.end = -(-(self.values_at + self.values_bytes) // ALIGN) * ALIGN
        if self.puts < 0 or self.values_at + self.values_bytes > len(buffer):
            raise BadFrameError("the segment ends inside a frame")

    @property
    def continues(self) -> bool:
        """True if the batch goes on in the next frame."""
        return bool(self.flags & CONTINUES)

    # -- verification ----------------------------------------------------------------------------

    def middle_is_intact(self) -> bool:
        """True if columns, meta and keys are what was written; looked at once for each `Frame`."""
        if self._intact is None:
            columns_to_keys = self.buffer[self.offset + HEADER_BYTES : self.values_at]
            self._intact = self.hash == xxh3_64_intdigest(columns_to_keys, self.seed)
        return self._intact

    def bad_values(self) -> list[int]:
        """The positions of the values that are not what was written; needs an intact middle."""
        if not self.puts:
            return []
        ends = self.value_ends()
        starts = [0, *ends[:-1]]
        values, base = self.buffer, self.values_at
        checks = self.checks().tolist()
        return [
            i
            for i, (start, end, check) in enumerate(zip(starts, ends, checks, strict=True))
            if end < start
            or base + end > len(values)
            or xxh3_64_intdigest(values[base + start : base + end]) & 0xFFFFFFFF != check
        ]

    def require_intact(self) -> None:
        """Raise BadFrameError unless every byte of the frame is what was written."""
        if not self.middle_is_intact():
            raise BadFrameError("keys or columns of the frame do not match their checksum")
        if bad := self.bad_values():
            raise BadFrameError(f"{len(bad)} of {self.puts} values do not match their checksum")

    # -- contents --------------------------------------------------------------------------------

    @property
    def meta(self) -> bytes:
        """What a commit or control frame says about itself."""
        return bytes(self.buffer[self._meta_at : self._keys_at])

    def key_ends_column(self) -> npt.NDArray[np.uint32]:
        """Where each key ends, from the start of the keys."""
        return np.frombuffer(self.buffer, "<u4", self.count, self.offset + HEADER_BYTES)

    def key_ends(self) -> list[int]:
        """The same as numbers."""
        ends: list[int] = self.key_ends_column().tolist()
        return ends

    def value_ends_column(self) -> npt.NDArray[np.uint32]:
        """Where each value ends, from the start of the values."""
        return np.frombuffer(self.buffer, "<u4", self.puts, self._value_ends_at)

    def value_ends(self) -> list[int]:
        """The same as numbers."""
        ends: list[int] = self.value_ends_column().tolist()
        return ends

    def key_blob(self) -> memoryview:
        """All keys, one after the other, those of puts first."""
        return self.buffer[self._keys_at : self.values_at]

    def value_blob(self) -> memoryview:
        """All values, one after the other; each has its check."""
        return self.buffer[self.values_at : self.values_at + self.values_bytes]

    def checks(self) -> npt.NDArray[np.uint32]:
        """The check of each value."""
        return np.frombuffer(self.buffer, "<u4", self.puts, self._checks_at).astype(np.uint32)

    def keys(self) -> list[bytes]:
        """All keys, those of puts first."""
        blob = bytes(self.key_blob())
        ends = self.key_ends()
        return [blob[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)] if ends else []

    def key(self, index: int) -> bytes:
        """One key. Not verified: compare it with the key you expect."""
        start, end = self._bounds(self.offset + HEADER_BYTES, index)
        return bytes(self.buffer[self._keys_at + start : self._keys_at + end])

    def value(self, index: int) -> bytes:
        """One value, verified."""
        start, end = self._bounds(self._value_ends_at, index)
        value = bytes(self.buffer[self.values_at + start : self.values_at + end])
        (check,) = _U32.unpack_from(self.buffer, self._checks_at + 4 * index)
        if xxh3_64_intdigest(value) & 0xFFFFFFFF != check or len(value) != end - start:
            raise BadFrameError("the value does not match its checksum")
        return value

    def _bounds(self, column: int, index: int) -> tuple[int, int]:
        if index == 0:
            return 0, _U32.unpack_from(self.buffer, column)[0]
        start, end = _PAIR.unpack_from(self.buffer, column + 4 * index - 4)
        return start, end


def stream_hash(parts: Iterable[bytes | memoryview], seed: int = 0) -> int:
    """xxh3-64 of the parts as if they were one."""
    state = xxh3_64(seed=seed)
    for part in parts:
        state.update(part)
    return state.intdigest()
