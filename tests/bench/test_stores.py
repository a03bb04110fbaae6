"""put, get, batch, open and garbage collection of the log beside its peers (design §9, rows 1 to 8)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ckpt_bench.stores import open_store

ALL = ["log", "rocksdict", "lmdb"]


@pytest.mark.parametrize("store", ALL)
@pytest.mark.parametrize("size", [100, 1000])
def test_batched_puts_without_sync(benchmark, timed, opened, batches, store, size):
    benchmark.group = f"1 batched puts, no sync, {size} B"
    work = itertools.cycle(batches(50 if timed else 1, 1000 if timed else 20, size))
    benchmark.pedantic(
        opened(store, False).put_many, setup=lambda: ((next(work),), {}), rounds=400 if timed else 1
    )


@pytest.mark.parametrize("store", [*ALL, "file", "raw"])
@pytest.mark.parametrize("records", [1, 100, 1000])
def test_durable_puts(benchmark, timed, opened, batches, store, records):
    benchmark.group = f"2 durable puts of 1 KB, batch {records:>4}"
    work = itertools.cycle(batches(20 if timed else 1, records if timed else min(records, 20), 1000))
    rounds = (20 if store == "file" and records > 1 else 200) if timed else 1
    benchmark.pedantic(opened(store, True).put_many, setup=lambda: ((next(work),), {}), rounds=rounds)


@pytest.mark.parametrize("store", [*ALL, "file"])
@pytest.mark.parametrize("records", [1, 100])
def test_gets(benchmark, timed, opened, batches, store, records):
    benchmark.group = f"8 gets of 1 KB, batch {records:>4}"
    opened_store = opened(store, False)
    written = batches(20 if timed else 2, 500 if timed else 100, 1000)
    for batch in written:
        opened_store.put_many(batch)
    keys = list(dict.fromkeys(key for batch in written for key in batch))
    work = itertools.cycle([keys[at : at + records] for at in range(0, len(keys) - records, 7)])
    found = benchmark.pedantic(
        opened_store.get_many, setup=lambda: ((next(work),), {}), rounds=2000 if timed else 1
    )
    assert len(found) == min(records, len(keys))


@pytest.mark.parametrize("store", ALL)
def test_mix_of_writes_and_reads(benchmark, timed, opened, batches, store):
    """90 % writes and 10 % reads, one record each, over many more keys than the index keeps recent."""
    benchmark.group = "5 mix 90/10 of 1 KB, batches of 100, no sync"
    opened_store = opened(store, False)
    load = batches(1000 if timed else 2, 100, 1000)
    for batch in load:
        opened_store.put_many(batch)
    work = itertools.cycle(load)

    def step() -> None:
        for _ in range(9):
            opened_store.put_many(next(work))
        opened_store.get_many(list(next(work)))

    benchmark.pedantic(step, rounds=300 if timed else 1)


@pytest.mark.parametrize("store", ALL)
def test_open(benchmark, timed, tmp_path: Path, store):
    keys = 5_000_000 if timed else 1000
    benchmark.group = f"7 open {5_000_000:,} keys and read one"
    folder = str(tmp_path / store)
    filled = open_store(store, folder, durable=False)
    for start in range(0, keys, 10_000):
        filled.put_many({b"key-%012d" % n: b"%d" % n for n in range(start, min(keys, start + 10_000))})
    filled.close()

    def open_and_read() -> None:
        opened_store = open_store(store, folder, durable=False)
        assert opened_store.get_many([b"key-%012d" % (keys // 2)])
        opened_store.close()

    benchmark.pedantic(open_and_read, rounds=20 if timed else 1)


@pytest.mark.parametrize("store", ALL)
def test_garbage_collection(benchmark, timed, opened, batches, store):
    benchmark.group = "GC after ten overwrites of each key, 1 KB"
    work = batches(10 if timed else 2, 1000 if timed else 20, 1000)

    def garbage() -> tuple[tuple[()], dict[str, object]]:
        for batch in work * 10:
            opened_store.put_many(batch)
        return (), {}

    opened_store = opened(store, False)
    benchmark.pedantic(opened_store.compact, setup=garbage, rounds=5 if timed else 1)
