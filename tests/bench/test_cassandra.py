"""Batches of 1 KB in Cassandra beside the driver's best bulk calls, in one run and at equal durability."""

from __future__ import annotations

import itertools
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType

import ckpt
from ckpt.config import parse_address

NAMES = ["cassandra", "driver"]
LEAST_SHARE = 0.7
"""Of what the driver's own bulk call reaches, as a throughput."""


class Store(Protocol):
    def put_many(self, items: Mapping[bytes, bytes]) -> None: ...
    def get_many(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]: ...


class Ours:
    """Through the backend, with everything that its contract promises."""

    def __init__(self, address: str) -> None:
        self.backend = ckpt.open_backend(address, prefix=uuid.uuid4().hex)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        self.backend.put_many("words", items)

    def get_many(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return self.backend.get_many("words", keys)

    def close(self) -> None:
        self.backend.close()


class Driver:
    """One unlogged batch of prepared inserts into one partition, and one `IN` there: its fastest calls.

    `execute_concurrent_with_args` with one insert for each row takes about ten times as long.
    """

    def __init__(self, address: str) -> None:
        host, _, port = parse_address(address).location.partition("/")[0].partition(":")
        policy = TokenAwarePolicy(DCAwareRoundRobinPolicy())
        level = ConsistencyLevel.QUORUM
        profile = ExecutionProfile(load_balancing_policy=policy, consistency_level=level, request_timeout=60)
        profiles = {EXEC_PROFILE_DEFAULT: profile}
        self._cluster = Cluster([host], port=int(port), protocol_version=5, execution_profiles=profiles)
        self._session = self._cluster.connect()
        self._keyspace = f"bench_{uuid.uuid4().hex[:12]}"
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.execute(f"CREATE KEYSPACE {self._keyspace} WITH replication = {replication}")
        table = f"{self._keyspace}.rows"
        self._session.execute(f"CREATE TABLE {table} (p blob, k blob, v blob, PRIMARY KEY (p, k))")
        self._insert = self._session.prepare(f"INSERT INTO {table} (p, k, v) VALUES (?, ?, ?)")
        self._select = self._session.prepare(f"SELECT k, v FROM {table} WHERE p = ? AND k IN ?")

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        batch = BatchStatement(BatchType.UNLOGGED)
        for key, value in items.items():
            batch.add(self._insert, (b"p", key, value))
        self._session.execute(batch)

    def get_many(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {row.k: row.v for row in self._session.execute(self._select, (b"p", keys))}

    def close(self) -> None:
        self._session.execute(f"DROP KEYSPACE {self._keyspace}")
        self._cluster.shutdown()


@pytest.fixture
def stores(cassandra_keyspace: str) -> Iterator[dict[str, Store]]:
    opened = {"cassandra": Ours(cassandra_keyspace), "driver": Driver(cassandra_keyspace)}
    yield dict(opened)
    for one in opened.values():
        one.close()


@pytest.mark.parametrize("store", NAMES)
def test_batched_puts(benchmark, timed, stores, batches, store):
    benchmark.group = "Cassandra: puts of 1 KB, batch 1000"
    work = itertools.cycle(batches(20 if timed else 1, 1000 if timed else 20, 1000))
    benchmark.pedantic(
        stores[store].put_many,
        setup=lambda: ((next(work),), {}),
        rounds=60 if timed else 1,
        warmup_rounds=10 if timed else 0,
    )


@pytest.mark.parametrize("store", NAMES)
def test_gets(benchmark, timed, stores, batches, store):
    benchmark.group = "Cassandra: gets of 1 KB, batch 1000"
    (written,) = batches(1, 1000 if timed else 20, 1000)
    stores[store].put_many(written)
    found = benchmark.pedantic(
        stores[store].get_many,
        args=(list(written),),
        rounds=60 if timed else 1,
        warmup_rounds=10 if timed else 0,
    )
    assert found == written


def test_share_of_the_drivers_throughput(benchmark, timed, stores, batches):
    """Rounds of both follow each other, in changing order; the median of their ratios counts."""
    benchmark.group = "Cassandra: rounds of both, interleaved"
    work = batches(20 if timed else 1, 1000 if timed else 20, 1000)
    rounds = 60 if timed else 1
    shares: dict[str, list[float]] = {"puts": [], "gets": []}

    def seconds(call: Callable[..., object], argument: object) -> float:
        started_s = time.perf_counter()
        call(argument)
        return time.perf_counter() - started_s

    def run() -> None:
        for number in range(rounds):
            batch = work[number % len(work)]
            names = NAMES if number % 2 else NAMES[::-1]
            puts = {name: seconds(stores[name].put_many, batch) for name in names}
            gets = {name: seconds(stores[name].get_many, list(batch)) for name in names}
            shares["puts"].append(puts["driver"] / puts["cassandra"])
            shares["gets"].append(gets["driver"] / gets["cassandra"])

    benchmark.pedantic(run, rounds=1)
    if timed:
        for name, ratios in shares.items():
            low, middle, high = statistics.quantiles(ratios[rounds // 10 :], n=4)
            benchmark.extra_info[name] = f"{middle:.2f} [{low:.2f} {high:.2f}]"
            print(f"Cassandra {name}: {middle:.2f} [{low:.2f} {high:.2f}] of the driver's throughput")
            assert middle >= LEAST_SHARE, name
