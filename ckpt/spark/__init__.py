"""Spark Structured Streaming on ckpt: the state of stateful operators in any backend.

`configure` prepares a session; `provider_jar` finds or builds the provider that Spark loads. The provider
itself is Scala, in `jvm`, and talks to the sidecar of its host (`ckpt.sidecar`). `read_state` shows the state
of a query as a table; `CkptDataSource` is the data source behind it. `Move` takes a query's state over from
Spark's own providers, and gives it back. `Rebalance` has the keys of queries placed by routing tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt.spark.jar import provider_jar
from ckpt.spark.moving import Keeper, Move
from ckpt.spark.rebalancing import Rebalance
from ckpt.spark.settings import Reach, RunningSidecar, configure, session_settings

if TYPE_CHECKING:
    from ckpt.spark.source import CkptDataSource, read_state

__all__ = [
    "CkptDataSource",
    "Keeper",
    "Move",
    "Reach",
    "Rebalance",
    "RunningSidecar",
    "configure",
    "provider_jar",
    "read_state",
    "session_settings",
]


def __getattr__(name: str) -> Any:
    """What needs PySpark and PyArrow is imported on first use: everything else here does without."""
    if name not in ("CkptDataSource", "read_state"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckpt.spark import source

    return getattr(source, name)
