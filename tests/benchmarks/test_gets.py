"""A get finds what was put: one of 10,000 keys and a hundred of them, from the page cache."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.benchmarks.work import OpenHere, batches, work

VALUE_BYTES = 100
STORES = ("log", "rocksdict", "lmdb", "sqlite3")


@pytest.mark.parametrize("records", [1, 100])
@pytest.mark.parametrize("name", STORES)
def test_get(benchmark: BenchmarkFixture, open_here: OpenHere, name: str, records: int) -> None:
    benchmark.group = f"get {records} of 10,000 x 100 B"
    store = open_here(name, durable=False)
    there: dict[bytes, bytes] = {}
    for batch in work(records=1000, value_bytes=VALUE_BYTES).load(1000):
        store.put_many(batch)
        there |= batch
    following = batches(records=records, value_bytes=VALUE_BYTES)

    def get() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        wanted = next(following)
        return wanted, store.get_many(wanted)

    wanted, found = benchmark(get)
    assert found == {key: there[key] for key in wanted}


@pytest.mark.parametrize("name", STORES)
def test_scan(benchmark: BenchmarkFixture, open_here: OpenHere, name: str) -> None:
    benchmark.group = "scan 10,000 x 100 B"
    store = open_here(name, durable=False)
    there: dict[bytes, bytes] = {}
    for batch in work(records=1000, value_bytes=VALUE_BYTES).load(1000):
        store.put_many(batch)
        there |= batch
    assert benchmark(lambda: dict(store.scan())) == there
