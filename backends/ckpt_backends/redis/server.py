"""Redis as a `CellServer`: every batch is one transaction and one round trip.

A write is acknowledged when Redis has answered, and with `wait` when so many replicas have it. What an answer
of Redis is worth after a power failure is a matter of its `appendfsync`, see docs/redis.md.

A request that got no answer may still arrive, at any time: from a proxy, or a server that was suspended. Rows
are therefore moved out of its reach before this handle writes to them again (`rows.py`); a commit is safe
because it names the number that it wants to have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpt_backends.cells import CellServer, NotNowError
from ckpt_backends.redis.cells import RedisCells, RedisLedgers
from ckpt_backends.redis.info import RedisInfo, ask_info
from ckpt_backends.redis.layout import RedisLayout
from ckpt_backends.redis.link import RedisLink
from ckpt_backends.redis.options import RedisOptions
from ckpt_backends.redis.requests import RedisRequests, script
from ckpt_backends.redis.rows import RedisRows
from ckpt_backends.redis.scripts import REGISTER


class RedisCellServer(CellServer):
    """One Redis, or several with a primary, or a cluster; `info` is what it said when it was opened."""

    def __init__(self, link: RedisLink, options: RedisOptions, info: RedisInfo) -> None:
        self._link, self._info, self._is_cluster = link, info, options.cluster
        self._layout = RedisLayout(options.prefix)
        self._timeout_ms = b"%d" % max(1, int(options.timeout_s * 900))
        self._requests = RedisRequests(
            link,
            wait=options.wait,
            wait_timeout_s=options.wait_timeout_s,
            largest_value_bytes=info.largest_value_bytes,
        )
        self._rows = RedisRows(self._requests, self._layout)
        self._ledgers = RedisLedgers(self._requests, self._layout)
        self._cells = RedisCells(self._requests, self._layout)

    # -- namespaces ------------------------------------------------------------------------------

    def names(self) -> list[str]:
        (members,) = self._requests.read(self._layout.names, [b"SMEMBERS", self._layout.names])
        return [member.decode() for member in members]

    def register(self, namespace: str) -> None:
        names = self._layout.names
        self._requests.write(names, script(REGISTER, [names], [namespace.encode()]))

    # -- the ledger ------------------------------------------------------------------------------

    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        return self._ledgers.load(namespace, after)

    def append(self, namespace: str, number: int, record: bytes, *, fences: bool) -> bool:
        del fences  # a fence moves the rows, which `fence` does
        return self._cells.commit(namespace, number, record, 0, {})

    def forget(self, namespace: str, below: int) -> None:
        self._ledgers.forget(namespace, below)

    # -- plain rows ------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        del exclusive  # other handles that write under this fence do no harm
        self._rows.fence(namespace, number)

    def write_plain(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
        exclusive: bool,
    ) -> bool:
        del exclusive
        return self._rows.write(namespace, puts, deletes, ttl_s=ttl_s, fence=fence)

    def read_plain(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._rows.read(namespace, keys)

    def scan_plain(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._rows.scan(namespace, prefix)

    def clear_plain(self, namespace: str) -> None:
        self._rows.clear(namespace)

    # -- cells -----------------------------------------------------------------------------------

    def new_stamp(self, namespace: str, above: int) -> int:
        return self._ledgers.new_stamp(namespace, above)

    def write_cells(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        self._cells.write(namespace, stamp, cells)

    def commit(
        self, namespace: str, number: int, record: bytes, stamp: int, cells: Mapping[bytes, bytes]
    ) -> bool:
        return self._cells.commit(namespace, number, record, stamp, cells)

    def newest_cells(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        return self._cells.newest(namespace, bounds)

    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        return self._cells.scan(namespace, prefix, bound)

    def remove_cells(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        self._cells.remove(namespace, up_to)

    def clear_cells(self, namespace: str, up_to: int) -> None:
        self._cells.clear(namespace, up_to)

    # -- life ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait for the disk of the server where it can be waited for: Redis 7.2 or later, and no cluster."""
        if self._is_cluster or not self._info.confirms_syncs:
            return
        # What is waited for is the newest write of this connection, and with it everything before.
        key = self._layout.flushes
        *_, (synced, _) = self._requests.read(key, [b"INCR", key], [b"WAITAOF", b"1", b"0", self._timeout_ms])
        if not synced:
            raise NotNowError(
                f"{self._link.at} has not synced its append-only file in time; look at its disk"
            )

    def close(self) -> None:
        self._link.close()

    def details(self) -> Mapping[str, int | float | str]:
        return ask_info(self._link, self._layout.names).details()
