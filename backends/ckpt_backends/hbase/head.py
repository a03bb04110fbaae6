"""The head of a plain namespace: which stamps its readers see. A batch counts once the head says so.

Every batch writes its rows under a stamp of its own, which is the timestamp of its cells. The head, one cell
that only compare-and-set changes, says which stamps count:

- `next`: the next stamp to be given. What is at or above it is not seen.
- `running`: stamps of batches that are being written, with the handle that writes them: not seen yet. The
  batch counts once its stamp is taken out of here, so a batch is seen whole or not at all.
- `hidden`: stamps of batches that were running when a fence went up: never seen, however late they come.
- `floor`: what is below it was dropped.
- `swept`: below it, nothing hidden lies on top of a row any more.

| bytes | content |
| --- | --- |
| 1 | format, 1 |
| 8 | random, so that no head is ever stored twice and compare-and-set is exact |
| 8 8 8 8 | fence, next, floor, swept |
| 1 | flags: 1 = some value of the namespace is or was in parts |
| 4 4 | how many stamps are running, and hidden |
| 16 each | running: stamp, handle |
| 8 each | hidden: stamp |
| 8 | xxh3-64 of all of it |

All numbers are big-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from xxhash import xxh3_64_intdigest

from ckpt.errors import CorruptRecordError

HANDLE_BYTES = 8

_FORMAT = 1
_FIXED = struct.Struct(">B8sQQQQBII")
_RUNNING = struct.Struct(">Q8s")
_HIDDEN = struct.Struct(">Q")
_CHECK = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Head:
    """One state of a head. The methods make the states that may follow.

    Examples
    --------
    >>> head, stamp = Head().registered(b"writer-1")
    >>> stamp, head.shows(stamp)
    (1, False)
    >>> head.finished([stamp]).shows(stamp)
    True
    >>> late = head.fenced(7, own=())
    >>> late.fence, late.finished([stamp]).shows(stamp)
    (7, False)
    """

    fence: int = 0
    next: int = 1
    floor: int = 1
    swept: int = 1
    has_parts: bool = False
    running: dict[int, bytes] = field(default_factory=dict)
    hidden: frozenset[int] = frozenset()
    raw: bytes | None = field(default=None, compare=False)
    """As it is stored; None as long as it is not."""

    def shows(self, stamp: int) -> bool:
        """Whether readers see what was written under this stamp."""
        return self.floor <= stamp < self.next and stamp not in self.running and stamp not in self.hidden

    @property
    def piled_up(self) -> int:
        """How many batches that never count may lie on top of one row."""
        return sum(stamp >= self.swept for stamp in self.hidden)

    # -- what may follow -------------------------------------------------------------------------

    def registered(self, handle: bytes, *, has_parts: bool = False) -> tuple[Head, int]:
        """With one more batch running, and its stamp."""
        following = replace(
            self,
            next=self.next + 1,
            has_parts=self.has_parts or has_parts,
            running={**self.running, self.next: handle},
        )
        return following, self.next

    def finished(self, stamps: Collection[int]) -> Head:
        """With these batches counting: also for taking back stamps under which nothing was written."""
        left = {stamp: handle for stamp, handle in self.running.items() if stamp not in stamps}
        return replace(self, running=left)

    def abandoned(self, stamps: Collection[int]) -> Head:
        """With batches that will never count."""
        late = {stamp for stamp in stamps if stamp in self.running}
        return replace(self.finished(stamps), hidden=self.hidden | late)

    def fenced(self, fence: int, own: Collection[int]) -> Head:
        """With a higher fence: what runs now never counts, but for `own` stamps that were not used yet."""
        late = {stamp for stamp in self.running if stamp not in own}
        return replace(self, fence=fence, running={}, hidden=self.hidden | late)

    def cleared(self) -> Head:
        """With nothing of what is there counting any more."""
        return replace(self, floor=self.next, running={}, hidden=frozenset(), has_parts=False)

    def with_copies(self) -> Head:
        """With a stamp, the highest, under which what counts may be copied: it counts at once."""
        return replace(self, next=self.next + 1)

    def swept_below(self, stamp: int) -> Head:
        """With copies on top of everything hidden below a stamp."""
        return replace(self, swept=max(self.swept, stamp))

    # -- bytes -----------------------------------------------------------------------------------

    def encoded(self) -> bytes:
        """The bytes of this state, different each time."""
        fixed = _FIXED.pack(
            _FORMAT,
            os.urandom(8),
            self.fence,
            self.next,
            self.floor,
            self.swept,
            self.has_parts,
            len(self.running),
            len(self.hidden),
        )
        running = b"".join(_RUNNING.pack(stamp, handle) for stamp, handle in self.running.items())
        body = fixed + running + b"".join(map(_HIDDEN.pack, sorted(self.hidden)))
        return body + _CHECK.pack(xxh3_64_intdigest(body))

    @classmethod
    def decode(cls, raw: bytes | None) -> Head:
        """The state that these bytes are; the first one for None."""
        if raw is None:
            return cls()
        body, check = raw[: -_CHECK.size], raw[-_CHECK.size :]
        if len(body) < _FIXED.size or check != _CHECK.pack(xxh3_64_intdigest(body)) or raw[0] != _FORMAT:
            raise CorruptRecordError(
                "the head of a namespace (meta:plain) is damaged, or newer than this version of ckpt; "
                "update ckpt, or restore the namespace from a copy"
            )
        _, _, fence, following, floor, swept, flags, running, _ = _FIXED.unpack_from(body)
        middle = _FIXED.size + running * _RUNNING.size
        return cls(
            fence,
            following,
            floor,
            swept,
            bool(flags & 1),
            dict(_RUNNING.iter_unpack(body[_FIXED.size : middle])),
            frozenset(stamp for (stamp,) in _HIDDEN.iter_unpack(body[middle:])),
            raw,
        )
