"""The options of the HBase backend; each can stand in its address."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt.errors import ConfigError
from ckpt_backends.cells.access import TlsOptions

MAX_PREFIX_BYTES = 255


class Transport(enum.StrEnum):
    """How the Thrift server frames requests; a client that does it differently waits for ever."""

    BUFFERED = "buffered"
    """The server's default, its thread pool."""
    FRAMED = "framed"
    """A server that was started with `-f`, `-nonblocking`, `-hsha` or `-threadedselector`."""


class Protocol(enum.StrEnum):
    """How the Thrift server encodes requests."""

    BINARY = "binary"
    COMPACT = "compact"
    """A server that was started with `-c`."""


class HBaseCompression(enum.StrEnum):
    """What HBase compresses blocks with; the region servers need the codec."""

    NONE = "none"
    GZ = "gz"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class HBaseOptions(TlsOptions):
    """How to reach the Thrift server, and how the table is made if it does not exist yet."""

    prefix: str = ""
    """Begins every row, so that several stores can share one table without seeing each other."""
    connections: int = 8
    """The most connections at once; a call that finds all of them busy waits for one."""
    transport: Transport = Transport.BUFFERED
    """`buffered` or `framed`, as the Thrift server was started."""
    protocol: Protocol = Protocol.BINARY
    """`binary` or `compact`, as the Thrift server was started."""
    compression: HBaseCompression = HBaseCompression.NONE
    """Of a table that is created: `none`, `gz`, `snappy`, `lz4` or `zstd`."""

    def __post_init__(self) -> None:
        TlsOptions.__post_init__(self)
        if self.connections < 1:
            raise ConfigError(f"connections is a whole number from 1, got {self.connections!r}")
        if len(self.prefix.encode("utf-8", "surrogatepass")) > MAX_PREFIX_BYTES:
            raise ConfigError(f"prefix has at most {MAX_PREFIX_BYTES} UTF-8 bytes")
