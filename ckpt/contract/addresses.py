"""Addresses and options: text from a URL becomes a frozen, typed options object, or one clear error.

An address is `scheme://location?option=value&…`. Options are the fields of the backend's options dataclass;
an unknown one is rejected with the nearest known name. Sizes take units (`64MiB`), durations take none: the
unit stands in the option's name (`flush_interval_s`).
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, unquote, unquote_plus, urlencode

from ckpt.errors import ConfigError

OptionsT = TypeVar("OptionsT")

_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*)://(.*)", re.DOTALL)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_SECRETS = ("password", "secret", "token", "key_file", "credential")
_WHERE_SECRETS_ARE = frozenset({"password_file", "password_env"})


class Durability(enum.StrEnum):
    """When an embedded backend acknowledges a write."""

    FSYNC = "fsync"
    """On stable storage: survives a power failure."""
    OS = "os"
    """In the page cache: survives `kill -9`, not a power failure."""
    QUEUED = "queued"
    """In this process: survives nothing until the next flush."""


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address: what to open, where, and how."""

    scheme: str
    location: str
    """Everything between `://` and `?`, with percent escapes resolved only where the backend asks."""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> str:
        """The location as a path of the local filesystem."""
        return unquote(self.location)

    def __str__(self) -> str:
        """The address without secrets: passwords in the location and secret options are replaced."""
        location, options = self._shown()
        if not options:
            return f"{self.scheme}://{location}"
        return f"{self.scheme}://{location}?{urlencode(options, quote_via=quote, safe='*/:,')}"

    def __repr__(self) -> str:
        location, options = self._shown()
        return f"Address(scheme={self.scheme!r}, location={location!r}, options={options!r})"

    def _shown(self) -> tuple[str, dict[str, str]]:
        # A password may hold what should have been escaped; a path may hold what looks like one.
        location = re.sub(r"^([^:/]*):.*@", r"\1:***@", self.location, flags=re.DOTALL)
        return location, {k: "***" if _is_secret(k, v) else v for k, v in self.options.items()}


def _is_secret(name: str, value: str) -> bool:
    """Whether an option's value must not be shown: its name says so, or a name in the JSON that it is."""
    words = name.lower() + (value.lower() if value.lstrip().startswith(("{", "[")) else "")
    return name not in _WHERE_SECRETS_ARE and any(secret in words for secret in _SECRETS)


def parse_address(address: str) -> Address:
    """Split an address into its parts.

    Examples
    --------
    >>> parse_address("log:///var/ckpt?segment_bytes=64MiB")
    Address(scheme='log', location='/var/ckpt', options={'segment_bytes': '64MiB'})
    >>> parse_address("/var/ckpt")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: '/var/ckpt' is not an address; write scheme://location, for example log:///var/ckpt
    """
    if not isinstance(address, str) or not (match := _ADDRESS.fullmatch(address)):
        shown = re.sub(":.*@", ":***@", repr(address))
        raise ConfigError(f"{shown} is not an address; write scheme://location, for example log:///var/ckpt")
    location, _, query = match[2].partition("?")
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = map(unquote_plus, pair.partition("="))
        if name in options:
            raise ConfigError(f"option {name!r} is given twice in the address")
        options[name] = value
    return Address(match[1].lower(), location, options)


def build_options(kind: type[OptionsT], options: Mapping[str, Any], *, of: str) -> OptionsT:
    """An instance of the options dataclass `kind` from names and values, or a ConfigError.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class LogOptions:
    ...     segment_bytes: int = 64 << 20
    >>> build_options(LogOptions, {"segment_bytes": "1MiB"}, of="log")
    LogOptions(segment_bytes=1048576)
    >>> build_options(LogOptions, {"segment_byte": "1MiB"}, of="log")
    Traceback (most recent call last):
        ...
    ckpt.errors.ConfigError: log has no option 'segment_byte'; did you mean 'segment_bytes'?
    """
    known = _hints(typing.cast("Any", kind))
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(f"{of} has no option {name!r}; {suggestion(name, known)}")
        values[name] = _coerce(known[name], value, f"{of} option {name}")
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The options of a dataclass and their types; to find these out takes longer than to open a store."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` for the nearest known name, or the list of all of them."""
    candidates = sorted(known)
    near = difflib.get_close_matches(name, candidates, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose from {', '.join(candidates)}" if candidates else "there are none to choose from"


def parse_bytes(text: str, *, of: str = "size") -> int:
    """A number of bytes from `1048576`, `64MiB`, `1.5GiB` or `10kB`.

    Examples
    --------
    >>> parse_bytes("64MiB"), parse_bytes("10kB"), parse_bytes("7")
    (67108864, 10000, 7)
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{of} is a number of bytes such as 64MiB or 1048576, got {text!r}")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _coerce(hint: Any, value: Any, of: str) -> Any:
    if not isinstance(hint, type) and typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [a for a in typing.get_args(hint) if a is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _coerce(arms[0], value, of)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            choices = [str(m.value) for m in hint]
            raise ConfigError(f"{of} is one of {', '.join(choices)}, got {value!r}") from None
    if hint is bool:
        return _coerce_bool(value, of)
    if hint is int and isinstance(value, str) and "bytes" in of.rsplit(" ", 1)[-1].split("_"):
        return parse_bytes(value, of=of)
    if hint in (int, float):
        # neither True for 1 nor 2.5 for 2 is what was meant
        lossy = isinstance(value, bool) or (hint is int and isinstance(value, float) and value % 1 != 0)
        try:
            return hint(value if not lossy else None)
        except (TypeError, ValueError, OverflowError):
            kind = "a whole number" if hint is int else "a number"
            raise ConfigError(f"{of} is {kind}, got {value!r}") from None
    if hint is str and not isinstance(value, str):
        raise ConfigError(f"{of} is text, got {value!r}")
    return value


def _coerce_bool(value: Any, of: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ConfigError(f"{of} is true or false, got {value!r}")
