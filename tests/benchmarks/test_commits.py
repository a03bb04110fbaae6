"""A commit is whole and durable when it returns: 100 rows as one version, beside one transaction of a peer.

The peers keep the newest rows and no versions, so this table also shows what versions cost.
"""

from __future__ import annotations

import itertools

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ckpt_bench.stores import NAMESPACE, BackendStore
from tests.benchmarks.work import OpenHere, batches

ROWS, VALUE_BYTES = 100, 100
GROUP = f"commit {ROWS} x {VALUE_BYTES} B, durable"


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("name", ["log", "file"])
def test_commit(benchmark: BenchmarkFixture, open_here: OpenHere, name: str) -> None:
    store = open_here(name, durable=True)
    assert isinstance(store, BackendStore)
    backend = store.backend
    following = batches(records=ROWS, value_bytes=VALUE_BYTES)
    versions = itertools.count(1)

    def commit() -> tuple[int, dict[bytes, bytes]]:
        version, rows = next(versions), next(following)
        backend.commit(NAMESPACE, version, rows)
        return version, rows

    version, rows = benchmark(commit)
    assert backend.get_many(NAMESPACE, rows, version=version) == rows


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("name", ["rocksdict", "lmdb", "sqlite3"])
def test_transaction(benchmark: BenchmarkFixture, open_here: OpenHere, name: str) -> None:
    store = open_here(name, durable=True)
    following = batches(records=ROWS, value_bytes=VALUE_BYTES)

    def commit() -> dict[bytes, bytes]:
        rows = next(following)
        store.put_many(rows)
        return rows

    rows = benchmark(commit)
    assert store.get_many(rows) == rows
