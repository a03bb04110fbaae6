"""The options of a Cassandra address, and what its location says: hosts, keyspace, user and password."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

from ckpt.errors import ConfigError
from ckpt_backends.cells.access import LoginOptions, ServerLocation, shown_address

_PORT = 9042
_KEYSPACE = "ckpt"
_REPLICAS = re.compile(r"[1-9]\d?|[\w.-]+:[1-9]\d?(?:,[\w.-]+:[1-9]\d?)*")
_MOST_BUCKETS = 4096
_LONGEST_PREFIX = 256


class Consistency(enum.StrEnum):
    """How many replicas must have answered before a read or a write of rows is believed."""

    ONE = "one"
    LOCAL_ONE = "local_one"
    QUORUM = "quorum"
    LOCAL_QUORUM = "local_quorum"
    ALL = "all"


class SerialConsistency(enum.StrEnum):
    """Among which replicas a ledger, a fence and what guards a write are decided."""

    SERIAL = "serial"
    LOCAL_SERIAL = "local_serial"


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraOptions(LoginOptions):
    """The options of `cassandra://h1,h2:9042/keyspace?…`."""

    prefix: str = "ckpt"
    """Stores with different prefixes share a keyspace and see nothing of each other."""
    consistency: Consistency = Consistency.QUORUM
    """How many replicas have a row before it is acknowledged, and are asked for it."""
    serial_consistency: SerialConsistency = SerialConsistency.SERIAL
    """Among which replicas commits and claims are decided: `local_serial` if all handles are in one data
    centre."""
    local_dc: str | None = None
    """The data centre to ask first; by default that of the first host."""
    buckets: int = 4
    """Over how many partitions a new namespace is spread; a namespace keeps the number it began with."""
    replication: str | None = None
    """Of a keyspace that is created: `3`, or `dc1:3,dc2:2`. By default 3, or fewer if there are fewer
    nodes."""
    deleted_s: float = 86_400.0
    """How long it is remembered that a key was deleted: repair replicas more often than that."""
    tls_check_host: bool = True
    """Whether a certificate must name the host, or the address, that was connected to."""
    password_env: str = "CKPT_CASSANDRA_PASSWORD"
    """The environment variable that holds the password, if neither address nor file does."""

    def __post_init__(self) -> None:
        # The short form of super() does not know the class that slots make.
        LoginOptions.__post_init__(self)
        if not 1 <= len(self.prefix.encode()) <= _LONGEST_PREFIX:
            raise ConfigError(f"prefix is text of 1 to {_LONGEST_PREFIX} bytes, got {self.prefix!r:.80}")
        if not 1 <= self.buckets <= _MOST_BUCKETS:
            raise ConfigError(f"buckets is a whole number from 1 to {_MOST_BUCKETS}, got {self.buckets!r}")
        if self.replication is not None and not _REPLICAS.fullmatch(self.replication):
            raise ConfigError(f"replication is a number such as 3, or dc1:3,dc2:2, got {self.replication!r}")
        if not 1 <= self.deleted_s <= 365 * 86_400:
            raise ConfigError(
                f"deleted_s is a number of seconds from 1 to those of a year, got {self.deleted_s!r}"
            )


@dataclass(frozen=True, slots=True)
class CassandraTarget:
    """The hosts of an address, its keyspace, its user and password."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    username: str | None
    password: str | None = field(repr=False)
    shown: str
    """The address without the password: it opens the same store where file or environment have it."""

    @property
    def at(self) -> str:
        """The cluster as it stands in messages."""
        return f"cassandra at {','.join(f'{host}:{port}' for host, port in self.hosts)}"


def read_target(location: ServerLocation, options: CassandraOptions) -> CassandraTarget:
    """What an address names.

    Examples
    --------
    >>> from ckpt.contract.addresses import parse_address
    >>> from ckpt_backends.cells.access import read_location
    >>> location = read_location(parse_address("cassandra://ada:secret@h1,h2:9142/streams"))
    >>> target = read_target(location, CassandraOptions())
    >>> target.hosts, target.keyspace
    ((('h1', 9142), ('h2', 9142)), 'streams')
    >>> target.shown
    'cassandra://ada@h1:9142,h2:9142/streams'
    """
    keyspace = location.path or _KEYSPACE
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", keyspace):
        raise ConfigError("the path of a cassandra address is a keyspace: up to 48 letters, digits and _")
    password = location.password or options.password()
    if password and not location.username:
        raise ConfigError(
            "a password needs a user: write cassandra://user@host, with the password beside it or in the "
            "environment"
        )
    shown = shown_address(location.shown(_PORT, keyspace), options)
    return CassandraTarget(location.hosts(_PORT), keyspace, location.username, password, shown)
