"""Segments: numbered containers of frames, and the header that says which log and place they belong to.

```
offset size
     0    8  magic "CKPTSEG1"
     8    4  format version (1)
    12    4  where the first frame starts
    16    8  id of the log
    24    8  number of this segment; never used twice in one log
    32    8  number of the segment before it; 0 = none
    40    8  where that one ended
    48    8  sequence of the first frame here
    56    8  xxh3-64 of bytes 0 to 55
```

Inside a segment frames follow each other without gaps and with consecutive sequences. A segment ends where
its successor says that it ended; the last one ends at the first place where no intact frame starts.
"""

from __future__ import annotations

import struct

import msgspec
from xxhash import xxh3_64_intdigest

from ckpt_backends.engine.frame import BadFrameError

MAGIC = b"CKPTSEG1"
FORMAT = 1
HEADER = struct.Struct("<8sIIQQQQQQ")
HEADER_BYTES = HEADER.size


class UnbegunSegmentError(BadFrameError):
    """A segment without a header and without frames: a crash came while it was made."""


class SegmentHeader(msgspec.Struct, frozen=True):
    """What a segment says about itself and its predecessor."""

    log_id: int
    number: int
    data_start: int
    previous: int
    previous_end: int
    first_sequence: int

    def encode(self) -> bytes:
        """The 64 bytes of the header."""
        body = HEADER.pack(
            MAGIC,
            FORMAT,
            self.data_start,
            self.log_id,
            self.number,
            self.previous,
            self.previous_end,
            self.first_sequence,
            0,
        )[:-8]
        return body + xxh3_64_intdigest(body).to_bytes(8, "little")

    @classmethod
    def decode(cls, data: bytes | memoryview) -> SegmentHeader:
        """The header, or BadFrameError if these bytes are none."""
        if len(data) < HEADER_BYTES:
            raise BadFrameError("the segment is shorter than its header")
        magic, version, data_start, log_id, number, previous, previous_end, first, check = HEADER.unpack_from(
            data
        )
        if magic != MAGIC or xxh3_64_intdigest(bytes(data[: HEADER_BYTES - 8])) != check:
            raise BadFrameError("the segment header does not match its checksum")
        if version != FORMAT:
            raise BadFrameError(f"segment format {version} is newer than this ckpt; upgrade to read it")
        return cls(log_id, number, data_start, previous, previous_end, first)


def segment_seed(log_id: int, number: int) -> int:
    """The seed of every checksum in a segment: no other segment of any log shares it."""
    return xxh3_64_intdigest(number.to_bytes(8, "little"), log_id)


class Segment:
    """A readable segment. It stays readable as long as the object is held, also after it was retired.

    A finalizer tells its storage when the last holder is gone.
    """

    __slots__ = ("__weakref__", "buffer", "data_start", "number", "retired", "seed")

    def __init__(self, number: int, seed: int, data_start: int, buffer: memoryview) -> None:
        self.number, self.seed, self.data_start, self.buffer = number, seed, data_start, buffer
        self.retired = False
        """The log needs it no more; its memory is readable as long as this object is held."""
