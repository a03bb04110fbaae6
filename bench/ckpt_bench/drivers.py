"""Our backends on servers, and the best bulk calls of the drivers they use, at equal durability.

Every store has a place of its own on the server at an address, and leaves nothing there when it is closed;
ours leaves what its namespace's history needs. Drivers are imported when they are opened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import ckpt
from ckpt.contract.addresses import parse_address

_NAMESPACE = "bench"


class BulkStore(Protocol):
    """What a benchmark does to a store on a server."""

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        """Set every key; acknowledged by the server."""

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of the keys that exist."""

    def close(self) -> None:
        """Remove what was written, and disconnect."""


class BackendStore:
    """Our backend, with everything that its contract promises."""

    def __init__(self, address: str) -> None:
        self.prefix = f"bench-{uuid.uuid4().hex}"
        self._backend = ckpt.open_backend(address, prefix=self.prefix)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        self._backend.put_many(_NAMESPACE, items)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._backend.get_many(_NAMESPACE, keys)

    def close(self) -> None:
        self._backend.drop(_NAMESPACE)
        self._backend.close()


class RedisVariadic:
    """redis-py as its documentation says it is fastest: one variadic command for the whole batch."""

    def __init__(self, address: str) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(address)
        self._key = f"bench-{uuid.uuid4().hex}"

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        self._client.hset(self._key, mapping=items)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return _found(keys, self._client.hmget(self._key, keys))

    def close(self) -> None:
        self._client.unlink(self._key)
        self._client.close()


class RedisPipeline(RedisVariadic):
    """The other way: one command for each key, all in one pipeline."""

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        with self._client.pipeline(transaction=False) as pipeline:
            for key, value in items.items():
                pipeline.hset(self._key, key, value)
            pipeline.execute()

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(self._key, key)
            return _found(keys, pipeline.execute())


class HappyBase:
    """happybase's `Table.batch().send()` and `Table.rows()`: one mutateRows, one getRows."""

    def __init__(self, address: str) -> None:
        import happybase

        host, port = _endpoint(address)
        self._connection = happybase.Connection(host, port, timeout=60_000)
        self._name = f"bench_{uuid.uuid4().hex[:12]}"
        family = {"max_versions": 1, "bloom_filter_type": "ROW", "block_cache_enabled": True}
        self._connection.create_table(self._name, {"data": family})
        self._table = self._connection.table(self._name)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        batch = self._table.batch()
        for key, value in items.items():
            batch.put(key, {b"data:checkpoint": value})
        batch.send()

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = self._table.rows(keys, columns=[b"data:checkpoint"])
        return {key: columns[b"data:checkpoint"] for key, columns in found}

    def close(self) -> None:
        self._connection.delete_table(self._name, disable=True)
        self._connection.close()


class CassandraDriver:
    """One unlogged batch of prepared inserts into one partition, and one `IN` there: its fastest calls.

    `execute_concurrent_with_args` with one insert for each row takes about ten times as long.
    """

    def __init__(self, address: str) -> None:
        from cassandra import ConsistencyLevel, cluster, policies, query

        host, port = _endpoint(address)
        profile = cluster.ExecutionProfile(
            load_balancing_policy=policies.TokenAwarePolicy(policies.DCAwareRoundRobinPolicy()),
            consistency_level=ConsistencyLevel.QUORUM,
            request_timeout=60,
        )
        profiles = {cluster.EXEC_PROFILE_DEFAULT: profile}
        self._cluster = cluster.Cluster([host], port=port, protocol_version=5, execution_profiles=profiles)
        self._session = self._cluster.connect()
        self._keyspace = f"bench_{uuid.uuid4().hex[:12]}"
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.execute(f"CREATE KEYSPACE {self._keyspace} WITH replication = {replication}")
        table = f"{self._keyspace}.rows"
        self._session.execute(f"CREATE TABLE {table} (p blob, k blob, v blob, PRIMARY KEY (p, k))")
        self._insert = self._session.prepare(f"INSERT INTO {table} (p, k, v) VALUES (?, ?, ?)")
        self._select = self._session.prepare(f"SELECT k, v FROM {table} WHERE p = ? AND k IN ?")
        self._batch: Callable[[], Any] = lambda: query.BatchStatement(query.BatchType.UNLOGGED)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        batch = self._batch()
        for key, value in items.items():
            batch.add(self._insert, (b"p", key, value))
        self._session.execute(batch)

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {row.k: row.v for row in self._session.execute(self._select, (b"p", keys))}

    def close(self) -> None:
        self._session.execute(f"DROP KEYSPACE {self._keyspace}")
        self._cluster.shutdown()


BULK_STORES: Mapping[str, Mapping[str, Callable[[str], BulkStore]]] = MappingProxyType(
    {
        "redis": {"ckpt": BackendStore, "variadic": RedisVariadic, "pipeline": RedisPipeline},
        "hbase": {"ckpt": BackendStore, "happybase": HappyBase},
        "cassandra": {"ckpt": BackendStore, "driver": CassandraDriver},
    }
)
"""Server → name → how to open it at the server's address."""


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = parse_address(address).location.partition("/")[0].partition(":")
    return host, int(port)


def _found(keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}
