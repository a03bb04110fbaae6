"""One namespace in the queue, and what became of each of its saves.

At every instant: submitted = coalesced + dropped + failed + durable + pending.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt.acks import Ack
from ckpt.envelope import ValueCodec
from ckpt.errors import BackendUnavailableError, FencedError, QueueFullError, shown_key
from ckpt.states import LiveStates


class Overflow(enum.StrEnum):
    """What happens to a save of a new key when the queue is full. A save of a queued key always fits."""

    BLOCK = "block"
    """The caller waits for room."""
    COALESCE_ONLY = "coalesce-only"
    """There is no bound but one slot per key: nothing waits and nothing is dropped."""
    DROP_OLDEST = "drop-oldest"
    """The save that has waited longest is dropped."""
    DROP_NEW = "drop-new"
    """The new save is dropped."""
    ADAPT = "adapt"
    """Triggers slow down while the queue is full and recover afterwards; an explicit save waits for room."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What became of every save of a namespace."""

    submitted: int
    coalesced: int
    """Replaced in the queue by a newer save of the same key."""
    dropped: int
    """Refused by the overflow policy."""
    failed: int
    durable: int
    pending: int

    @property
    def balanced(self) -> bool:
        """The invariant; a test that finds it False has found a bug."""
        return self.submitted == self.coalesced + self.dropped + self.failed + self.durable + self.pending


class Lane:
    """One namespace in the queue: its slots, its accounts, its live states, and how to write it."""

    __slots__ = (
        "blind", "coalesced", "codec", "dropped", "durable", "expire_s", "failed", "fenced", "inflight",
        "live", "name", "queued", "submitted", "touched", "unreported",
    )  # fmt: skip

    def __init__(self, name: str, codec: ValueCodec, expire_s: float | None = None) -> None:
        self.name = name
        self.codec = codec
        self.expire_s = expire_s
        self.queued: dict[bytes, Ack] = {}
        self.inflight: dict[bytes, Ack] = {}
        self.live = LiveStates()
        self.submitted = self.coalesced = self.dropped = self.failed = self.durable = 0
        self.fenced: FencedError | None = None
        self.blind: set[bytes] = set()
        """Keys whose state began blank while the backend was unavailable."""
        self.touched: set[bytes] | None = None
        """Keys queued or updated while an eager recovery runs; what it fetches of them may be out of date."""
        self.unreported: dict[bytes, BaseException] = {}
        """Keys whose newest save failed and no flush has said so yet."""

    def accounts(self) -> Accounts:
        """A reading; the caller holds the lock."""
        pending = len(self.queued) + len(self.inflight)
        return Accounts(self.submitted, self.coalesced, self.dropped, self.failed, self.durable, pending)

    def is_plain(self) -> bool:
        """Whether nothing is to be done per key when a save is durable; the caller holds the lock."""
        return not (self.live.by_key or self.blind or self.unreported)

    def slot(self, key: bytes) -> Ack | None:
        """The newest save of the key that is not durable yet; the caller holds the lock."""
        return self.queued.get(key) or self.inflight.get(key)

    def dropped_error(self, key: bytes) -> QueueFullError:
        """What the overflow policy says to a save that it drops."""
        return QueueFullError(
            f"the save of key {shown_key(key)} of namespace {self.name!r} was dropped because the queue is "
            f"full; raise queue_saves, save less often, or choose another overflow policy"
        )

    def fenced_error(self, key: bytes) -> FencedError:
        """What saves get once another owner has the namespace."""
        return FencedError(f"key {shown_key(key)} of namespace {self.name!r} was not saved: {self.fenced}")

    def closed_error(self, key: bytes) -> BackendUnavailableError:
        """What saves get once the keeper is closing."""
        return BackendUnavailableError(
            f"key {shown_key(key)} of namespace {self.name!r} was not saved: the SafeKeeper is closed; "
            f"open a new one"
        )
