"""A folder is known for a log or for an object store before anything in it is written or removed.

Both keep their frames in `segments/`, so that a slip in the scheme of an address would take one for the
other, and what is garbage to one is a checkpoint to the other. What tells them apart:

| sign | `log://` | `fsspec+…://` |
| --- | --- | --- |
| header of a segment: where its first frame starts | 4096 | right after the header |
| names beside `segments/` | `LOCK`, `MANIFEST` | `manifests/` |

The header has a checksum and is there from the first write on, so it decides. The names decide where no
header is readable; where both kinds of names are, and no header, nothing is known.
"""

from __future__ import annotations

import contextlib
import enum
import os

from ckpt_backends.engine.frame import BadFrameError
from ckpt_backends.engine.segment import HEADER_BYTES, SegmentHeader

LOG_DATA_START = 4096
"""Where the first frame of a segment starts in a local log; in objects, which are small, it is earlier."""
LOG_NAMES = ("LOCK", "MANIFEST")


class StoreKind(enum.Enum):
    """The backend that made a folder or a segment."""

    LOG = "log"
    OBJECTS = "objects"


def kind_of_header(header: SegmentHeader) -> StoreKind:
    """The backend that wrote the segment."""
    return StoreKind.LOG if header.data_start == LOG_DATA_START else StoreKind.OBJECTS


def kind_of_folder(folder: str) -> StoreKind | None:
    """The backend that made a local folder; None if nothing tells. Changes nothing.

    Examples
    --------
    >>> import ckpt, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> kind_of_folder(folder) is None
    True
    >>> ckpt.open_backend(f"fsspec+file://{folder}").put_many("words", {b"be": b"2"})
    >>> kind_of_folder(folder)
    <StoreKind.OBJECTS: 'objects'>
    """
    header = _first_readable_header(os.path.join(folder, "segments"))
    if header is not None:
        return kind_of_header(header)
    is_log = any(os.path.exists(os.path.join(folder, name)) for name in LOG_NAMES)
    is_objects = os.path.exists(os.path.join(folder, "manifests"))
    if is_log == is_objects:
        return None
    return StoreKind.LOG if is_log else StoreKind.OBJECTS


def _first_readable_header(segments: str) -> SegmentHeader | None:
    try:
        names = sorted(name for name in os.listdir(segments) if name.endswith(".seg"))
    except OSError:
        return None  # opening the store reports this error
    for name in names:
        with contextlib.suppress(OSError, BadFrameError), open(os.path.join(segments, name), "rb") as file:
            return SegmentHeader.decode(file.read(HEADER_BYTES))
    return None
