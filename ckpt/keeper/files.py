"""A SafeKeeper from a TOML file: the address, the keeper's options, and every namespace with its triggers.

```toml
address = "log:///var/ckpt/words"

[keeper]                    # options of ckpt.SafeKeeper
overflow = "block"

[codec]                     # options of ckpt.ValueCodec
compression = "zstd"

[namespaces.words]          # options of SafeKeeper.namespace
every_events = 100
```

Only the address must be there. The folder `configs/` of the project has a commented file for each backend.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from typing import Any

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt.values.envelope import ValueCodec

_TABLES = ("address", "keeper", "codec", "namespaces")
_CODEC_OPTIONS = ("serializer", "schema_version", "compression")
"""What a file can say; types, migrators and keys are Python objects."""


def open_keeper(path: str | os.PathLike[str]) -> SafeKeeper:
    """The keeper that a file describes, with its namespaces open.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     _ = file.write('address = "memory://"\\n[namespaces.words]\\nevery_events = 100\\n')
    ...     file.flush()
    ...     with open_keeper(file.name) as keeper:
    ...         keeper.namespace("words").options.every_events
    100
    """
    said = _read(path)
    try:
        keeper = SafeKeeper(said["address"], codec=_codec(said["codec"]), **said["keeper"])
        try:
            for name, options in said["namespaces"].items():
                keeper.namespace(name, **options)
        except BaseException:
            keeper.close()
            raise
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}: {error}") from error
    return keeper


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file says, with every table there."""
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{shown} is not TOML: {error}") from error
    for name in said:
        if name not in _TABLES:
            raise ConfigError(f"{shown}: unknown entry {name!r}; {suggestion(name, _TABLES)}")
    if not isinstance(said.get("address"), str):
        raise ConfigError(f'{shown} names no address; add a line such as address = "log:///var/ckpt"')
    whole = {"keeper": {}, "codec": {}, "namespaces": {}, **said}
    tables = [whole["keeper"], whole["codec"], whole["namespaces"]]
    if not all(isinstance(table, dict) for table in tables) or not all(
        isinstance(options, dict) for options in whole["namespaces"].values()
    ):
        raise ConfigError(f"{shown}: keeper, codec and each of namespaces are tables, such as [keeper]")
    return whole


def _codec(options: dict[str, Any]) -> ValueCodec | None:
    for name in options:
        if name not in _CODEC_OPTIONS:
            known = inspect.signature(ValueCodec).parameters
            why = "is set in Python, not in a file" if name in known else suggestion(name, _CODEC_OPTIONS)
            raise ConfigError(f"codec has no option {name!r} here; {why}")
    return ValueCodec(**options) if options else None
