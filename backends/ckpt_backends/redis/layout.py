"""Where everything stands in Redis: key names that are safe in a cluster, and cells that sort by key and age.

Every Redis key of a namespace carries the same hash tag, so one script or transaction never leaves a slot.
The tag is the namespace with percent escapes: readable, and free of braces.

| Redis key | type | holds |
| --- | --- | --- |
| `ckpt:names` | set | every namespace |
| `ckpt:{words}:ledger` | hash | records by number; `newest`, `oldest`; `place` of the rows; `stamp` |
| `ckpt:{words}:rows:PLACE` | hash | plain rows: key → value |
| `ckpt:{words}:order:PLACE` | sorted set | the keys of the rows, in the order of their bytes |
| `ckpt:{words}:expiry:PLACE` | sorted set | keys with a time to live, by when they may be swept, in ms |
| `ckpt:{words}:cells` | hash | cell name → value |
| `ckpt:{words}:cellorder` | sorted set | the names of the cells |

A **place** is `FENCE.MOVE`. A writer of rows names the place; a new fence moves the rows, by renaming, to
a place that older requests do not know, so a request that arrives late changes nothing that is read.

A **cell name** is the key with each byte 00 written as `00 FF`, then `00 01`, then the stamp as eight bytes,
big-endian, each bit inverted. So the cells of a key stand together, newest first, keys in their own order.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from ckpt.errors import CorruptRecordError

_END_OF_KEY, _AFTER_KEY = b"\x00\x01", b"\x00\x02"
_HIGHEST_STAMP = (1 << 64) - 1
STAMP_BYTES = 8


@dataclass(frozen=True, slots=True, order=True)
class RowPlace:
    """Where the plain rows of a namespace stand: under which fence, and how often they were moved under it.

    Rows only ever move to a higher place.

    Examples
    --------
    >>> RowPlace.parse(b"7.0").next(), str(RowPlace(7, 1))
    (RowPlace(fence=7, move=1), '7.1')
    """

    fence: int = 0
    move: int = 0

    def __str__(self) -> str:
        return f"{self.fence}.{self.move}"

    @classmethod
    def parse(cls, raw: bytes | None) -> RowPlace:
        """What the ledger says; nothing means the first place."""
        if raw is None:
            return cls()
        try:
            fence, _, move = raw.partition(b".")
            return cls(int(fence), int(move))
        except ValueError:
            raise CorruptRecordError(
                f"the place of the rows is {raw[:40]!r}, which is none; another program has written to the "
                "keys of this store: give each its own prefix"
            ) from None

    def next(self) -> RowPlace:
        """The same fence, but out of reach for requests that are still under way."""
        return RowPlace(self.fence, self.move + 1)


class RedisLayout:
    """The names of the Redis keys under one prefix.

    Examples
    --------
    >>> RedisLayout("ckpt").ledger("words"), RedisLayout("ckpt").ledger("a{b}")
    (b'ckpt:{words}:ledger', b'ckpt:{a%7Bb%7D}:ledger')
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.names = f"{prefix}:names".encode()
        self.flushes = f"{prefix}:flushes".encode()

    def ledger(self, namespace: str) -> bytes:
        """The hash with the records, the place and the stamps."""
        return self._key(namespace, "ledger")

    def rows(self, namespace: str, place: RowPlace) -> tuple[bytes, bytes, bytes]:
        """Rows, order and expiry at a place."""
        return (
            self._key(namespace, f"rows:{place}"),
            self._key(namespace, f"order:{place}"),
            self._key(namespace, f"expiry:{place}"),
        )

    def cells(self, namespace: str) -> tuple[bytes, bytes]:
        """Cells and their order."""
        return self._key(namespace, "cells"), self._key(namespace, "cellorder")

    def parked_cells(self, namespace: str) -> tuple[bytes, bytes]:
        """Where both are moved within a transaction that is refused; no reader ever sees them there."""
        return self._key(namespace, "cells:aside"), self._key(namespace, "cellorder:aside")

    def _key(self, namespace: str, what: str) -> bytes:
        return f"{self._prefix}:{{{quote(namespace, safe='')}}}:{what}".encode()


def stamp_suffix(stamp: int) -> bytes:
    """What follows an escaped key in the name of its cell with this stamp."""
    return _END_OF_KEY + (_HIGHEST_STAMP - stamp).to_bytes(STAMP_BYTES, "big")


def escaped(key: bytes) -> bytes:
    """The key as the start of a cell name: no escaped key followed by its end is the start of another."""
    return key.replace(b"\x00", b"\x00\xff")


def cell_name(key: bytes, stamp: int) -> bytes:
    """The name of one cell.

    Examples
    --------
    >>> split_cell_name(cell_name(b"a\\0b", 7))
    (b'a\\x00b', 7)
    >>> cell_name(b"a", 2) < cell_name(b"a", 1) < cell_name(b"a\\0", 9)
    True
    """
    return escaped(key) + stamp_suffix(stamp)


def split_cell_name(name: bytes) -> tuple[bytes, int]:
    """The key and the stamp of a cell."""
    key = name[: -STAMP_BYTES - len(_END_OF_KEY)].replace(b"\x00\xff", b"\x00")
    return key, _HIGHEST_STAMP - int.from_bytes(name[-STAMP_BYTES:], "big")


def cells_up_to(key: bytes, stamp: int) -> tuple[bytes, bytes]:
    """A range of names, as Redis takes it: the cells of a key with this stamp or a lower one."""
    start = escaped(key)
    return b"[" + start + stamp_suffix(stamp), b"(" + start + _AFTER_KEY


def starting_with(prefix: bytes) -> tuple[bytes, bytes]:
    """A range of names, as Redis takes it: everything that starts with these bytes.

    Examples
    --------
    >>> starting_with(b"ab"), starting_with(b"a\\xff"), starting_with(b"")
    ((b'[ab', b'(ac'), (b'[a\\xff', b'(b'), (b'-', b'+'))
    """
    if not prefix:
        return b"-", b"+"
    end = prefix.rstrip(b"\xff")
    return b"[" + prefix, b"(" + end[:-1] + bytes([end[-1] + 1]) if end else b"+"


def after(name: bytes) -> bytes:
    """The start of a range, as Redis takes it: whatever follows this name."""
    return b"(" + name
