"""The few words that every room shares: identifiers, and what travels through the backend contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NewType

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
