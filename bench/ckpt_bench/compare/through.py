"""Turns that go through a SafeKeeper; a turn ends when everything saved in it is durable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ckpt.contract.backend import Backend
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt_bench.compare.behind import Home
from ckpt_bench.compare.turns import Job, Turn, Work, refuse_missing
from ckpt_bench.stores import OURS, open_store

PRODUCERS = 8
_BEHIND = "-keeper"


class Producers:
    """Threads that save at once: through a SafeKeeper, or straight to a peer with a put for each."""

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        self._saves = max(job.sizes.calls // PRODUCERS, 1)
        name = job.store.removesuffix(_BEHIND)
        if name != job.store or name in OURS:
            home = Home(job, name)
            backend = home.open()
            keeper = SafeKeeper(backend)
            states = keeper.namespace(home.namespace)

            def produce(items: list[tuple[bytes, bytes]]) -> None:
                for key, value in items:
                    states.save(key, value)

            def close() -> None:
                try:
                    keeper.close()
                finally:
                    home.leave(backend)

            self._produce, self._finish, self.close = produce, lambda: keeper.flush(), close
        else:
            store = open_store(name, job.folder, durable=True)

            def put(items: list[tuple[bytes, bytes]]) -> None:
                for key, value in items:
                    store.put_many({key: value})

            self._produce, self._finish, self.close = put, _nothing, store.close

    def turn(self, number: int) -> Turn:
        chooser = self._work.chooser(number)
        total = PRODUCERS * self._saves
        keys = self._work.sizes.keys
        # No key twice in a turn: nothing is coalesced, so that everybody writes the same.
        items = [
            (b"key-%012d" % ((number * total + n) % max(keys, total)), self._work.value(chooser))
            for n in range(total)
        ]
        shares = [items[producer::PRODUCERS] for producer in range(PRODUCERS)]
        return Turn(_in_threads(self._produce, shares, self._finish), total)


class ThesisWrites:
    """10,000 operations, nine saves for each load, on 1,000 keys, from one operator.

    A save that is queued behind a slow store is replaced by the next one of its key, so the slower a store,
    the less it has to write. The records that it did write are counted.
    """

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        self._home = Home(job, job.store)
        self._backend = self._home.open()
        self._keeper = _keeper_of(self._backend)
        self._states = self._keeper.namespace(self._home.namespace)
        for batch in self._work.load(1000):
            for key, value in batch.items():
                self._states.save(key, value)
        self._keeper.flush()

    def turn(self, number: int) -> Turn:
        chooser, sizes = self._work.chooser(number), self._work.sizes
        steps = [
            (self._work.key(chooser), None if n % 10 == 9 else self._work.value(chooser))
            for n in range(sizes.calls)
        ]
        save, load = self._states.save, self._states.load
        missing = 0
        durable_before = self._states.accounts().durable
        started_s = time.perf_counter()
        for key, value in steps:
            if value is None:
                missing += load(key) is None
            else:
                save(key, value)
        self._keeper.flush()
        seconds = time.perf_counter() - started_s
        refuse_missing(missing)
        return Turn(seconds, len(steps), self._states.accounts().durable - durable_before)

    def close(self) -> None:
        try:
            self._keeper.close()
        finally:
            self._home.leave(self._backend)


class ThesisReads:
    """Every key is loaded once from a store that was just opened; opening it is not counted."""

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        self._home = Home(job, job.store)
        with self._home.open() as backend:
            for batch in self._work.load(1000):
                with SafeKeeper(backend) as keeper:
                    states = keeper.namespace(self._home.namespace)
                    for key, value in batch.items():
                        states.save(key, value)

    def turn(self, number: int) -> Turn:
        keys = [b"key-%012d" % n for n in range(self._work.sizes.keys)]
        self._work.chooser(number).shuffle(keys)
        with self._home.open() as backend, _keeper_of(backend) as keeper:
            load = keeper.namespace(self._home.namespace).load
            started_s = time.perf_counter()
            missing = sum(load(key) is None for key in keys)
            seconds = time.perf_counter() - started_s
        refuse_missing(missing)
        return Turn(seconds, len(keys))

    def close(self) -> None:
        self._home.leave(self._home.open())


def _keeper_of(backend: Backend) -> SafeKeeper:
    """One without a timeout: no thread is between a load and the store, whose time would be measured."""
    return SafeKeeper(backend, fetch_timeout_s=None)


def _nothing() -> None:
    """What was put is durable already."""


def _in_threads(
    work: Callable[[list[tuple[bytes, bytes]]], None],
    shares: list[list[tuple[bytes, bytes]]],
    finish: Callable[[], None],
) -> float:
    """Seconds until every thread is through its share and `finish` returns; raises what a thread raised."""
    failures: list[Exception] = []
    begin = threading.Barrier(len(shares) + 1)

    def run(share: list[tuple[bytes, bytes]]) -> None:
        begin.wait()
        try:
            work(share)
        except Exception as error:  # noqa: BLE001 - raised below, whatever a peer raises
            failures.append(error)

    threads = [threading.Thread(target=run, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    begin.wait()
    started_s = time.perf_counter()
    for thread in threads:
        thread.join()
    finish()
    seconds = time.perf_counter() - started_s
    if failures:
        raise failures[0]
    return seconds
