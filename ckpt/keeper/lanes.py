"""One namespace in the queue, and what became of each of its saves: durable, failed, or given up.

The queue decides what is admitted, and holds its lock around every call here. At every instant: submitted =
coalesced + dropped + failed + durable + pending.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt.errors import BackendUnavailableError, FencedError, QueueFullError, shown_key
from ckpt.keeper.acks import Ack
from ckpt.keeper.states import LiveStates
from ckpt.values.envelope import ValueCodec

_MAX_UNREPORTED = 10_000


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

    # -- what became of saves --------------------------------------------------------------------

    def settle(self, acks: list[Ack], error: BaseException | None) -> list[Ack]:
        """Account for saves that were taken; those that were not given up meanwhile, to be acknowledged."""
        if isinstance(error, FencedError):
            self.fenced = error
        if error is None and len(acks) == len(self.inflight) and self.is_plain():
            # the whole of what was taken, with nothing to keep per key: no loop
            self.durable += len(acks)
            self.inflight = {}
            return acks
        known = [ack for ack in acks if self.inflight.pop(ack.key, None) is not None]
        for ack in known:
            if error is None:
                self._account_durable(ack)
            else:
                self._account_failed(ack, error)
        return known

    def give_up(self, error: BaseException) -> list[Ack]:
        """Everything that is pending has failed, to be acknowledged; what the writer reports of it later is
        ignored."""
        pending = [*self.queued.values(), *self.inflight.values()]
        for ack in pending:
            self._account_failed(ack, error)
        self.queued, self.inflight = {}, {}
        return pending

    def remember(self, key: bytes, error: BaseException) -> None:
        """The next flush says that the newest save of this key failed."""
        if len(self.unreported) < _MAX_UNREPORTED:
            self.unreported[key] = error

    def take_unreported(self) -> list[BaseException]:
        """The errors of keys whose newest save failed, each reported once."""
        failures = list(self.unreported.values())
        self.unreported.clear()
        return failures

    def _account_durable(self, ack: Ack) -> None:
        self.durable += 1
        if ack.entry is not None:
            self.live.cleaned(ack.key, ack.entry, ack.generation)
        if self.blind:
            self.blind.discard(ack.key)
        if self.unreported:
            self.unreported.pop(ack.key, None)

    def _account_failed(self, ack: Ack, error: BaseException) -> None:
        self.failed += 1
        self.remember(ack.key, error)
        if ack.entry is not None:
            self.live.failed(ack.key, ack.entry)

    # -- what a save is told that is not admitted ------------------------------------------------

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
