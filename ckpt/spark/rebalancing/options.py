"""What a session is told about rebalancing."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError

MODE_SETTING = "spark.sql.streaming.stateStore.ckpt.rebalance.mode"


class Mode(enum.StrEnum):
    """Who places the keys of stateful operators."""

    OFF = "off"
    """Spark's hash; a query whose keys a table has placed is refused."""
    APPLY = "apply"
    """The routing tables of each query; where it has none, Spark's hash."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """How the keys of a session's stateful queries are placed.

    Examples
    --------
    >>> Rebalance().settings()
    {'spark.sql.streaming.stateStore.ckpt.rebalance.mode': 'apply'}
    >>> Rebalance(mode="aply")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: no mode 'aply'; did you mean 'apply'?
    """

    mode: Mode | str = Mode.APPLY

    def __post_init__(self) -> None:
        known = [mode.value for mode in Mode]
        if self.mode not in known:
            raise ConfigError(f"no mode {str(self.mode)!r}; {suggestion(str(self.mode), known)}")

    def settings(self) -> dict[str, str]:
        """What Spark is told about it."""
        return {MODE_SETTING: str(self.mode)}
