"""Batches of 1,000 x 1 KB on each server beside its driver's own best bulk calls, at equal durability."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from ckpt_bench.drivers import BULK_STORES, BackendStore, BulkStore
from ckpt_bench.interleaved import interleaved, share

EACH = [(server, store) for server, stores in BULK_STORES.items() for store in stores]
LEAST_SHARE = 0.7
"""Of what the driver's own bulk call reaches, as a throughput."""
LEAST_SHARE_AT_ONCE = {"redis": 0.5}
"""Of a few full batches in an ordinary test run, on a server that is fast enough for it."""


@pytest.fixture
def opened_on(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], BulkStore]]:
    opened: list[tuple[str, BulkStore]] = []

    def open_named(server: str, store: str) -> BulkStore:
        opened.append((server, BULK_STORES[server][store](address(server))))
        return opened[-1][1]

    def address(server: str) -> str:
        own = {"hbase": "hbase_table", "cassandra": "cassandra_keyspace"}.get(server)
        return request.getfixturevalue(own) if own else request.getfixturevalue("dev_server")(server)

    yield open_named
    for server, store in opened:
        store.close()
        # The others are in a table or keyspace that goes with the session.
        if server == "redis" and isinstance(store, BackendStore):
            with redis.Redis.from_url(address(server)) as client:
                for key in client.scan_iter(match=f"{store.prefix}*", count=1000):
                    client.unlink(key)


@pytest.mark.parametrize(("server", "store"), EACH)
def test_batched_puts(benchmark, timed, opened_on, batches, server, store):
    benchmark.group = f"{server}: puts of 1,000 x 1 KB"
    work = itertools.cycle(batches(20 if timed else 1, 1000 if timed else 20, 1000))
    benchmark.pedantic(
        opened_on(server, store).put_many,
        setup=lambda: ((next(work),), {}),
        rounds=60 if timed else 1,
        warmup_rounds=10 if timed else 0,
    )


@pytest.mark.parametrize(("server", "store"), EACH)
def test_gets(benchmark, timed, opened_on, batches, server, store):
    benchmark.group = f"{server}: gets of 1,000 x 1 KB"
    opened = opened_on(server, store)
    written = batches(20 if timed else 1, 1000 if timed else 20, 1000)
    newest: dict[bytes, bytes] = {}
    for batch in written:
        opened.put_many(batch)
        newest |= batch
    work = itertools.cycle([list(batch) for batch in written])
    found = benchmark.pedantic(
        opened.get_many,
        setup=lambda: ((next(work),), {}),
        rounds=60 if timed else 1,
        warmup_rounds=10 if timed else 0,
    )
    assert found
    assert found.items() <= newest.items()


@pytest.mark.parametrize("server", BULK_STORES)
def test_share_of_the_drivers_throughput(benchmark, timed, opened_on, batches, server):
    """First new keys, then the same again twice; the best of the driver's ways counts."""
    benchmark.group = f"{server}: all in turn"
    full = timed or server in LEAST_SHARE_AT_ONCE
    work = 3 * batches(20 if timed else 5 if full else 1, 1000 if full else 20, 1000)
    stores = {store: opened_on(server, store) for store in BULK_STORES[server]}

    def run() -> dict[str, dict[str, list[float]]]:
        puts = interleaved({name: store.put_many for name, store in stores.items()}, work)
        gets = interleaved({name: store.get_many for name, store in stores.items()}, map(list, work))
        return {"puts": puts, "gets": gets}

    took = benchmark.pedantic(run, rounds=1)
    least = LEAST_SHARE if timed else LEAST_SHARE_AT_ONCE.get(server, 0)
    for name, times in took.items():
        reached = share(times, "ckpt")
        benchmark.extra_info[name] = str(reached)
        print(f"{server} {name}: {reached} of the driver's throughput")
        assert reached.middle >= least, name
