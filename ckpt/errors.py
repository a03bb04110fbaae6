"""Every exception that ckpt raises on purpose, in one tree.

Messages name the namespace, the key (shortened), the backend and the next step. They never contain a
value: state may be secret, and an error message travels far.

```
CkptError
├── ConfigError               an address, an option or an argument is wrong
├── BackendUnavailableError   the store did not answer, or cannot accept writes now: try again later
├── CorruptRecordError        bytes were read that are not the bytes that were written
├── FencedError               another owner has taken the namespace over
├── QueueFullError            the overflow policy refused or dropped a save
├── UnsupportedError          this backend, or this kind of namespace, cannot do that
├── SerializationError        a state could not be turned into bytes, or back
├── VersionNotFoundError      a version or commit that was never made, or was truncated
└── BlankStateError           a save from a blank start would have replaced a newer checkpoint
```
"""

from __future__ import annotations

_SHOWN_KEY_BYTES = 48


class CkptError(Exception):
    """The root of everything that ckpt raises on purpose."""


class ConfigError(CkptError, ValueError):
    """An address, an option or an argument is wrong; nothing was read or written."""


class BackendUnavailableError(CkptError):
    """The store did not answer, or cannot accept writes now. This says nothing about whether a key exists."""


class CorruptRecordError(CkptError):
    """The stored bytes are not the bytes that were written."""


class FencedError(CkptError):
    """Another owner has taken the namespace over; this handle must stop writing to it."""


class QueueFullError(CkptError):
    """The SafeKeeper's overflow policy refused or dropped this save."""


class UnsupportedError(CkptError):
    """This backend, or this kind of namespace, cannot do what was asked."""


class SerializationError(CkptError):
    """A state could not be turned into bytes, or bytes into a state."""


class VersionNotFoundError(CkptError, LookupError):
    """The version or commit was never made, or was truncated. This is not the same as an empty one."""


class BlankStateError(CkptError):
    """A state that started blank while the backend was unavailable would have replaced a checkpoint."""


def shown_key(key: bytes | str) -> str:
    """A key as it may stand in a message: readable, one line, and at most a few dozen characters.

    Examples
    --------
    >>> shown_key(b"be")
    "b'be'"
    >>> shown_key(b"x" * 100)
    "b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'… (100 bytes)"
    """
    raw = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)
    if len(raw) <= _SHOWN_KEY_BYTES:
        return repr(raw)
    return f"{raw[:_SHOWN_KEY_BYTES]!r}… ({len(raw)} bytes)"
