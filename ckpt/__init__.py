"""ckpt: checkpoint storage for stream state.

A `SafeKeeper` serialises per-key state and queues it asynchronously to a pluggable backend; a backend is
stable storage behind one contract.
"""

from __future__ import annotations

from ckpt.acks import Ack, SaveResult
from ckpt.backend import Backend, Capabilities
from ckpt.envelope import ValueCodec
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
from ckpt.keeper_file import open_keeper
from ckpt.keyring import Keyring
from ckpt.lanes import Accounts, Overflow
from ckpt.namespace import Namespace
from ckpt.nullkeeper import NullKeeper
from ckpt.options import KeeperOptions, NamespaceOptions, OnUnavailable
from ckpt.recovery import Recovery
from ckpt.registry import open_backend
from ckpt.safekeeper import SafeKeeper
from ckpt.types import Changes, CommitId, Epoch
from ckpt.versions import Commit

__version__ = "0.1.0"

__all__ = [
    "Accounts",
    "Ack",
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
    "KeeperOptions",
    "Keyring",
    "Namespace",
    "NamespaceOptions",
    "NullKeeper",
    "OnUnavailable",
    "Overflow",
    "QueueFullError",
    "Recovery",
    "SafeKeeper",
    "SaveResult",
    "SerializationError",
    "UnsupportedError",
    "ValueCodec",
    "VersionNotFoundError",
    "open_backend",
    "open_keeper",
]
