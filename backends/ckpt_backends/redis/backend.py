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
from ckpt_backends.cells.access import Place
from ckpt_backends.cells.patience import Patience
from ckpt_backends.redis.about import About, ask_about
from ckpt_backends.redis.layout import Layout
from ckpt_backends.redis.link import Link, open_link
from ckpt_backends.redis.options import RedisOptions, read_target
from ckpt_backends.redis.server import RedisServer


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
    def _reached(cls, place: Place, given: Mapping[str, Any]) -> tuple[CellServer, CellOptions, str]:
        secured = {"tls": True} if place.scheme == "rediss" else {}
        options = build_options(RedisOptions, {**given, **secured}, of=cls.scheme)
        target = read_target(place, options)
        link = open_link(target, options)
        try:
            about = Patience.of(options).call(lambda: _checked(link, options))
        except BaseException:
            link.close()
            raise
        return RedisServer(link, options, about), options, target.shown


def _checked(link: Link, options: RedisOptions) -> About:
    """What the server says about itself; raises unless a store can be kept there, or is there to be read."""
    names = Layout(options.prefix).names
    about = ask_about(link, names)
    about.require_safe(link.at)
    if options.mode == "read" and not link.ask(names, [b"EXISTS", names])[0]:
        raise ConfigError(f"there is no store with prefix {options.prefix!r} at {link.at}; check the address")
    return about
