"""The options of a Redis address, and what its location says: hosts, database and who is asking.

A password comes from the address, from a file or from the environment, in this order, and appears nowhere:
not in `repr`, not in messages, not in the address that a backend gives of itself.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from ckpt.config import Address
from ckpt.errors import ConfigError
from ckpt_backends.cells import CellOptions

_PORT, _SENTINEL_PORT = 6379, 26379
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:/\[\]@,\s]+))(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(CellOptions):
    """The options of `redis://host:port/database?…`."""

    prefix: str = "ckpt"
    """What every Redis key of the store begins with; stores with different prefixes share a database."""
    wait: int = 0
    """How many replicas must have a write before it is acknowledged."""
    wait_timeout_s: float = 5.0
    """How long to wait for them."""
    sentinel: str | None = None
    """The hosts are sentinels; this is their name for the servers to ask them about."""
    cluster: bool = False
    """The hosts are servers of a Redis Cluster."""
    tls: bool = False
    """Speak TLS; the scheme `rediss` says the same."""
    tls_ca: str | None = None
    """A PEM file with the authorities to trust instead of those of the system."""
    tls_cert: str | None = None
    tls_key: str | None = None
    """PEM files with a certificate of this client and its key, where the server asks for one."""
    password_file: str | None = None
    """A file that holds the password."""
    password_env: str = "CKPT_REDIS_PASSWORD"
    """The environment variable that holds the password, if neither address nor file does."""

    def __post_init__(self) -> None:
        # The short form of super() does not know the class that slots make.
        CellOptions.__post_init__(self)
        if not self.prefix or re.search(r"[{}\s]", self.prefix):
            raise ConfigError(f"prefix is text without white space and braces, got {self.prefix!r}")
        if self.wait < 0:
            raise ConfigError(f"wait is a number of replicas from 0, got {self.wait!r}")
        if self.wait and not 0 < self.wait_timeout_s < self.timeout_s:
            raise ConfigError(
                f"wait_timeout_s is above 0 and below timeout_s ({self.timeout_s:g}), "
                f"got {self.wait_timeout_s:g}"
            )
        if self.cluster and self.sentinel is not None:
            raise ConfigError("cluster and sentinel exclude each other: a cluster fails over by itself")


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """Whom to ask, as whom."""

    hosts: tuple[tuple[str, int], ...]
    database: int
    username: str | None
    password: str | None = field(repr=False)
    tls: bool
    at: str
    """As messages name it: without password and options."""
    shown: str
    """The address without the password: it opens the same store where file or environment have it."""


def read_target(address: Address, options: RedisOptions, given: Mapping[str, object]) -> RedisTarget:
    """What an address names; `given` are the options as they were given, from wherever.

    Examples
    --------
    >>> from ckpt.config import parse_address
    >>> target = read_target(parse_address("redis://ada:secret@db/2"), RedisOptions(), {})
    >>> target.hosts, target.database, target.shown
    ((('db', 6379),), 2, 'redis://ada@db:6379/2')
    >>> "secret" in repr(target)
    False
    """
    who, _, where = address.location.rpartition("@")
    user, _, secret = who.partition(":")
    if re.search(r"[:/@]", secret) or re.search(r"[/@]", user):
        raise ConfigError(
            "write the characters : / @ in the user or password of an address as percent escapes"
        )
    listed, _, database = where.partition("/")
    hosts = _hosts(listed, _PORT if options.sentinel is None else _SENTINEL_PORT)
    if len(hosts) > 1 and options.sentinel is None and not options.cluster:
        raise ConfigError("several hosts need sentinel=NAME (hosts are sentinels) or cluster=true")
    if not re.fullmatch(r"\d{0,5}", database.rstrip("/")):
        raise ConfigError(
            f"the path of a redis address is the number of a database, such as /0, got {database!r}"
        )
    number = int(database.rstrip("/") or 0)
    if number and options.cluster:
        raise ConfigError("a Redis Cluster has only database 0; use prefix= to keep stores apart")
    tls = options.tls or address.scheme == "rediss"
    shown_hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    username = unquote(user) or None
    as_whom = f"{quote(username, safe='')}@" if username else ""
    defaults = {f.name: f.default for f in dataclasses.fields(options)}
    kept = {
        k: _text(getattr(options, k)) for k in given if k in defaults and getattr(options, k) != defaults[k]
    }
    query = f"?{urlencode(kept, quote_via=quote, safe='/:,')}" if kept else ""
    at = f"{address.scheme}://{as_whom}{shown_hosts}/{number}"
    for name in ("tls_ca", "tls_cert", "tls_key"):
        _require_readable(name, getattr(options, name))
    return RedisTarget(hosts, number, username, unquote(secret) or _password(options), tls, at, at + query)


def _hosts(listed: str, port: int) -> tuple[tuple[str, int], ...]:
    hosts = []
    for part in listed.split(","):
        match = _HOST.fullmatch(part)
        if not match or int(match["port"] or port) > 65535:
            raise ConfigError(f"a redis address is redis://host:port/0, got host {part!r}")
        hosts.append((match["v6"] or match["name"], int(match["port"] or port)))
    return tuple(hosts)


def _require_readable(name: str, path: str | None) -> None:
    if path is not None:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{name} {path} cannot be read: {error.strerror}") from None


def _password(options: RedisOptions) -> str | None:
    if options.password_file is not None:
        try:
            with open(options.password_file, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"password_file {options.password_file} cannot be read: {error}") from None
    return os.environ.get(options.password_env) or None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
