"""One store at one number of keys, in a process of its own: whatever is timed or weighed happens here.

Nothing is synced, so that what grows with the keys is not hidden behind the disk; a process that is killed
loses nothing of it all the same, since the system has it.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from urllib.parse import quote

from ckpt.contract.addresses import parse_address
from ckpt_bench.compare.turns import Job, Turn, Work, refuse_missing
from ckpt_bench.processes import Memory, memory
from ckpt_bench.stores import BackendStore, Store, open_store

_LOAD_RECORDS = 1000
_CHURN = 4
"""One in so many keys is put again before garbage is collected: every file has some, none is only that."""


class Cell:
    """A store that is filled, used, left, and opened again."""

    def __init__(self, job: Job) -> None:
        self._job, self._work = job, Work(job)
        self._store: Store | None = None
        # Packages are imported, and what happens once in a process has happened, before anything is timed.
        with tempfile.TemporaryDirectory(dir=os.path.dirname(job.folder)) as aside:
            store = self._open(os.path.join(aside, "store"))
            store.put_many({b"first": b"1"})
            refuse_missing(1 - len(store.get_many([b"first"])))
            store.close()

    # -- while it is filled and used -------------------------------------------------------------

    def fill(self) -> Memory:
        """Put every key; what the process had in memory before, with the store open and empty."""
        store = self._store = self._open(self._job.folder)
        before = memory()
        for batch in self._work.load(_LOAD_RECORDS):
            store.put_many(batch)
        return before

    def put(self, number: int) -> Turn:
        """New values for random keys, in batches."""
        batches, put_many = self._batches(number), self._opened().put_many
        started_s = time.perf_counter()
        for batch in batches:
            put_many(batch)
        return Turn(time.perf_counter() - started_s, sum(map(len, batches)))

    def get(self, number: int) -> Turn:
        """The values of random keys, in batches."""
        wanted, get_many = [list(batch) for batch in self._batches(-2 - number)], self._opened().get_many
        missing = 0
        started_s = time.perf_counter()
        for keys in wanted:
            missing += len(keys) - len(get_many(keys))
        seconds = time.perf_counter() - started_s
        refuse_missing(missing)
        return Turn(seconds, sum(map(len, wanted)))

    def memory(self) -> Memory:
        """What the process has in memory now."""
        return memory()

    # -- after it was left -----------------------------------------------------------------------

    def recover(self, folder: str, number: int) -> tuple[float, float]:
        """Open a store whose writer was killed: seconds to the first record, and until all were read."""
        started_s = time.perf_counter()
        store = self._open(folder)
        first_s = self._read_one(store, number) - started_s
        found = sum(1 for _ in store.scan())
        all_s = time.perf_counter() - started_s
        store.close()
        refuse_missing(self._job.sizes.keys - found)
        return first_s, all_s

    def open(self, number: int) -> float:
        """Seconds to open a store that was closed, and to read one record."""
        started_s = time.perf_counter()
        store = self._open(self._job.folder)
        seconds = self._read_one(store, number) - started_s
        store.close()
        return seconds

    def collect(self, number: int) -> float:
        """Seconds to collect the garbage that new values for a part of the keys have left."""
        if self._store is None:
            self._store = self._open(self._job.folder)
        chooser = self._work.chooser(number)
        keys = self._job.sizes.keys
        for start in range(number % _CHURN, keys, _LOAD_RECORDS * _CHURN):
            numbers = range(start, min(start + _LOAD_RECORDS * _CHURN, keys), _CHURN)
            self._store.put_many({b"key-%012d" % n: self._work.value(chooser) for n in numbers})
        started_s = time.perf_counter()
        self._store.compact()
        return time.perf_counter() - started_s

    def disk(self) -> int:
        """Close the store; the bytes that it has on disk then."""
        self.close()
        return sum(
            os.stat(os.path.join(folder, name)).st_blocks * 512
            for folder, _, names in os.walk(self._job.folder)
            for name in names
        )

    def close(self) -> None:
        """Free the store, if it is open."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _batches(self, number: int) -> list[dict[bytes, bytes]]:
        chooser = self._work.chooser(number)
        return [self._work.batch(chooser) for _ in range(self._job.sizes.calls)]

    def _read_one(self, store: Store, number: int) -> float:
        """When a random record was read."""
        wanted = self._work.key(self._work.chooser(number))
        found = store.get_many([wanted])
        at_s = time.perf_counter()
        refuse_missing(1 - len(found))
        return at_s

    def _opened(self) -> Store:
        assert self._store is not None
        return self._store

    def _open(self, folder: str) -> Store:
        if self._job.address is None:
            return open_store(self._job.store, folder, durable=self._job.durable)
        address = parse_address(self._job.address)
        options = {"durability": "os", **address.options}
        return BackendStore(str(replace(address, location=quote(folder), options=options)))
