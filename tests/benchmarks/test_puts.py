"""A put is there when it returns: one value and batches, each store by the best call that it has for that.

In a durable table every store has synced when the call returns; in the others it has written to the page
cache.
"""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ckpt_bench.stores import Store
from tests.benchmarks.work import OpenHere, batches

IN_PAGE_CACHE = ("log", "rocksdict", "lmdb", "sqlite3")
DURABLE = (*IN_PAGE_CACHE, "file", "file-per-key")


@pytest.mark.parametrize("records", [1, 100])
@pytest.mark.parametrize("name", DURABLE)
def test_durable_put(benchmark: BenchmarkFixture, open_here: OpenHere, name: str, records: int) -> None:
    benchmark.group = f"put {records} x 1 KB, durable"
    check_puts(benchmark, open_here(name, durable=True), records, value_bytes=1000)


@pytest.mark.parametrize("records", [1, 1000])
@pytest.mark.parametrize("name", IN_PAGE_CACHE)
def test_put(benchmark: BenchmarkFixture, open_here: OpenHere, name: str, records: int) -> None:
    benchmark.group = f"put {records:,} x 100 B, not synced"
    check_puts(benchmark, open_here(name, durable=False), records, value_bytes=100)


def check_puts(benchmark: BenchmarkFixture, store: Store, records: int, value_bytes: int) -> None:
    """Time puts, and read the last one back."""
    following = batches(records=records, value_bytes=value_bytes)

    def put() -> dict[bytes, bytes]:
        batch = next(following)
        store.put_many(batch)
        return batch

    last = benchmark(put)
    assert store.get_many(last) == last
