"""ckpt: checkpoint storage for stream state.

A `SafeKeeper` serialises per-key state and queues it asynchronously to a pluggable backend; a backend is
stable storage behind one contract.
"""

from __future__ import annotations

from ckpt.backend import Backend, Capabilities
from ckpt.errors import (
    BackendUnavailableError,
    BlankStateError,
    CkptError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    QueueFullError,
    SerializationError,
    UnsupportedError,
    VersionNotFoundError,
)
from ckpt.registry import open_backend
from ckpt.types import Changes, CommitId, Epoch
from ckpt.versions import Commit

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendUnavailableError",
    "BlankStateError",
    "Capabilities",
    "Changes",
    "CkptError",
    "Commit",
    "CommitId",
    "ConfigError",
    "CorruptRecordError",
    "Epoch",
    "FencedError",
    "QueueFullError",
    "SerializationError",
    "UnsupportedError",
    "VersionNotFoundError",
    "open_backend",
]
