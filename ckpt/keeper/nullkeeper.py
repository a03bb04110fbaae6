"""The null object: the surface of a SafeKeeper with no checkpoints behind it.

An operator runs unchanged without checkpointing. States given to `update` stay in memory, where `load` finds
them; `save` acknowledges and keeps nothing, since a checkpoint that survives nothing would be a lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from ckpt.contract.addresses import build_options
from ckpt.keeper.acks import Ack, AckCondition, settle_all
from ckpt.keeper.lanes import Accounts
from ckpt.keeper.namespace import KeyT, key_bytes
from ckpt.keeper.options import NamespaceOptions
from ckpt.keeper.snapshot import snapshot
from ckpt.types import check_namespace

_ACKED = AckCondition()
_USE_DEFAULT: Any = object()


class NullKeeper:
    """Takes what a SafeKeeper takes, and stores nothing.

    Examples
    --------
    >>> with NullKeeper() as keeper:
    ...     words = keeper.namespace("words", every_events=100)
    ...     words.save("be", {"count": 2}).result()
    ...     words.load("be", default="nothing")
    'nothing'
    """

    def namespace(self, name: str, **options: Any) -> NullNamespace:
        """A namespace of that name, with the same checks of its options."""
        return NullNamespace(check_namespace(name), build_options(NamespaceOptions, options, of="namespace"))

    def recover(self, **_: Any) -> dict[str, Any]:
        """There is nothing to recover."""
        return {}

    def checkpoint(self) -> list[Ack]:
        """Nothing is saved."""
        return []

    def tick(self) -> None:
        """Nothing is due."""

    def flush(self, timeout_s: float | None = None) -> None:
        """Nothing is pending."""

    def close(self) -> None:
        """Nothing is open."""

    def metrics(self) -> dict[str, Any]:
        """No numbers."""
        return {}

    def prometheus(self) -> str:
        """An empty page."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NullNamespace:
    """One operator's states, in memory only."""

    def __init__(self, name: str, options: NamespaceOptions) -> None:
        self.name = name
        self.options = options
        self._states: dict[bytes, Any] = {}

    def save(self, key: str | bytes, state: Any) -> Ack:
        """Acknowledged, and not stored; a state in memory is replaced."""
        raw = key_bytes(key)
        if raw in self._states:
            self._states[raw] = snapshot(state)
        return self._done(raw)

    def delete(self, key: str | bytes) -> Ack:
        """Forget the state in memory."""
        return self.evict(key)

    def update(self, key: str | bytes, state: Any) -> None:
        """The state is now this one."""
        self._states[key_bytes(key)] = snapshot(state)

    def checkpoint(self) -> list[Ack]:
        """Nothing is saved."""
        return []

    def evict(self, key: str | bytes) -> Ack:
        """Forget the state in memory."""
        raw = key_bytes(key)
        self._states.pop(raw, None)
        return self._done(raw)

    def discard(self, key: str | bytes) -> None:
        """Forget the state in memory."""
        self.evict(key)

    def load(self, key: str | bytes, default: Any = _USE_DEFAULT) -> Any:
        """The state in memory, or the default."""
        raw = key_bytes(key)
        if raw in self._states:
            return snapshot(self._states[raw])
        return snapshot(self.options.default) if default is _USE_DEFAULT else default

    def load_many(self, keys: Iterable[KeyT]) -> dict[KeyT, Any]:
        """The states in memory of those keys that have one."""
        return {key: self.load(key) for key in keys if key_bytes(key) in self._states}

    def recover(self, **_: Any) -> None:
        """There is nothing to recover."""

    def accounts(self) -> Accounts:
        """Nothing was submitted."""
        return Accounts(0, 0, 0, 0, 0, 0)

    def _done(self, key: bytes) -> Ack:
        ack = Ack(_ACKED, key, None, 0.0)
        settle_all(_ACKED, [(None, [ack], None)])
        return ack
