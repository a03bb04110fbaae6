"""Batches of 1 KB in HBase beside the driver's own best bulk calls, in one run and at equal durability."""

from __future__ import annotations

import itertools
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import happybase
import pytest

import ckpt
from ckpt.config import parse_address

NAMES = ["hbase", "happybase"]
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
    """happybase's `Table.batch().send()` and `Table.rows()`: one mutateRows, one getRows."""

    def __init__(self, address: str) -> None:
        host, _, port = parse_address(address).location.partition("/")[0].partition(":")
        self._connection = happybase.Connection(host, int(port), timeout=60_000)
        self._name = f"test_{uuid.uuid4().hex[:12]}"
        family = {"max_versions": 1, "bloom_filter_type": "ROW", "block_cache_enabled": True}
        self._connection.create_table(self._name, {"data": family})
        self._table = self._connection.table(self._name)

    def put_many(self, items: Mapping[bytes, bytes]) -> None:
        batch = self._table.batch()
        for key, value in items.items():
            batch.put(key, {b"data:checkpoint": value})
        batch.send()

    def get_many(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found = self._table.rows(keys, columns=[b"data:checkpoint"])
        return {key: columns[b"data:checkpoint"] for key, columns in found}

    def close(self) -> None:
        self._connection.delete_table(self._name, disable=True)
        self._connection.close()


@pytest.fixture
def stores(hbase_table: str) -> Iterator[dict[str, Store]]:
    opened = {"hbase": Ours(hbase_table), "happybase": Driver(hbase_table)}
    yield dict(opened)
    for one in opened.values():
        one.close()


@pytest.mark.parametrize("store", NAMES)
def test_batched_puts(benchmark, timed, stores, batches, store):
    benchmark.group = "HBase: puts of 1 KB, batch 1000"
    work = itertools.cycle(batches(20 if timed else 1, 1000 if timed else 20, 1000))
    benchmark.pedantic(
        stores[store].put_many,
        setup=lambda: ((next(work),), {}),
        rounds=60 if timed else 1,
        warmup_rounds=10 if timed else 0,
    )


@pytest.mark.parametrize("store", NAMES)
def test_gets(benchmark, timed, stores, batches, store):
    benchmark.group = "HBase: gets of 1 KB, batch 1000"
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
    benchmark.group = "HBase: rounds of both, interleaved"
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
            shares["puts"].append(puts["happybase"] / puts["hbase"])
            shares["gets"].append(gets["happybase"] / gets["hbase"])

    benchmark.pedantic(run, rounds=1)
    if timed:
        for name, ratios in shares.items():
            low, middle, high = statistics.quantiles(ratios[rounds // 10 :], n=4)
            benchmark.extra_info[name] = f"{middle:.2f} [{low:.2f} {high:.2f}]"
            print(f"HBase {name}: {middle:.2f} [{low:.2f} {high:.2f}] of the driver's throughput")
            assert middle >= LEAST_SHARE, name
