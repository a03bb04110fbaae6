"""One phase of a benchmark from its settings to its results: load, or run.

A phase ends when its operations are done, when `maxexecutiontime` is over, or with Ctrl-C; in each case there
are results of what was done until then. Errors of the store do not end it: they are counted. What cannot be
done is said before anything is.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO

import numpy as np

from ckpt.contract.backend import Backend
from ckpt.contract.registry import open_backend
from ckpt.errors import CkptError, ConfigError
from ckpt.keeper.lanes import Overflow
from ckpt_bench.interrupts import Interrupts
from ckpt_bench.ycsb.bindings import NOT_FOUND, Binding, bound, counted
from ckpt_bench.ycsb.choosing import Chooser
from ckpt_bench.ycsb.client import Client, Loader, Worker
from ckpt_bench.ycsb.crash import Crashes
from ckpt_bench.ycsb.driving import Driver
from ckpt_bench.ycsb.generators import InsertedKeys
from ckpt_bench.ycsb.histogram import LatencyHistogram
from ckpt_bench.ycsb.measures import Measurements, Recorder, Row
from ckpt_bench.ycsb.ready import open_used, reads_records, require_records
from ckpt_bench.ycsb.settings import Kind, Settings
from ckpt_bench.ycsb.status import Bar, Lines, Status
from ckpt_bench.ycsb.upkeep import Event, Upkeep, require_possible

_OTHER_RECORDS = " (was it loaded with this recordcount, insertstart, insertorder, zeropadding, fieldcount?)"
_OTHER_VALUES = " (was it loaded with dataintegrity=true and this fieldlength?)"


@dataclass
class Results:
    """What a phase found."""

    address: str
    phase: str
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What went wrong, in words; none if everything was as it should be."""
    unwritten: list[str] = field(default_factory=list)
    """Files beside the results that are not whole, in words."""
    interrupted: bool = False
    reached: str = ""
    """How far it came, if it was interrupted."""
    counts: list[Row] = field(default_factory=list)
    """Those of the rows that are neither latencies nor numbers of operations."""
    histograms: dict[str, LatencyHistogram] = field(default_factory=dict)
    per_second: dict[str, Counter[int]] = field(default_factory=dict)
    per_second_us: dict[str, Counter[int]] = field(default_factory=dict)
    """Operation → second → how many ended in it; and the sum of their latencies."""
    events: list[Event] = field(default_factory=list)
    """What happened besides operations."""


class Phase:
    """One phase on one store."""

    def __init__(
        self,
        address: str,
        settings: Settings,
        say: Callable[[str], object],
        out: TextIO,
        interrupts: Interrupts | None = None,
    ) -> None:
        self._address = address
        self._settings = settings
        self._say = say
        self._measurements = Measurements(settings, out)
        self._driver = Driver(settings, say, interrupts or Interrupts())
        self._first_errors: dict[str, str] = {}
        self._seeds = np.random.SeedSequence(settings.seed)

    # -- the two phases --------------------------------------------------------------------------

    def load(self) -> Results:
        """Insert the records."""
        if not self._settings.inserts:
            raise ConfigError("there are no records to load; say how many, such as -p recordcount=1000")
        with self._opened(open_backend) as backend:
            return self._phase("load", backend, self._loaders, self._settings.inserts)

    def run(self) -> Results:
        """Carry the operations out."""
        settings = self._settings
        total = settings.operationcount or None  # in YCSB 0 is as many as there is time for
        if total is None and not settings.maxexecutiontime:
            if not settings.asks_more:
                raise ConfigError("the run has no end; set operationcount or maxexecutiontime")
            total = 0
        choose = self._choosing() if total != 0 else {}
        if settings.scanproportion and total != 0:
            self._say(
                "each SCAN walks the table from its first key: the contract of backends has no scan that "
                "begins at a key"
            )
        uses = reads_records(settings, total) or settings.recovercount or settings.gccount
        with self._opened(open_used if uses or settings.migratecount else open_backend) as backend:
            require_possible(self._address, backend, settings)
            if not backend.capabilities.persistent and settings.inserts:
                loaded = self._load_first(backend)
                if loaded is not None and loaded.interrupted:
                    return loaded
            return self._phase("run", backend, partial(self._workers, choose), total)

    @contextmanager
    def _opened(self, opens: Callable[[str], Backend]) -> Iterator[Backend]:
        backend = opens(self._address)
        try:
            with self._driver.interrupts:
                yield backend
        finally:
            if not self._driver.left_open:
                backend.close()

    def _load_first(self, backend: Backend) -> Results | None:
        """Load what would not outlive a load of its own; it is not part of what is measured."""
        self._say(
            f"{backend.address} keeps nothing between processes: loading {self._settings.inserts} records"
        )
        quietly = replace(
            self._settings,
            target=0.0,
            threadcount=1,
            maxexecutiontime=0,
            hdr_files=False,
            measurementtype=Kind.HDR,
        )
        loading = Phase(self._address, quietly, self._say, sys.stderr, self._driver.interrupts)
        loaded = loading._phase("load", backend, loading._loaders, quietly.inserts, keep_open=True)
        if loaded.interrupted:
            loaded.reached += ", and no operation was carried out"
        elif loaded.faults:
            self._say(f"not all of them are there: {'; '.join(loaded.faults)}")
        return loaded

    def _loaders(self, binding: Binding, total: int | None) -> list[Client]:
        numbers = itertools.count(self._settings.insertstart)
        return self._clients(Loader, total, binding, numbers=numbers)

    def _choosing(self) -> dict[str, object]:
        """What the threads of a run share."""
        inserted = InsertedKeys(self._settings.recordcount)
        return {"chooser": Chooser(self._settings, inserted), "inserted": inserted}

    def _workers(self, choose: dict[str, object], binding: Binding, total: int | None) -> list[Client]:
        if total == 0:
            return []
        return self._clients(Worker, total, binding, **choose)

    def _clients(
        self, kind: type[Client], total: int | None, binding: Binding, **own: object
    ) -> list[Client]:
        settings = self._settings
        threads = settings.threadcount if total is None else max(min(settings.threadcount, total), 1)
        return [
            kind(
                number,
                None if total is None else total // threads + (number < total % threads),
                settings=settings,
                binding=binding,
                recorder=self._measurements.recorder(),
                stop=self._driver.stop,
                on_error=self._on_error,
                random=np.random.default_rng(seed),
                **own,
            )
            for number, seed in enumerate(self._seeds.spawn(threads))
        ]

    # -- any phase -------------------------------------------------------------------------------

    def _phase(
        self,
        name: str,
        backend: Backend,
        make_clients: Callable[[Binding, int | None], list[Client]],
        total: int | None,
        *,
        keep_open: bool = False,
    ) -> Results:
        driver, own = self._driver, self._measurements.recorder()
        settings = self._settings if name == "run" else _dropping_nothing(self._settings)
        binding = bound(backend, settings, own, self._on_error)
        try:
            if name == "run" and reads_records(self._settings, total):
                require_records(binding, backend, self._settings)
            clients = make_clients(binding, total)
        except BaseException:
            binding.close()
            raise
        started_ns = self._measurements.begin()
        upkeep = self._upkeep(backend, clients, total, own) if name == "run" else None
        with self._status(name, total) as status:
            driver.operate(clients, upkeep, status, total)
            self._noted("flush", driver.finish(binding, clients, status, total))
        took_ns = time.perf_counter_ns() - started_ns
        if any(client.failure for client in clients):
            driver.cancelled.set()
        if upkeep is not None:
            driver.let(upkeep.finish)
        closing_ns = time.perf_counter_ns()
        self._noted("close", driver.close(binding.close, *([] if keep_open else [backend.close])))
        if not driver.left_open:
            cleanup = own.of("CLEANUP")
            cleanup.extend([closing_ns] * (self._settings.measurement_interval != "op"))
            cleanup.extend((closing_ns, time.perf_counter_ns()))
        for thread in (*clients, upkeep):
            if thread is not None and thread.failure is not None:
                raise thread.failure
        crashes = self._crashes(own)
        if name == "run":
            driver.let(crashes.run)
        results = Results(backend.address, name, interrupted=driver.interrupted)
        self._gather(results, binding, upkeep, crashes, took_ns, sum(client.done for client in clients))
        if results.interrupted:
            results.reached = self._reached(clients, total, upkeep, crashes)
        if upkeep is not None:
            moments = [tuple((at - started_ns) / 1e9 for at in moment) for moment in crashes.moments_ns]
            results.events = upkeep.events + [
                Event("CRASH", killed_s, read_s) for killed_s, read_s in moments
            ]
        return results

    def _gather(
        self,
        results: Results,
        binding: Binding,
        upkeep: Upkeep | None,
        crashes: Crashes,
        took_ns: int,
        done: int,
    ) -> None:
        results.counts = [
            *binding.rows(),
            *(upkeep.rows() if upkeep is not None else []),
            *(crashes.rows() if self._settings.crashcount and upkeep is not None else []),
        ]
        results.rows = [
            ("OVERALL", "RunTime(ms)", took_ns // 1_000_000),
            ("OVERALL", "Throughput(ops/sec)", done / (took_ns / 1e9)),
            *results.counts,
            *self._measurements.rows(),
        ]
        results.faults = [*self._faults(), *binding.faults(), *crashes.faults()]
        results.unwritten = self._measurements.unwritten()
        results.per_second = self._measurements.per_second
        results.per_second_us = self._measurements.per_second_us
        names = {row[0] for row in results.rows}
        results.histograms = {
            each: found for each in sorted(names) if (found := self._measurements.histogram(each)) is not None
        }

    def _reached(
        self, clients: Sequence[Client], total: int | None, upkeep: Upkeep | None, crashes: Crashes
    ) -> str:
        """How far a phase came that was interrupted."""
        done = sum(client.done for client in clients)
        what = "records were loaded" if upkeep is None else "operations were carried out"
        said = f"{done:,}{'' if total is None else f' of {total:,}'} {what}"
        left = Counter[str]() if upkeep is None else upkeep.left()
        if upkeep is not None:
            left["CRASH"] += self._settings.crashcount - crashes.done
        return f"{said}; not done: {counted(+left)}" if +left else said

    def _upkeep(
        self, backend: Backend, clients: Sequence[Client], total: int | None, recorder: Recorder
    ) -> Upkeep:
        limit_s = self._settings.maxexecutiontime
        begun_s = time.monotonic()

        def reached() -> float:
            by_count = sum(client.done for client in clients) / total if total else 0.0
            by_time = (time.monotonic() - begun_s) / limit_s if limit_s else 0.0
            return max(by_count, by_time)

        return Upkeep(
            self._address,
            backend,
            self._settings,
            recorder=recorder,
            stop=self._driver.stop,
            cancelled=self._driver.cancelled,
            reached=reached,
            on_error=self._on_error,
            say=self._say,
        )

    def _crashes(self, recorder: Recorder) -> Crashes:
        return Crashes(
            self._address,
            self._settings,
            recorder=recorder,
            cancelled=self._driver.cancelled,
            on_error=self._on_error,
            say=self._say,
        )

    def _status(self, what: str, total: int | None) -> Status:
        if self._settings.status:
            return Lines(self._measurements, self._settings, self._say)
        return Bar(what, total, self._measurements)

    def _noted(self, name: str, error: Exception | None) -> None:
        """Errors of the store are counted; others are raised."""
        if isinstance(error, CkptError | OSError):
            self._on_error(name, error)
        elif error is not None:
            raise error

    def _on_error(self, name: str, error: Exception) -> None:
        self._first_errors.setdefault(name, str(error))

    def _faults(self) -> list[str]:
        by_name: dict[str, Counter[str]] = {}
        for (name, status), count in self._measurements.statuses().items():
            by_name.setdefault(name, Counter())[status] += count
        found = []
        for name in {**by_name, **self._first_errors}:
            first = self._first_errors.get(name)
            if name not in by_name:
                found.append(f"{name}: {first}")
                continue
            counts = counted(by_name[name])
            if NOT_FOUND in by_name[name]:
                counts += _OTHER_RECORDS
            if name == "VERIFY" and "UNEXPECTED_STATE" in by_name[name]:
                counts += _OTHER_VALUES
            found.append(f"{name}: {counts}" + (f"; the first: {first}" if first is not None else ""))
        return found


def _dropping_nothing(settings: Settings) -> Settings:
    """A load is there to put every record into the store, also where a run drops saves."""
    options = settings.keeper_options
    if options.get("overflow") not in (Overflow.DROP_OLDEST, Overflow.DROP_NEW):
        return settings
    return replace(settings, keeper_options={**options, "overflow": Overflow.BLOCK})
