"""Checkpoints in Cassandra: what was acknowledged is on as many replicas as `consistency=` asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from ckpt.backend import Capabilities
from ckpt.config import Address, build_options
from ckpt_backends.cassandra.link import Link, connect
from ckpt_backends.cassandra.options import CassandraOptions, read_target
from ckpt_backends.cassandra.schema import prepare
from ckpt_backends.cassandra.server import CassandraServer
from ckpt_backends.cells import CellBackend
from ckpt_backends.cells.patience import Patience


class CassandraBackend(CellBackend):
    """Keeps checkpoints in a keyspace of a Cassandra cluster, in bucketed partitions.

    See docs/cassandra.md for addresses, options, tables and what is lost in which failure.
    """

    scheme: ClassVar[str] = "cassandra"
    capabilities = Capabilities(
        persistent=True,
        shared_writers=True,
        ttl=True,
        atomic_put=False,
        ordered_scan=True,
        detects_corruption=True,
    )

    @classmethod
    def from_address(cls, address: Address, **extra: Any) -> CassandraBackend:
        """Open the store that an address names; the keyspace and its tables are created where they are
        missing."""
        clock: Callable[[], float] = extra.pop("clock", time.time)
        given = {**address.options, **extra}
        options = build_options(CassandraOptions, given, of="cassandra")
        target = read_target(address, options, given)

        def opened() -> Link:
            link = connect(target, options)
            try:
                prepare(link, options)
            except BaseException:
                link.close()
                raise
            return link

        link = Patience(options.retry_s, threading.Event()).call(opened)
        return cls(CassandraServer(link, options), options, address=target.shown, clock=clock)
