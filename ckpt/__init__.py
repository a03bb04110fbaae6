"""ckpt: checkpoint storage for stream state.

A `SafeKeeper` serialises per-key state and queues it asynchronously to a pluggable backend; a backend is
stable storage behind one contract.
"""

from __future__ import annotations

from ckpt.contract.backend import Backend, Capabilities
from ckpt.contract.registry import open_backend
from ckpt.contract.versions import Commit
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
from ckpt.keeper.acks import Ack, SaveResult
from ckpt.keeper.files import open_keeper
from ckpt.keeper.lanes import Accounts, Overflow
from ckpt.keeper.namespace import Namespace
from ckpt.keeper.nullkeeper import NullKeeper
from ckpt.keeper.options import KeeperOptions, NamespaceOptions, OnUnavailable
from ckpt.keeper.recovery import Recovery
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt.types import Changes, CommitId, Epoch
from ckpt.values.envelope import ValueCodec
from ckpt.values.keyring import Keyring

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
