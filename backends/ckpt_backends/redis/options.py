"""The options of a Redis address, and what its location says: hosts, database, user and password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ckpt.errors import ConfigError
from ckpt_backends.cells.access import LoginOptions, ServerLocation, shown_address

_PORT, _SENTINEL_PORT = 6379, 26379


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions(LoginOptions):
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
    password_env: str = "CKPT_REDIS_PASSWORD"
    """The environment variable that holds the password, if neither address nor file does."""

    def __post_init__(self) -> None:
        # The short form of super() does not know the class that slots make.
        LoginOptions.__post_init__(self)
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
    """The hosts of an address, its database, its user and password."""

    hosts: tuple[tuple[str, int], ...]
    database: int
    username: str | None
    password: str | None = field(repr=False)
    at: str
    """As messages name it: without password and options."""
    shown: str
    """The address without the password: it opens the same store where file or environment have it."""


def read_target(location: ServerLocation, options: RedisOptions) -> RedisTarget:
    """What an address names.

    Examples
    --------
    >>> from ckpt.contract.addresses import parse_address
    >>> from ckpt_backends.cells.access import read_location
    >>> target = read_target(read_location(parse_address("redis://ada:secret@db/2")), RedisOptions())
    >>> target.hosts, target.database, target.shown
    ((('db', 6379),), 2, 'redis://ada@db:6379/2')
    >>> "secret" in repr(target)
    False
    """
    if len(location.listed) > 1 and options.sentinel is None and not options.cluster:
        raise ConfigError("several hosts need sentinel=NAME (hosts are sentinels) or cluster=true")
    if not re.fullmatch(r"\d{0,5}", location.path):
        raise ConfigError("the path of a redis address is the number of a database, such as /0")
    number = int(location.path or 0)
    if number and options.cluster:
        raise ConfigError("a Redis Cluster has only database 0; use prefix= to keep stores apart")
    port = _PORT if options.sentinel is None else _SENTINEL_PORT
    at = location.shown(port, number)
    shown = shown_address(at, options, without=("tls",) if location.scheme == "rediss" else ())
    password = location.password or options.password()
    return RedisTarget(location.hosts(port), number, location.username, password, at, shown)
