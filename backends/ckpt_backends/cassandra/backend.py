"""Checkpoints in Cassandra: what was acknowledged is on as many replicas as `consistency=` asks for."""

from __future__ import annotations

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
from ckpt_backends.cells.access import read_place
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
    def from_address(
        cls, address: Address, *, clock: Callable[[], float] = time.time, **extra: Any
    ) -> CassandraBackend:
        """Open the store that an address names; the keyspace and its tables are created where they are
        missing."""
        place = read_place(address)
        options = build_options(CassandraOptions, {**address.options, **extra}, of=cls.scheme)
        target = read_target(place, options)

        def opened() -> Link:
            link = connect(target, options)
            try:
                prepare(link, options)
            except BaseException:
                link.close()
                raise
            return link

        link = Patience.of(options).call(opened)
        return cls(CassandraServer(link, options), options, address=target.shown, clock=clock)
