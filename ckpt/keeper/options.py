"""Every setting of a SafeKeeper and of its namespaces: typed, checked, and read by exactly one place."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields
from typing import Any

from ckpt.errors import ConfigError
from ckpt.keeper.lanes import Overflow
from ckpt.values.envelope import ValueCodec


class OnUnavailable(enum.StrEnum):
    """What `load` does while the backend cannot answer."""

    FAIL = "fail"
    """Raise BackendUnavailableError."""
    WAIT = "wait"
    """Try again for up to `wait_s`, then raise."""
    BLANK = "blank"
    """Return the default. If there is a checkpoint after all, saves of that key fail and it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """The settings of a SafeKeeper."""

    overflow: Overflow = Overflow.BLOCK
    """What happens when the queue is full."""
    queue_saves: int = 10_000
    """How many saves fit into the queue; one per key, since newer saves of a key replace older ones."""
    block_timeout_s: float | None = None
    """How long a save waits for room before it is dropped; None: as long as it takes."""
    max_batch_records: int = 4096
    """How many saves are written at once."""
    max_batch_bytes: int = 16 << 20
    """From which size on a batch is written without waiting for the rest of the queue."""
    retry_s: float = 30.0
    """How long a write is tried again while the backend is unavailable; 0: never."""
    fetch_timeout_s: float | None = 10.0
    """How long a load waits for the backend; None: for ever, and without a thread in between.

    A backend that reads in this process (`Capabilities.reads_in_process`) never waits: it is asked
    without that thread, whatever the timeout.
    """
    fetch_threads: int = 4
    """How many loads ask the backend at the same time."""
    fetch_queue: int = 64
    """How many more loads may wait for one of these threads; the next one fails at once."""
    breaker_failures: int = 5
    """After how many failed loads in a row the backend is left alone."""
    breaker_pause_s: float = 10.0
    """For how long; then one load is let through to find out."""
    close_timeout_s: float = 60.0
    """How long `close` waits for pending saves before it fails them."""

    def __post_init__(self) -> None:
        _check(self, "SafeKeeper", zero=("retry_s", "fetch_queue"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceOptions:
    """The settings of one namespace; the triggers decide when `update` becomes a checkpoint."""

    every_events: int | None = None
    """A state is saved after this many updates of its key."""
    every_s: float | None = None
    """Dirty states are saved this often."""
    ttl_s: float | None = None
    """A state that was not used for this long is evicted from memory, saved first if dirty."""
    max_states: int | None = None
    """How many states stay in memory; the least recently used one is evicted, saved first if dirty."""
    expire_s: float | None = None
    """A checkpoint is missing this long after it was written; needs a backend with the `ttl` capability."""
    on_unavailable: OnUnavailable = OnUnavailable.FAIL
    """What `load` does while the backend cannot answer."""
    wait_s: float = 30.0
    """How long `on_unavailable="wait"` waits."""
    default: Any = None
    """What `load` returns for a missing key; a new copy each time."""
    codec: ValueCodec | None = None
    """How states become bytes; None: as the keeper's codec says."""
    hot_keys: int = 1000
    """How many of the most updated keys are remembered for `recover(hot_first=True)`; 0: none."""

    @property
    def has_triggers(self) -> bool:
        """Whether anything but the operator itself makes checkpoints."""
        return (self.every_events, self.every_s, self.ttl_s, self.max_states) != (None,) * 4

    def __post_init__(self) -> None:
        _check(self, "namespace", zero=("hot_keys",))
        if not isinstance(self.codec, ValueCodec | None):
            raise ConfigError(f"namespace option codec is a ckpt.ValueCodec, got {type(self.codec).__name__}")


def _check(options: Any, of: str, *, zero: tuple[str, ...]) -> None:
    for item in fields(options):
        value = getattr(options, item.name)
        if isinstance(value, bool) or not isinstance(value, int | float) or item.name == "default":
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and item.name not in zero):
            least = "0 or more" if item.name in zero else "more than 0"
            raise ConfigError(f"{of} option {item.name} is {least}, got {value!r}")
