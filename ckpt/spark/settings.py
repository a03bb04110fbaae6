"""One call prepares a Spark session; what cannot work is one clear error before a query starts.

The settings are ordinary Spark settings, so `session_settings` serves `ckpt spark conf` as well. An address
with a secret never becomes one: Spark shows its settings to everybody who can open its UI.
"""

from __future__ import annotations

import enum
import os
import re
import sys
from typing import Any, Protocol, TypeVar

from ckpt.config import parse_address
from ckpt.errors import ConfigError
from ckpt.registry import load_factory
from ckpt.spark.jar import provider_jar

PROVIDER_CLASS = "ckpt.spark.CkptStateStoreProvider"
_STATE_STORE = "spark.sql.streaming.stateStore"
_LOCAL_SCHEMES = frozenset({"log", "file", "memory", "fsspec+file", "fsspec+local"})
_ADDRESS_VARIABLE = "CKPT_SPARK_ADDRESS"
_VARIABLE = re.compile(r"env:([A-Za-z_]\w*)")


class Reach(enum.StrEnum):
    """Where an address leads to the same store."""

    AUTO = "auto"
    """A path leads to it on one host only, a server everywhere."""
    EVERYWHERE = "everywhere"
    """The path is shared storage, mounted at the same place on every host."""


class _Builder(Protocol):
    def config(self, key: str, value: str) -> Any: ...


BuilderT = TypeVar("BuilderT", bound=_Builder)


def configure(
    builder: BuilderT, address: str, *, python: str | None = None, reach: Reach | str = Reach.AUTO
) -> BuilderT:
    """Make the sessions of this builder keep the state of streaming queries in the backend at `address`.

    Call it after `master`, and before the session exists. `python` is the Python that has ckpt installed on
    every executor: this one if Spark runs on this machine, `python3` otherwise.

    Examples
    --------
    >>> from pyspark.sql import SparkSession                                     # doctest: +SKIP
    >>> builder = SparkSession.builder.master("local[2]")                        # doctest: +SKIP
    >>> spark = configure(builder, "log:///var/ckpt/shop").getOrCreate()         # doctest: +SKIP
    """
    given: dict[str, Any] = getattr(builder, "_options", {})
    master = given.get("spark.master") or os.environ.get("MASTER")
    _require_no_session()
    if _is_local(master) and _holds_a_secret(address):
        # Spark's JVM is started by this process and inherits its environment.
        os.environ[_ADDRESS_VARIABLE] = address
        address = f"env:{_ADDRESS_VARIABLE}"
    settings = session_settings(address, master=master, python=python, reach=reach)
    if jars := given.get("spark.jars"):
        settings["spark.jars"] = f"{jars},{settings['spark.jars']}"
    for name, value in settings.items():
        builder.config(name, value)
    return builder


def session_settings(
    address: str,
    *,
    master: str | None = None,
    python: str | None = None,
    reach: Reach | str = Reach.AUTO,
) -> dict[str, str]:
    """The settings of a session whose state is kept at `address`; ConfigError if executors cannot reach it.

    `env:NAME` instead of an address names an environment variable that holds it on every executor.
    """
    local = _is_local(master)
    if variable := _VARIABLE.fullmatch(address):
        if local and not os.environ.get(variable[1]):
            raise ConfigError(
                f"{variable[1]} is to hold the address, but is not set; set it before Spark starts"
            )
    else:
        _require_reachable(address, master, everywhere=Reach(reach) is Reach.EVERYWHERE)
    return {
        "spark.jars": provider_jar(),
        f"{_STATE_STORE}.providerClass": PROVIDER_CLASS,
        # Each attempt at a batch has an id of its own: no retry or speculative task changes another's state.
        f"{_STATE_STORE}.checkpointFormatVersion": "2",
        f"{_STATE_STORE}.ckpt.address": address,
        f"{_STATE_STORE}.ckpt.python": python or (sys.executable if local else "python3"),
    }


def _require_reachable(address: str, master: str | None, *, everywhere: bool) -> None:
    parsed = parse_address(address)
    load_factory(parsed.scheme)
    if _holds_a_secret(address):
        raise ConfigError(
            f"{parsed} holds a secret, which Spark would show in its UI; set the address as an environment "
            "variable on every executor and give env:NAME instead"
        )
    if parsed.scheme in _LOCAL_SCHEMES and not _is_local(master) and not everywhere:
        raise ConfigError(
            f"{parsed} is on one machine, but the executors of {master} run on others; use a server or an "
            "object store, or say reach='everywhere' if that path is shared storage on every host"
        )


def _is_local(master: str | None) -> bool:
    """Whether executors run on this machine; a master that nobody named is PySpark's default, `local[*]`."""
    return master is None or master.startswith("local")


def _holds_a_secret(address: str) -> bool:
    return not _VARIABLE.fullmatch(address) and "***" in str(parse_address(address))


def _require_no_session() -> None:
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and getattr(pyspark.SparkContext, "_active_spark_context", None) is not None:
        raise ConfigError(
            "a Spark session runs already, and a provider cannot be added to it; stop() it, then configure"
        )
