"""The options of the HBase backend; each can stand in its address."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ckpt.errors import ConfigError
from ckpt_backends.cells.options import CellOptions

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


class Compression(enum.StrEnum):
    """What HBase compresses blocks with; the region servers need the codec."""

    NONE = "none"
    GZ = "gz"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class HBaseOptions(CellOptions):
    """How to reach the Thrift server, and how the table is made if it does not exist yet."""

    prefix: str = ""
    """Begins every row, so that several stores can share one table without seeing each other."""
    connections: int = 8
    """The most connections at once; a call that finds all of them busy waits for one."""
    transport: Transport = Transport.BUFFERED
    """`buffered` or `framed`, as the Thrift server was started."""
    protocol: Protocol = Protocol.BINARY
    """`binary` or `compact`, as the Thrift server was started."""
    compression: Compression = Compression.NONE
    """Of a table that is created: `none`, `gz`, `snappy`, `lz4` or `zstd`."""
    tls: bool = False
    """Speak TLS, to a proxy in front of the Thrift server (which speaks none itself)."""
    tls_ca: str | None = None
    """A PEM file of certificates to trust instead of the system's."""
    tls_cert: str | None = None
    """A PEM file with the client's certificate, for a proxy that asks for one."""
    tls_key: str | None = None
    """A PEM file with the private key of `tls_cert`, if it does not stand in that file."""

    def __post_init__(self) -> None:
        CellOptions.__post_init__(self)
        if self.connections < 1:
            raise ConfigError(f"connections is a whole number from 1, got {self.connections!r}")
        if len(self.prefix.encode("utf-8", "surrogatepass")) > MAX_PREFIX_BYTES:
            raise ConfigError(f"prefix has at most {MAX_PREFIX_BYTES} UTF-8 bytes")
        if not self.tls and (self.tls_ca or self.tls_cert or self.tls_key):
            raise ConfigError("tls_ca, tls_cert and tls_key mean nothing without tls=true")
        if self.tls_key and not self.tls_cert:
            raise ConfigError("tls_key is the key of a tls_cert; give both")
