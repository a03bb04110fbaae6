"""The HBase backend: what a call has acknowledged is in HBase's write-ahead log."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from ckpt.backend import Capabilities
from ckpt.config import Address, build_options
from ckpt.errors import ConfigError
from ckpt_backends.cells.backend import CellBackend
from ckpt_backends.cells.patience import Patience
from ckpt_backends.hbase.connections import Connections, Endpoint
from ckpt_backends.hbase.options import HBaseOptions
from ckpt_backends.hbase.server import HBaseServer

DEFAULT_PORT = 9090

_LOCATION = re.compile(r"(?P<host>\[[^\]]+\]|[^:/@]+)(?::(?P<port>\d+))?(?:/(?P<table>[^/]*))?")
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
    def from_address(
        cls, address: Address, *, clock: Callable[[], float] = time.time, **extra: Any
    ) -> HBaseBackend:
        """Open `hbase://host:9090/table?option=…`; the table is made if it is not there."""
        options = build_options(HBaseOptions, {**address.options, **extra}, of="hbase")
        host, port, table = _located(address)
        shown = {**address.options, **{name: str(value) for name, value in extra.items()}}
        connections = Connections(Endpoint.of(host.strip("[]"), port, options))
        server = HBaseServer(connections, table, options)
        try:
            Patience(options.retry_s, threading.Event()).call(server.ensure_store)
            text = str(Address("hbase", f"{host}:{port}/{quote(table, safe=':')}", shown))
            return cls(server, options, address=text, clock=clock)
        except BaseException:
            connections.close()
            raise


def _located(address: Address) -> tuple[str, int, str]:
    """The host, the port and the table that an address names."""
    match = _LOCATION.fullmatch(address.location)
    if match is None:
        raise ConfigError(
            f"{address} names no Thrift server of HBase; write hbase://host:{DEFAULT_PORT}/table "
            "(there are no users and passwords: see docs/hbase.md)"
        )
    table = unquote(match["table"] or "ckpt")
    if not _TABLE.fullmatch(table):
        raise ConfigError(
            f"{table!r} is no name of an HBase table; use letters, digits, _ - and ., after an optional "
            "namespace and a colon"
        )
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise ConfigError(f"{port} is no port; HBase's Thrift server listens on {DEFAULT_PORT} by default")
    return match["host"], port, table
