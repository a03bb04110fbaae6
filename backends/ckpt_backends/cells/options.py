"""The options that every server backend has; each adds its own by inheriting from `CellOptions`."""

from __future__ import annotations

from dataclasses import dataclass

from ckpt.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """How long to wait for a server, and how long what was truncated stays for running readers."""

    mode: str = "write"
    """`write`, or `read`: nothing is ever written or created, and the store must exist."""
    timeout_s: float = 10.0
    """The longest that one request to the server may take."""
    retry_s: float = 15.0
    """How long a failed request is repeated, with growing pauses, before the call raises."""
    grace_s: float = 60.0
    """How long truncated versions stay readable for a scan of another handle; clocks may differ by half."""

    def __post_init__(self) -> None:
        if self.mode not in ("read", "write"):
            raise ConfigError(f"option mode is read or write, got {self.mode!r}")
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s is a positive number of seconds, got {self.timeout_s!r}")
        if not self.retry_s >= 0 or not self.grace_s >= 0:
            raise ConfigError("retry_s and grace_s are numbers of seconds from 0")
