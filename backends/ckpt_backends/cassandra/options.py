"""The options of a Cassandra address, and what its location says: hosts, keyspace and who is asking.

A password comes from the address, from a file or from the environment, in this order, and appears nowhere:
not in `repr`, not in messages, not in the address that a backend gives of itself.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from ckpt.config import Address
from ckpt.errors import ConfigError
from ckpt_backends.cells import CellOptions

_PORT = 9042
_KEYSPACE = "ckpt"
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:/\[\]@,\s]+))(?::(?P<port>\d{1,5}))?")
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
class CassandraOptions(CellOptions):
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
    tls: bool = False
    """Speak TLS."""
    tls_ca: str | None = None
    """A PEM file with the authorities to trust instead of those of the system."""
    tls_cert: str | None = None
    tls_key: str | None = None
    """PEM files with a certificate of this client and its key, where the server asks for one."""
    tls_check_host: bool = True
    """Whether a certificate must name the host, or the address, that was connected to."""
    password_file: str | None = None
    """A file that holds the password."""
    password_env: str = "CKPT_CASSANDRA_PASSWORD"
    """The environment variable that holds the password, if neither address nor file does."""

    def __post_init__(self) -> None:
        # The short form of super() does not know the class that slots make.
        CellOptions.__post_init__(self)
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
        if (self.tls_ca or self.tls_cert or self.tls_key) and not self.tls:
            raise ConfigError("tls_ca, tls_cert and tls_key need tls=true")


@dataclass(frozen=True, slots=True)
class CassandraTarget:
    """Whom to ask, as whom, for which keyspace."""

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


def read_target(address: Address, options: CassandraOptions, given: Mapping[str, object]) -> CassandraTarget:
    """What an address names; `given` are the options as they were given, from wherever.

    Examples
    --------
    >>> from ckpt.config import parse_address
    >>> address = parse_address("cassandra://ada:secret@h1,h2:9142/streams")
    >>> target = read_target(address, CassandraOptions(), {})
    >>> target.hosts, target.keyspace
    ((('h1', 9142), ('h2', 9142)), 'streams')
    >>> target.shown
    'cassandra://ada@h1:9142,h2:9142/streams'
    """
    who, _, where = address.location.rpartition("@")
    user, _, secret = who.partition(":")
    if re.search(r"[:/@]", secret) or re.search(r"[/@]", user):
        raise ConfigError(
            "write the characters : / @ in the user or password of an address as percent escapes"
        )
    listed, _, path = where.partition("/")
    hosts = _hosts(listed)
    keyspace = path.rstrip("/") or _KEYSPACE
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", keyspace):
        raise ConfigError(
            f"the path of a cassandra address is a keyspace: up to 48 letters, digits and _, got {keyspace!r}"
        )
    username, password = unquote(user) or None, unquote(secret) or _password(options)
    if password and not username:
        raise ConfigError(
            "a password needs a user: write cassandra://user@host, with the password beside it or in the "
            "environment"
        )
    shown_hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    as_whom = f"{quote(username, safe='')}@" if username else ""
    defaults = {f.name: f.default for f in dataclasses.fields(options)}
    kept = {
        k: _text(getattr(options, k)) for k in given if k in defaults and getattr(options, k) != defaults[k]
    }
    query = f"?{urlencode(kept, quote_via=quote, safe='/:,')}" if kept else ""
    shown = f"{address.scheme}://{as_whom}{shown_hosts}/{keyspace}{query}"
    return CassandraTarget(hosts, keyspace, username, password, shown)


def _hosts(listed: str) -> tuple[tuple[str, int], ...]:
    matches = []
    for part in listed.split(","):
        match = _HOST.fullmatch(part)
        if not match or int(match["port"] or _PORT) > 65535:
            raise ConfigError(f"a cassandra address is cassandra://h1,h2:9042/keyspace, got host {part!r}")
        matches.append(match)
    # As in h1,h2:9042: the port of the last one is that of all which name none.
    port = int(matches[-1]["port"] or _PORT)
    return tuple((match["v6"] or match["name"], int(match["port"] or port)) for match in matches)


def _password(options: CassandraOptions) -> str | None:
    if options.password_file is not None:
        try:
            with open(options.password_file, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"password_file {options.password_file} cannot be read: {error}") from None
    return os.environ.get(options.password_env) or None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
