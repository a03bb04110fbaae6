"""Durable batches on S3 beside a raw PUT of the same bytes and SlateDB (design §9, object store)."""

from __future__ import annotations

import itertools
import secrets
import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from ckpt_bench.objects import OBJECT_STORES, ObjectStore, open_object_store


@pytest.fixture
def opened_at(dev_server: Callable[[str], str]) -> Iterator[Callable[[str], ObjectStore]]:
    stores: list[ObjectStore] = []

    def open_named(name: str) -> ObjectStore:
        path = f"bench-{secrets.token_hex(6)}"
        stores.append(open_object_store(name, dev_server("s3"), path))
        stores[-1].put(stores[-1].prepare({b"first": b"1"}))
        return stores[-1]

    yield open_named
    for store in stores:
        store.close()


@pytest.mark.parametrize("store", OBJECT_STORES)
@pytest.mark.parametrize("records", [1, 100, 1000])
def test_durable_batches_on_s3(benchmark, timed, opened_at, batches, store, records):
    benchmark.group = f"9 S3: durable batch of 1 KB values, {records:>4}"
    work = itertools.cycle(batches(20 if timed else 1, records if timed else min(records, 20), 1000))
    opened = opened_at(store)
    benchmark.pedantic(
        opened.put, setup=lambda: ((opened.prepare(next(work)),), {}), rounds=150 if timed else 1
    )


@pytest.mark.parametrize("records", [1, 100, 1000])
def test_ratios_on_s3(benchmark, timed, opened_at, batches, records):
    """All stores in turn, so that whatever else the machine does hits them alike; ratios of the medians."""
    benchmark.group = f"9 S3: one round of all three, {records:>4}"
    stores = {name: opened_at(name) for name in OBJECT_STORES}
    times: dict[str, list[float]] = {name: [] for name in stores}
    work = itertools.cycle(batches(20 if timed else 1, records if timed else min(records, 20), 1000))

    def one_round() -> None:
        batch = next(work)
        for name, store in stores.items():
            prepared = store.prepare(batch)
            started = time.perf_counter()
            store.put(prepared)
            times[name].append(time.perf_counter() - started)

    benchmark.pedantic(one_round, rounds=100 if timed else 1)
    median = {name: statistics.median(measured) for name, measured in times.items()}
    for peer in ("raw put", "slatedb"):
        benchmark.extra_info[f"{peer} / ckpt"] = round(median[peer] / median["ckpt"], 2)
    assert set(times) == set(OBJECT_STORES)
