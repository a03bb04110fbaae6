"""The HBase backend: what a call has acknowledged is in HBase's write-ahead log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from ckpt.contract.addresses import build_options
from ckpt.contract.backend import Capabilities
from ckpt.errors import ConfigError
from ckpt_backends.cells import CellBackend, CellOptions, CellServer
from ckpt_backends.cells.access import ServerLocation, shown_address
from ckpt_backends.cells.retries import Retries
from ckpt_backends.hbase.connections import Connections, Endpoint
from ckpt_backends.hbase.options import HBaseOptions
from ckpt_backends.hbase.server import HBaseCellServer

DEFAULT_PORT = 9090

_TABLE = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")


class HBaseBackend(CellBackend):
    """Keeps checkpoints in one HBase table; a batch counts as a whole once HBase has it in its log."""

    scheme: ClassVar[str] = "hbase"
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
        options = build_options(HBaseOptions, values, of=cls.scheme)
        table = _table(location)
        ((host, port),) = location.hosts(DEFAULT_PORT)
        connections = Connections(Endpoint.of(host, port, options))
        server = HBaseCellServer(connections, table, options)
        try:
            Retries.of(options).call(server.ensure_store)
        except BaseException:
            server.close()
            raise
        shown = shown_address(location.shown(DEFAULT_PORT, quote(table, safe=":")), options)
        return server, options, shown


def _table(location: ServerLocation) -> str:
    """The table that an address names."""
    if location.username or location.password:
        raise ConfigError(
            "an hbase address has no user and no password, because HBase's Thrift server asks for none: see "
            "docs/hbase.md"
        )
    if len(location.listed) > 1:
        raise ConfigError(f"name one Thrift server of HBase: hbase://host:{DEFAULT_PORT}/table")
    table = unquote(location.path) or "ckpt"
    if not _TABLE.fullmatch(table):
        raise ConfigError(
            f"{table!r} is no name of an HBase table; use letters, digits, _ - and ., after an optional "
            "namespace and a colon"
        )
    return table
