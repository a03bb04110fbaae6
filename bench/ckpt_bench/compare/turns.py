"""What one store does when it is its turn: the work is made ready first, and only the store is timed.

The work follows from the seed and the number of the round alone, so it is the same for every store.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ckpt.errors import CorruptRecordError
from ckpt_bench.drivers import BULK_STORES
from ckpt_bench.objects import open_object_store
from ckpt_bench.stores import open_store

_POOL_BYTES = 1 << 20
_LOAD_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    keys: int
    rounds: int
    calls: int
    """In one turn."""
    records: int
    """Of one call."""
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """One store in one case."""

    case: str
    store: str
    folder: str
    """A path that nothing is at yet."""
    durable: bool
    sizes: Sizes
    seed: int
    address: str | None = None
    """Of a store that is on a server."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn took, and how many operations that was."""

    seconds: float
    operations: int
    written: int | None = None
    """How many records became durable, where that is not for the case to say: a queue replaces saves."""


class Player(Protocol):
    """One store in one case, ready to take turns."""

    def turn(self, number: int) -> Turn:
        """The work of that round, timed."""

    def close(self) -> None:
        """Free the store."""


class Work:
    """Keys and values of a job."""

    def __init__(self, job: Job) -> None:
        self.sizes, self._seed = job.sizes, job.seed
        self._pool = random.Random(job.seed).randbytes(_POOL_BYTES + job.sizes.value_bytes)

    def chooser(self, number: int) -> random.Random:
        return random.Random(f"{self._seed} {number}")

    def value(self, chooser: random.Random) -> bytes:
        at = int(chooser.random() * _POOL_BYTES)
        return self._pool[at : at + self.sizes.value_bytes]

    def key(self, chooser: random.Random) -> bytes:
        return b"key-%012d" % int(chooser.random() * self.sizes.keys)

    def batch(self, chooser: random.Random) -> dict[bytes, bytes]:
        return {self.key(chooser): self.value(chooser) for _ in range(self.sizes.records)}

    def load(self, batch_records: int) -> Iterator[dict[bytes, bytes]]:
        """Every key once, in order."""
        chooser = self.chooser(-1)
        for start in range(0, self.sizes.keys, batch_records):
            numbers = range(start, min(start + batch_records, self.sizes.keys))
            yield {b"key-%012d" % number: self.value(chooser) for number in numbers}


# -- direct --------------------------------------------------------------------------------------


class PutBatches:
    """Batches of puts of random keys."""

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        self._store = open_store(job.store, job.folder, durable=job.durable)

    def turn(self, number: int) -> Turn:
        chooser = self._work.chooser(number)
        batches = [self._work.batch(chooser) for _ in range(self._work.sizes.calls)]
        put_many = self._store.put_many
        started_s = time.perf_counter()
        for batch in batches:
            put_many(batch)
        return Turn(time.perf_counter() - started_s, sum(map(len, batches)))

    def close(self) -> None:
        self._store.close()


class MixedBatches:
    """Nine batches of puts, then one of gets, over keys that are all there."""

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        self._store = open_store(job.store, job.folder, durable=job.durable)
        for batch in self._work.load(_LOAD_BATCH):
            self._store.put_many(batch)

    def turn(self, number: int) -> Turn:
        chooser = self._work.chooser(number)
        batches = [self._work.batch(chooser) for _ in range(self._work.sizes.calls)]
        steps: list[tuple[bool, Any]] = [
            (True, list(batch)) if n % 10 == 9 else (False, batch) for n, batch in enumerate(batches)
        ]
        put_many, get_many = self._store.put_many, self._store.get_many
        missing = 0
        started_s = time.perf_counter()
        for is_read, what in steps:
            if is_read:
                missing += len(what) - len(get_many(what))
            else:
                put_many(what)
        seconds = time.perf_counter() - started_s
        refuse_missing(missing)
        return Turn(seconds, sum(map(len, batches)))

    def close(self) -> None:
        self._store.close()


class Openings:
    """A store with all keys is opened and read from once; closing it is not counted."""

    def __init__(self, job: Job) -> None:
        self._work, self._job = Work(job), job
        store = open_store(job.store, job.folder, durable=job.durable)
        for batch in self._work.load(job.sizes.records):
            store.put_many(batch)
        store.close()

    def turn(self, number: int) -> Turn:
        wanted = self._work.key(self._work.chooser(number))
        started_s = time.perf_counter()
        store = open_store(self._job.store, self._job.folder, durable=self._job.durable)
        found = store.get_many([wanted])
        seconds = time.perf_counter() - started_s
        store.close()
        refuse_missing(1 - len(found))
        return Turn(seconds, 1)

    def close(self) -> None:
        """It is open only during a turn."""


# -- on servers ---------------------------------------------------------------------------------


class ObjectBatches:
    """Batches of puts on an S3 service; a batch is made ready for the store before the clock starts."""

    _NAMES: Mapping[str, str] = {"s3": "ckpt", "raw-put": "raw put"}

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        assert job.address is not None
        self._store = open_object_store(self._NAMES.get(job.store, job.store), job.address, unique_name())
        self._store.put(self._store.prepare({b"first": b"1"}))

    def turn(self, number: int) -> Turn:
        chooser = self._work.chooser(number)
        batches = [self._work.batch(chooser) for _ in range(self._work.sizes.calls)]
        prepared = [self._store.prepare(batch) for batch in batches]
        started_s = time.perf_counter()
        for batch in prepared:
            self._store.put(batch)
        return Turn(time.perf_counter() - started_s, sum(map(len, batches)))

    def close(self) -> None:
        self._store.close()


class BulkBatches:
    """Batches on a server: our backend, or the best bulk calls of the driver that it uses."""

    def __init__(self, job: Job) -> None:
        self._work = Work(job)
        assert job.address is not None
        server, _, call = job.store.partition("-")
        self._store = BULK_STORES[server][call or "ckpt"](job.address)
        self._reads = job.case.endswith("-gets")
        if self._reads:
            for batch in self._work.load(job.sizes.records):
                self._store.put_many(batch)

    def turn(self, number: int) -> Turn:
        chooser = self._work.chooser(number)
        batches = [self._work.batch(chooser) for _ in range(self._work.sizes.calls)]
        keys = [list(batch) for batch in batches]
        missing = 0
        started_s = time.perf_counter()
        if self._reads:
            for wanted in keys:
                missing += len(wanted) - len(self._store.get_many(wanted))
        else:
            for batch in batches:
                self._store.put_many(batch)
        seconds = time.perf_counter() - started_s
        refuse_missing(missing)
        return Turn(seconds, sum(map(len, batches)))

    def close(self) -> None:
        self._store.close()


def unique_name() -> str:
    """A name for what a benchmark leaves on a server."""
    return f"bench-{secrets.token_hex(6)}"


def refuse_missing(missing: int) -> None:
    """Raise unless every key that was written was found: a store that loses them is not fast."""
    if missing:
        raise CorruptRecordError(f"{missing} keys that were written were not found again")
