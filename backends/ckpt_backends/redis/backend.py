"""Checkpoints in Redis or Valkey: an acknowledged write survives what the server is set up to survive.

The address is `redis://[user[:password]@]host[:port][/database]?option=…`, or `rediss://` for TLS. With
`sentinel=NAME` the hosts are sentinels, with `cluster=true` servers of a cluster. See `RedisOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ckpt.contract.addresses import build_options
from ckpt.contract.backend import Capabilities
from ckpt.errors import ConfigError
from ckpt_backends.cells import CellBackend, CellOptions, CellServer
from ckpt_backends.cells.access import ServerLocation
from ckpt_backends.cells.retries import Retries
from ckpt_backends.redis.info import RedisInfo, ask_info
from ckpt_backends.redis.layout import RedisLayout
from ckpt_backends.redis.link import RedisLink, open_link
from ckpt_backends.redis.options import RedisOptions, read_target
from ckpt_backends.redis.server import RedisCellServer


class RedisBackend(CellBackend):
    """Keeps checkpoints in Redis; opening it means that the server has answered and keeps what it takes."""

    scheme: ClassVar[str] = "redis"
    capabilities = Capabilities(
        persistent=True,
        shared_writers=True,
        ttl=True,
        atomic_put=True,
        ordered_scan=True,
        detects_corruption=True,
    )

    @classmethod
    def _reached(
        cls, location: ServerLocation, values: Mapping[str, Any]
    ) -> tuple[CellServer, CellOptions, str]:
        secured = {"tls": True} if location.scheme == "rediss" else {}
        options = build_options(RedisOptions, {**values, **secured}, of=cls.scheme)
        target = read_target(location, options)
        link = open_link(target, options)
        try:
            info = Retries.of(options).call(lambda: _checked(link, options))
        except BaseException:
            link.close()
            raise
        return RedisCellServer(link, options, info), options, target.shown


def _checked(link: RedisLink, options: RedisOptions) -> RedisInfo:
    """What the server says about itself; raises unless a store can be kept there, or is there to be read."""
    names = RedisLayout(options.prefix).names
    info = ask_info(link, names)
    info.require_safe(link.at)
    if options.mode == "read" and not link.ask(names, [b"EXISTS", names])[0]:
        raise ConfigError(f"there is no store with prefix {options.prefix!r} at {link.at}; check the address")
    return info
