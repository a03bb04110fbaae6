"""The servers that can be started, by the names they have on the command line and in tests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ckpt.contract.addresses import suggestion
from ckpt.dev.cassandra import CassandraServer
from ckpt.dev.hbase import HBaseServer
from ckpt.dev.redis import RedisServer, SentinelServer
from ckpt.dev.s3 import S3Server
from ckpt.dev.server import Server
from ckpt.errors import ConfigError

NAMES = ("redis", "hbase", "cassandra", "s3")
"""The servers of `ckpt dev`, each of which is the home of a backend."""

_KINDS: Mapping[str, type[Server]] = MappingProxyType(
    {kind.kind: kind for kind in (RedisServer, SentinelServer, HBaseServer, CassandraServer, S3Server)}
)


def start(name: str, folder: str | os.PathLike[str], **settings: Any) -> Server:
    """Start a server of one's own in a folder; a context that stops it, and that can be killed before.

    Names are those of `NAMES`, and `sentinel`; settings are those of the server's class.
    """
    return server(name, folder, **settings).start()


def server(name: str, folder: str | os.PathLike[str], **settings: Any) -> Server:
    """A server in a folder, whether or not it runs."""
    return _KINDS[checked(name, _KINDS)](folder, **settings)


def checked(name: str, known: Iterable[str] = NAMES) -> str:
    """The name, if it is one; otherwise an error that names the nearest.

    Examples
    --------
    >>> checked("rediss")
    Traceback (most recent call last):
    ...
    ckpt.errors.ConfigError: no server 'rediss'; did you mean 'redis'?
    """
    names = list(known)
    if name not in names:
        raise ConfigError(f"no server {name!r}; {suggestion(name, names)}")
    return name
