"""One call prepares a Spark session; what cannot work is one clear error before a query starts.

The settings are ordinary Spark settings, so `session_settings` serves `ckpt spark conf` as well. An address
with a secret never becomes one, because Spark's UI shows its settings.
"""

from __future__ import annotations

import enum
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ckpt.contract.addresses import parse_address, suggestion
from ckpt.contract.registry import load_factory
from ckpt.dev import tools
from ckpt.errors import ConfigError
from ckpt.spark.check import check_address, check_sidecar
from ckpt.spark.existing_settings import existing_settings, extended, running_jvm, take_into_running_jvm
from ckpt.spark.jar import LEAST_JAVA, provider_jar
from ckpt.spark.rebalancing.options import Mode, Rebalance

PROVIDER_CLASS = "ckpt.spark.CkptStateStoreProvider"
EXTENSIONS_CLASS = "ckpt.spark.CkptExtensions"
_STATE_STORE = "spark.sql.streaming.stateStore"
ADDRESS_SETTING = f"{_STATE_STORE}.ckpt.address"
_LOCAL_SCHEMES = frozenset({"log", "file", "memory", "fsspec+file", "fsspec+local"})
_OF_ONE_SIDECAR = frozenset({"log", "memory"})
"""What one process has open: a second host cannot share it, whatever storage its path is on."""
_PORT = r"0*(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_HOST_AND_PORT = re.compile(rf"\[?[^\[\]]+\]?:{_PORT}")
_A_SECOND_OR_MORE = re.compile(r"0*([1-9]\d*(s|m|min|h|d)?|[1-9]\d{3,}ms|[1-9]\d{6,}us)", re.IGNORECASE)
_VARIABLE = re.compile(r"env:([A-Za-z_]\w*)")
_ANY = re.compile(".+")
_KNOWN = {
    "address": (_ANY, "an address"),
    "python": (_ANY, "a Python"),
    "sidecar": (_HOST_AND_PORT, "HOST:PORT with a port up to 65535"),
    "sidecar.token": (_VARIABLE, "env:NAME"),
    "sidecar.ca": (_ANY, "a PEM file"),
    "timeout": (_A_SECOND_OR_MORE, "a time such as 120s, of at least 1s"),
    "metrics": (_HOST_AND_PORT, "HOST:PORT with a port up to 65535"),
    "memory": (re.compile(r"off|\d+(?i:[kmgtp]?b|[kmgtp])?"), "an amount such as 512m, or off"),
    "recovery": (re.compile("eager|lazy"), "eager or lazy"),
    "rebalance.mode": (re.compile("|".join(Mode)), " or ".join(Mode)),
}
"""The settings of the provider, as Settings.scala reads them, and what it understands."""
_ADDRESS_VARIABLE = "CKPT_SPARK_ADDRESS"


class Reach(enum.StrEnum):
    """Where an address leads to the same store."""

    AUTO = "auto"
    """A path leads to it on one host only, a server everywhere."""
    HOST = "host"
    """All executors run on one host, which has the path, and as one user, so that they share a sidecar."""
    EVERYWHERE = "everywhere"
    """The path is shared storage, mounted at the same place on every host."""


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """A sidecar that runs already (`ckpt serve ADDRESS --listen HOST:PORT`), which executors use over TCP."""

    name: str
    """Its host and port."""
    token: str = "env:CKPT_TOKEN"
    """The environment variable that holds its token on every executor."""
    ca: str | os.PathLike[str] | None = None
    """The certificates that vouch for it, in a PEM file that is on every executor; none: no TLS."""

    def __post_init__(self) -> None:
        if not _HOST_AND_PORT.fullmatch(self.name):
            raise ConfigError(
                f"a sidecar is HOST:PORT such as db1:7077, ports end at 65535, got {self.name!r}"
            )
        if not _VARIABLE.fullmatch(self.token):
            raise ConfigError(
                "a token does not belong into settings, which Spark shows in its UI; set it as an "
                "environment variable on every executor and give env:NAME instead"
            )

    def check(self) -> None:
        """Return if it lets this process in; ConfigError or BackendUnavailableError says why not."""
        check_sidecar(self.name, held_by(self.token, "the sidecar's token"), self.ca)

    def settings(self) -> dict[str, str]:
        """What Spark is told about it."""
        told = {"sidecar": self.name, "sidecar.token": self.token}
        if self.ca is not None:
            told["sidecar.ca"] = os.fspath(self.ca)
        return {f"{_STATE_STORE}.ckpt.{name}": value for name, value in told.items()}


class _Builder(Protocol):
    def config(self, key: str, value: str) -> Any: ...


BuilderT = TypeVar("BuilderT", bound=_Builder)


def configure(
    builder: BuilderT,
    address: str,
    *,
    python: str | os.PathLike[str] | None = None,
    reach: Reach | str = Reach.AUTO,
    sidecar: RunningSidecar | None = None,
    rebalance: Rebalance | None = None,
    check: bool | None = None,
) -> BuilderT:
    """Make the sessions of this builder keep the state of streaming queries in the backend at `address`.

    Call it after `master`, and before the session exists. `python` is the Python that has ckpt installed on
    every executor: this one if Spark runs on this machine, `python3` otherwise. With a `sidecar` that serves
    the address, executors start none and need not reach the address themselves. `rebalance` says who places
    the keys of queries; None: Spark's hash. `check` says whether to try address or sidecar from here first,
    as an executor would; that is done if Spark runs on this machine.

    Examples
    --------
    >>> from pyspark.sql import SparkSession                                     # doctest: +SKIP
    >>> builder = SparkSession.builder.master("local[2]")                        # doctest: +SKIP
    >>> spark = configure(builder, "log:///var/ckpt/shop").getOrCreate()         # doctest: +SKIP
    """
    _require_text(address)
    _require_no_session()
    existing = {**existing_settings(), **getattr(builder, "_options", {})}
    _require_classic(existing)
    require_known(existing)
    master = existing.get("spark.master") or os.environ.get("MASTER")
    jvm = running_jvm()
    if jvm is None:
        tools.require_java_of_the_environment("Spark", LEAST_JAVA)
    if _is_local(master) and _holds_a_secret(address):
        # Spark's JVM is started by this process and inherits its environment.
        if jvm is not None and jvm.java.lang.System.getenv(_ADDRESS_VARIABLE) != address:
            raise ConfigError(
                f"{parse_address(address)} holds a secret, and Spark's JVM runs already; set the address as "
                "an environment variable before it starts, and give env:NAME instead"
            )
        os.environ[_ADDRESS_VARIABLE] = address
        address = f"env:{_ADDRESS_VARIABLE}"
    settings = session_settings(
        address, master=master, python=python, reach=reach, sidecar=sidecar, rebalance=rebalance
    )
    take_into_running_jvm(settings["spark.jars"], PROVIDER_CLASS)
    settings = extended(settings, existing)
    if _is_local(master) if check is None else check:
        if sidecar is None:
            check_address(address_of(address), settings[f"{_STATE_STORE}.ckpt.python"])
        else:
            sidecar.check()
    for name, value in settings.items():
        builder.config(name, value)
    return builder


def session_settings(
    address: str,
    *,
    master: str | None = None,
    python: str | os.PathLike[str] | None = None,
    reach: Reach | str = Reach.AUTO,
    sidecar: RunningSidecar | None = None,
    rebalance: Rebalance | None = None,
) -> dict[str, str]:
    """The settings of a session whose state is kept at `address`; ConfigError if executors cannot reach it.

    `env:NAME` instead of an address names an environment variable that holds it on every executor.
    """
    _require_text(address)
    where, local = _reach(reach), _is_local(master)
    variable = _VARIABLE.fullmatch(address)
    if variable is None:
        _require_no_secret(address)
    elif local and sidecar is None:
        address_of(address)
    if sidecar is None and (variable is None or os.environ.get(variable[1])):
        _require_reachable(address_of(address), master, where)
    return {
        "spark.jars": provider_jar(),
        # transformWithState accepts only Spark's own providers; this is what makes it accept ours.
        "spark.sql.extensions": EXTENSIONS_CLASS,
        f"{_STATE_STORE}.providerClass": PROVIDER_CLASS,
        # Each attempt at a batch has an id of its own: no retry or speculative task changes another's state.
        f"{_STATE_STORE}.checkpointFormatVersion": "2",
        ADDRESS_SETTING: address,
        f"{_STATE_STORE}.ckpt.python": os.fspath(
            python or (sys.executable if local or where is Reach.HOST else "python3")
        ),
        **({} if sidecar is None else sidecar.settings()),
        **({} if rebalance is None else rebalance.settings()),
    }


def is_of_one_machine(address: str) -> bool:
    """Whether an address leads to a store of this machine only; False for `env:NAME`, which is unknown."""
    return _VARIABLE.fullmatch(address) is None and parse_address(address).scheme in _LOCAL_SCHEMES


def address_of(address: str) -> str:
    """The address itself: what the environment variable holds that `env:NAME` names."""
    return held_by(address, "the address")


def held_by(text: str, what: str) -> str:
    """The text itself, or what the environment variable holds that `env:NAME` names."""
    variable = _VARIABLE.fullmatch(text)
    if variable is None:
        return text
    held = os.environ.get(variable[1])
    if not held:
        raise ConfigError(f"{variable[1]} is to hold {what}, but is not set; set it before Spark starts")
    return held


def require_known(existing: Mapping[str, Any]) -> None:
    """ConfigError if a setting of the provider does not exist or has a value that is not understood."""
    prefix = f"{_STATE_STORE}.ckpt."
    for name, value in existing.items():
        if not name.startswith(prefix):
            continue
        rest = name.removeprefix(prefix)
        if rest not in _KNOWN:
            raise ConfigError(f"no setting {name}; {suggestion(rest, _KNOWN)}")
        pattern, what = _KNOWN[rest]
        if not pattern.fullmatch(str(value).strip()):
            shown = "" if pattern is _VARIABLE else f", and not {value!r}"  # it may be the token itself
            raise ConfigError(f"{name} is {what}{shown}")


def _require_text(address: object) -> None:
    """A path is no address: it does not say which backend is meant."""
    if not isinstance(address, str):
        parse_address(address)  # type: ignore[arg-type] # it says what an address is


def _require_no_secret(address: str) -> None:
    if _holds_a_secret(address):
        raise ConfigError(
            f"{parse_address(address)} holds a secret, which Spark would show in its UI; set the address as "
            "an environment variable on every executor and give env:NAME instead"
        )


def _require_reachable(address: str, master: str | None, reach: Reach) -> None:
    parsed = parse_address(address)
    load_factory(parsed.scheme)
    if parsed.scheme not in _LOCAL_SCHEMES or _is_local(master) or reach is Reach.HOST:
        return
    one_host = "reach='host' if all executors run on one host, and as one user"
    if parsed.scheme in _OF_ONE_SIDECAR:
        # On storage that hosts share, the second one would find it in use, or, worse, not notice.
        shared = f"fsspec+file://{parsed.path}" if parsed.scheme == "log" else "fsspec+file:///PATH"
        raise ConfigError(
            f"{parsed} has one writer, but the executors of {master} run on several hosts; use a server, an "
            f"object store, or {shared} with reach='everywhere' on storage that every host mounts; {one_host}"
        )
    if reach is not Reach.EVERYWHERE:
        raise ConfigError(
            f"{parsed} is on one machine, but the executors of {master} run on others; use a server or an "
            "object store, or say reach='everywhere' if that path is shared storage on every host; "
            f"{one_host}"
        )


def _reach(reach: Reach | str) -> Reach:
    try:
        return Reach(reach)
    except ValueError:
        known = [each.value for each in Reach]
        raise ConfigError(f"no reach {str(reach)!r}; {suggestion(str(reach), known)}") from None


def _is_local(master: str | None) -> bool:
    """Whether executors run on this machine; without a master it is PySpark's default, `local[*]`."""
    return master is None or master.startswith("local")


def _holds_a_secret(address: str) -> bool:
    return not _VARIABLE.fullmatch(address) and "***" in str(parse_address(address))


def _require_no_session() -> None:
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and getattr(pyspark.SparkContext, "_active_spark_context", None) is not None:
        raise ConfigError(
            "a Spark session runs already, and a provider cannot be added to it; stop() it, then configure"
        )


def _require_classic(existing: Mapping[str, Any]) -> None:
    remote = existing.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    mode = existing.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", "")
    if remote or mode.lower() == "connect":
        raise ConfigError(
            "a session of Spark Connect has the settings of its server, and takes none from here; start the "
            "server with them: ckpt spark conf ADDRESS > ckpt.conf, and then "
            "start-connect-server.sh --properties-file ckpt.conf"
        )
