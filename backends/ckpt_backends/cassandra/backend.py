"""Checkpoints in Cassandra: what was acknowledged is on as many replicas as `consistency=` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ckpt.contract.addresses import build_options
from ckpt.contract.backend import Capabilities
from ckpt_backends.cassandra.link import CassandraLink, connect
from ckpt_backends.cassandra.options import CassandraOptions, read_target
from ckpt_backends.cassandra.schema import prepare
from ckpt_backends.cassandra.server import CassandraCellServer
from ckpt_backends.cells import CellBackend, CellOptions, CellServer
from ckpt_backends.cells.access import ServerLocation
from ckpt_backends.cells.retries import Retries


class CassandraBackend(CellBackend):
    """Keeps checkpoints in a keyspace of a Cassandra cluster, in bucketed partitions.

    Opening it to write makes the keyspace and its tables where they are missing.

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
    def _reached(
        cls, location: ServerLocation, values: Mapping[str, Any]
    ) -> tuple[CellServer, CellOptions, str]:
        options = build_options(CassandraOptions, values, of=cls.scheme)
        target = read_target(location, options)

        def opened() -> CassandraLink:
            link = connect(target, options)
            try:
                prepare(link, options)
            except BaseException:
                link.close()
                raise
            return link

        link = Retries.of(options).call(opened)
        return CassandraCellServer(link, options), options, target.shown
