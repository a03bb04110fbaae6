"""A store that was closed is open and has answered a read: 10,000 keys; closing it again is not timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ckpt_bench.stores import Store
from tests.benchmarks.work import open_or_skip, work

ROUNDS = 100


@pytest.mark.benchmark(group="open 10,000 x 100 B, get 1")
@pytest.mark.parametrize("name", ["log", "rocksdict", "lmdb", "sqlite3"])
def test_open(benchmark: BenchmarkFixture, folder: Path, name: str) -> None:
    store = open_or_skip(name, folder, durable=False)
    for batch in work(records=1000, value_bytes=100).load(1000):
        store.put_many(batch)
    [(key, value)] = list(batch.items())[-1:]
    open_now: list[Store] = [store]

    def close() -> None:
        open_now.pop().close()

    def open_and_get() -> dict[bytes, bytes]:
        open_now.append(open_or_skip(name, folder, durable=False))
        return open_now[0].get_many([key])

    found = benchmark.pedantic(open_and_get, setup=close, rounds=ROUNDS)
    close()
    assert found == {key: value}
