"""The options that every backend over an engine has: checked in the same words, before anything is opened."""

from __future__ import annotations

from typing import Protocol

from ckpt.errors import ConfigError
from ckpt_backends.engine.runs import MAX_SEGMENT_BYTES


class EngineOptions(Protocol):
    """What `LogOptions` and `FsspecOptions` share; each says what it means there."""

    @property
    def mode(self) -> str: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def recent_records(self) -> int: ...
    @property
    def gc(self) -> bool: ...
    @property
    def gc_trigger(self) -> float: ...
    @property
    def gc_select(self) -> float: ...


def check_engine_options(options: EngineOptions, *, of: str, least_segment_bytes: int) -> None:
    """Raise ConfigError, which names the option, unless each of them is within its bounds."""
    if options.mode not in ("read", "write"):
        raise ConfigError(f"{of} option mode is read or write, got {options.mode!r}")
    if not least_segment_bytes <= options.segment_bytes <= MAX_SEGMENT_BYTES:
        least_kib = least_segment_bytes >> 10
        raise ConfigError(
            f"{of} option segment_bytes is between {least_kib}KiB and 64MiB, got {options.segment_bytes}"
        )
    if options.recent_records < 1:
        raise ConfigError(f"{of} option recent_records is at least 1, got {options.recent_records}")
    for name in ("gc_trigger", "gc_select"):
        if not 0 < getattr(options, name) < 1:
            raise ConfigError(f"{of} option {name} is between 0 and 1, got {getattr(options, name)}")
