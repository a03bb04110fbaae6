"""A commit that arrives as columns and leaves as the columns of one frame; no row is looked at twice.

The work that takes time is done before a lock is taken: the check of each value, and the index hash of
each key, by which repeated keys are noticed and which the next run of the index needs anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ckpt.types import Block, lengths_of
from ckpt_backends.engine.frame import MAX_FRAME_BYTES, MAX_RECORDS, Body, FrameKind
from ckpt_backends.engine.hashing import U64, hash_pieces


@dataclass(frozen=True, slots=True)
class Columns:
    """Puts and deletes of distinct keys that fit into one frame, ready to be written."""

    count: int
    deletes: int
    ends_and_checks: bytes
    """The three columns that a frame begins with."""
    keys: bytes
    values: bytes
    hashes: U64
    seed: int
    """What the keys were hashed with."""

    @classmethod
    def of(cls, puts: Block, deletes: Sequence[bytes], seed: int) -> Self | None:
        """The columns; None if a key may be there twice, or one frame cannot hold all of it.

        Examples
        --------
        >>> columns = Columns.of(Block.of([(b"be", b"2"), (b"or", b"1")]), [b"not"], seed=7)
        >>> columns.count, columns.keys
        (3, b'beornot')
        >>> Columns.of(Block.of([(b"be", b"2"), (b"be", b"3")]), [], seed=7) is None
        True
        """
        keys = b"".join((puts.keys, *deletes)) if deletes else bytes(puts.keys)
        values = bytes(puts.values)
        count = len(puts) + len(deletes)
        if count > MAX_RECORDS or len(keys) + len(values) > MAX_FRAME_BYTES:
            return None
        key_lengths = puts.key_lengths
        if deletes:
            key_lengths = np.concatenate((key_lengths, lengths_of(list(deletes))))
        hashes = hash_pieces(keys, key_lengths, seed)
        in_order = np.sort(hashes)
        if (in_order[1:] == in_order[:-1]).any():
            return None
        checks = hash_pieces(values, puts.value_lengths).astype("<u4")  # the low halves
        ends = (column.cumsum(dtype="<u4").tobytes() for column in (key_lengths, puts.value_lengths))
        return cls(count, len(deletes), b"".join((*ends, checks.tobytes())), keys, values, hashes, seed)

    def body(self, namespace: int, meta: bytes, seed: int) -> Body:
        """The one frame of the commit; `seed` is that of the index now.

        Where writers share a store, one that finds another's store in place of its own gets another index.
        """
        return Body(
            FrameKind.COMMIT,
            namespace,
            self.count,
            self.deletes,
            len(meta),
            len(self.keys),
            len(self.values),
            0,
            b"".join((self.ends_and_checks, meta, self.keys)),
            (self.values,),
            (),
            hashes=self.hashes if seed == self.seed else None,
        )
