"""A save is queued, and stored after a flush: the SafeKeeper beside a plain `queue.Queue` with a thread.

Both encode with the same codec and write to a backend in memory, so the difference is what stands between the
operator and the backend. The durable table has the whole way to a disk, with the keeper and without.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Protocol

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import ckpt
from ckpt.values.envelope import ValueCodec
from ckpt_bench.stores import NAMESPACE, BackendStore
from tests.benchmarks.work import OpenHere, batches

SAVES, ROUNDS = 1000, 200
STATES = {f"key-{n:04}": {"count": n, "share": n / 7} for n in range(SAVES)}


class Queue(Protocol):
    """What is between an operator and a backend."""

    def save(self, key: str, state: object) -> object:
        """Queue a state."""

    def flush(self) -> None:
        """Return when everything queued is stored."""

    def load(self, key: str) -> object:
        """A state."""

    def close(self) -> None:
        """End the thread."""


class Keeper:
    """A SafeKeeper over a backend in memory."""

    def __init__(self) -> None:
        self._keeper = ckpt.SafeKeeper("memory://")
        states = self._keeper.namespace(NAMESPACE)
        self.save, self.load = states.save, states.load

    def flush(self) -> None:
        self._keeper.flush()

    def close(self) -> None:
        self._keeper.close()


class PlainQueue:
    """A `queue.Queue`, and a thread that writes one state after the other to a backend in memory."""

    def __init__(self) -> None:
        self._backend, self._codec = ckpt.open_backend("memory://"), ValueCodec()
        self._queue: queue.Queue[tuple[str, object] | None] = queue.Queue()
        self._writer = threading.Thread(target=self._write)
        self._writer.start()

    def save(self, key: str, state: object) -> None:
        self._queue.put((key, state))

    def flush(self) -> None:
        self._queue.join()

    def load(self, key: str) -> object:
        name = key.encode()
        data = self._backend.get_many(NAMESPACE, [name])[name]
        return self._codec.decode(data, namespace=NAMESPACE, key=name)

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._backend.close()

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            key, state = item[0].encode(), item[1]
            data = self._codec.encode(state, namespace=NAMESPACE, key=key)
            self._backend.put_many(NAMESPACE, {key: data})
            self._queue.task_done()


@pytest.fixture(params=[Keeper, PlainQueue], ids=["SafeKeeper", "queue.Queue"])
def between(request: pytest.FixtureRequest) -> Iterator[Queue]:
    made: Queue = request.param()
    yield made
    made.close()


def save_all(between: Queue) -> None:
    for key, state in STATES.items():
        between.save(key, state)


@pytest.mark.benchmark(group=f"save {SAVES:,} states: what the operator waits for")
def test_save(benchmark: BenchmarkFixture, between: Queue) -> None:
    benchmark.pedantic(save_all, args=(between,), setup=between.flush, rounds=ROUNDS)
    between.flush()
    assert {key: between.load(key) for key in STATES} == STATES


@pytest.mark.benchmark(group=f"save {SAVES:,} states, until all are stored in memory")
def test_save_and_flush(benchmark: BenchmarkFixture, between: Queue) -> None:
    def save_and_flush() -> None:
        save_all(between)
        between.flush()

    benchmark(save_and_flush)
    assert {key: between.load(key) for key in STATES} == STATES


DURABLE = "save 1 x 1 KB, until it is durable"


@pytest.mark.benchmark(group=DURABLE)
def test_durable_save(benchmark: BenchmarkFixture, open_here: OpenHere) -> None:
    store = open_here("log", durable=True)
    assert isinstance(store, BackendStore)
    following = batches(records=1, value_bytes=1000)
    with ckpt.SafeKeeper(store.backend) as keeper:
        states = keeper.namespace(NAMESPACE)

        def save() -> tuple[bytes, bytes]:
            [(key, value)] = next(following).items()
            states.save(key, value).result()
            return key, value

        key, value = benchmark(save)
        assert states.load(key) == value


@pytest.mark.benchmark(group=DURABLE)
@pytest.mark.parametrize("name", ["log", "rocksdict", "lmdb"])
def test_durable_put_without_a_keeper(benchmark: BenchmarkFixture, open_here: OpenHere, name: str) -> None:
    store = open_here(name, durable=True)
    codec, following = ValueCodec(), batches(records=1, value_bytes=1000)

    def save() -> tuple[bytes, bytes]:
        [(key, value)] = next(following).items()
        store.put_many({key: codec.encode(value, namespace=NAMESPACE, key=key)})
        return key, value

    key, value = benchmark(save)
    assert codec.decode(store.get_many([key])[key], namespace=NAMESPACE, key=key) == value
