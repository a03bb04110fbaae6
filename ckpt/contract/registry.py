"""From an address to an open backend: schemes, lazy imports, install hints, entry points.

A backend's module is imported on first use, so a missing driver is one sentence with the command that
installs it, and costs programs that do not use it nothing. Third parties register a scheme with an entry
point in the group `ckpt.backends`:

```toml
[project.entry-points."ckpt.backends"]
mine = "my_package:MyBackend"
```

A backend class offers `from_address(address, **extra) -> Backend`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, cast

from ckpt.contract.addresses import Address, parse_address, suggestion
from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError

ENTRY_POINT_GROUP = "ckpt.backends"


class BackendFactory(Protocol):
    """What a scheme resolves to: usually the backend class itself."""

    def from_address(self, address: Address, **extra: Any) -> Backend:
        """Open the backend that the address names."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a scheme's class is, and which extra brings its driver."""

    target: str
    extra: str | None = None


_BUILTIN: dict[str, Registered] = {
    "memory": Registered("ckpt_backends.memory:MemoryBackend"),
    "file": Registered("ckpt_backends.file.backend:FileBackend"),
    "log": Registered("ckpt_backends.log:LogBackend"),
    "fsspec": Registered("ckpt_backends.objects.backend:FsspecBackend"),
    "cassandra": Registered("ckpt_backends.cassandra:CassandraBackend", extra="cassandra"),
    "hbase": Registered("ckpt_backends.hbase:HBaseBackend", extra="hbase"),
    "redis": Registered("ckpt_backends.redis:RedisBackend", extra="redis"),
}
_ALIASES = {"rediss": "redis"}
"""Schemes that say how to speak to a server that has a scheme already."""


def schemes() -> list[str]:
    """Every scheme that `open_backend` knows, built in or registered by an installed package."""
    return sorted({*_BUILTIN, *(e.name for e in entry_points(group=ENTRY_POINT_GROUP))})


def open_backend(address: str, **extra: Any) -> Backend:
    """Open the backend that an address names; a context manager.

    Keyword arguments are options too; they win over those in the address and may be objects that a URL cannot
    carry.

    Examples
    --------
    >>> with open_backend("memory://") as backend:
    ...     backend.put_many("words", {b"be": b"2"})
    >>> open_backend("lgo:///var/ckpt")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: no backend for scheme 'lgo'; did you mean 'log'?
    """
    parsed = parse_address(address)
    return load_factory(parsed.scheme).from_address(parsed, **extra)


def extra_of(scheme: str) -> str | None:
    """The extra of this package that brings the driver of a built-in scheme; None if it needs no driver.

    Examples
    --------
    >>> extra_of("log"), extra_of("redis")
    (None, 'redis')
    """
    return _BUILTIN[scheme].extra


def load_factory(scheme: str) -> BackendFactory:
    """The class behind a scheme, imported now. `fsspec+PROTOCOL` belongs to `fsspec`, `rediss` to `redis`."""
    name = "fsspec" if scheme.startswith("fsspec+") else _ALIASES.get(scheme, scheme)
    if registered := _BUILTIN.get(name):
        return _import(name, registered)
    found: tuple[EntryPoint, ...] = tuple(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        raise ConfigError(f"no backend for scheme {scheme!r}; {suggestion(scheme, schemes())}")
    try:
        return cast("BackendFactory", found[0].load())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the backend for scheme {scheme!r} cannot be loaded: {error}") from error


def _import(scheme: str, registered: Registered) -> BackendFactory:
    module, _, attribute = registered.target.partition(":")
    try:
        return cast("BackendFactory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        hint = f"install it with: pip install 'ckpt[{registered.extra}]'" if registered.extra else str(error)
        raise ConfigError(f"the {scheme} backend needs a package that is not installed; {hint}") from error
