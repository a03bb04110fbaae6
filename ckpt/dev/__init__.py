"""Real servers for development and tests, without Docker: Redis, HBase, Cassandra and S3 on the loopback.

- `start(name, folder, …)`: a server of one's own, which a test may kill, freeze and start again.
- `ckpt.dev.fleet`: the shared servers of `ckpt dev up`, in the cache.
- `ckpt.dev.install`: puts on the machine what they need.

Nothing here is needed to use ckpt, and none of it knows a driver: servers are asked in their own protocols.
"""

from __future__ import annotations

from ckpt.dev.cassandra import CassandraServer
from ckpt.dev.hbase import HBaseServer
from ckpt.dev.kinds import NAMES, start
from ckpt.dev.redis import RedisServer, SentinelServer, TlsFiles
from ckpt.dev.s3 import S3Server
from ckpt.dev.server import Server
from ckpt.dev.tools import MissingToolError

__all__ = [
    "NAMES",
    "CassandraServer",
    "HBaseServer",
    "MissingToolError",
    "RedisServer",
    "S3Server",
    "SentinelServer",
    "Server",
    "TlsFiles",
    "start",
]
