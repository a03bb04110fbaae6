"""The few words that every room shares: identifiers, and what travels through the backend contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NewType, Self

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError

CommitId = NewType("CommitId", str)
"""Names one commit of a versioned namespace. Unique in its namespace, kept by `ckpt copy`."""

Epoch = NewType("Epoch", int)
"""How often a plain namespace has changed owner; a higher epoch fences every lower one."""

MAX_NAMESPACE_BYTES = 1024
MAX_COMMIT_ID_BYTES = 128


@dataclass(frozen=True, slots=True)
class Changes:
    """What one batch does to one plain namespace: puts and deletes of disjoint keys."""

    puts: Mapping[bytes, bytes] = field(default_factory=dict)
    deletes: Iterable[bytes] = ()
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows as columns: what many (key, value) pairs are while nobody looks at a single one.

    Examples
    --------
    >>> block = Block.of([(b"be", b"2"), (b"or", b"10")])
    >>> len(block), bytes(block.keys), block.value_lengths.tolist()
    (2, b'beor', [1, 2])
    >>> list(block.rows())
    [(b'be', b'2'), (b'or', b'10')]
    """

    key_lengths: npt.NDArray[np.uint32]
    value_lengths: npt.NDArray[np.uint32]
    keys: bytes | memoryview
    """All keys, one after the other."""
    values: bytes | memoryview
    """All values, in the order of their keys."""

    @classmethod
    def of(cls, rows: Iterable[tuple[bytes, bytes]]) -> Self:
        """The block of these rows."""
        listed = list(rows)
        keys, values = [key for key, _ in listed], [value for _, value in listed]
        return cls(lengths_of(keys), lengths_of(values), b"".join(keys), b"".join(values))

    def __len__(self) -> int:
        return len(self.key_lengths)

    @property
    def total_bytes(self) -> int:
        """How long all keys and values are together."""
        return len(self.keys) + len(self.values)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (key, value)."""
        return zip(cut(self.keys, self.key_lengths), cut(self.values, self.value_lengths), strict=True)


def lengths_of(items: list[bytes]) -> npt.NDArray[np.uint32]:
    """The column of lengths of some keys or values."""
    return np.fromiter(map(len, items), np.uint32, len(items))


def cut(blob: bytes | memoryview, lengths: npt.NDArray[np.uint32]) -> list[bytes]:
    """The inverse of joining: each piece as bytes of its own.

    Examples
    --------
    >>> cut(b"beor", np.array([2, 0, 2], np.uint32))
    [b'be', b'', b'or']
    """
    owned = bytes(blob)  # slices of bytes cost half of what slices of a view do
    ends = lengths.cumsum(dtype=np.int64).tolist()
    return [owned[start:end] for start, end in pairwise([0, *ends])]


def check_namespace(namespace: str) -> str:
    """The namespace, or a ConfigError that says what a namespace may look like.

    Examples
    --------
    >>> check_namespace("words")
    'words'
    >>> check_namespace("")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: a namespace must be a non-empty string of at most 1024 UTF-8 bytes, got ''
    """
    if isinstance(namespace, str) and namespace:
        try:
            if len(namespace) * 4 <= MAX_NAMESPACE_BYTES or len(namespace.encode()) <= MAX_NAMESPACE_BYTES:
                if not namespace.isascii():
                    namespace.encode()
                return namespace
        except UnicodeEncodeError:
            pass
    shown = repr(namespace) if len(repr(namespace)) <= 80 else repr(namespace)[:80] + "…"
    raise ConfigError(
        f"a namespace must be a non-empty string of at most {MAX_NAMESPACE_BYTES} UTF-8 bytes, got {shown}"
    )


def check_commit_id(commit_id: str) -> CommitId:
    """The commit id, or a ConfigError: 1 to 128 printable ASCII characters without white space."""
    if (
        isinstance(commit_id, str)
        and 0 < len(commit_id) <= MAX_COMMIT_ID_BYTES
        and commit_id.isascii()
        and commit_id.isprintable()
        and " " not in commit_id
    ):
        return CommitId(commit_id)
    raise ConfigError(
        f"a commit id is 1 to {MAX_COMMIT_ID_BYTES} printable ASCII characters without spaces, "
        f"got {commit_id!r:.80}"
    )
