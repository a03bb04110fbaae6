"""One phase of a benchmark from its settings to its results: load, or run.

A phase ends when its operations are done, when `maxexecutiontime` is over, or with Ctrl-C; in each case there
are results of what was done until then. Errors of the store do not end it: they are counted.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

import numpy as np

from ckpt.backend import Backend
from ckpt.errors import CkptError, ConfigError
from ckpt.registry import open_backend
from ckpt_bench.ycsb.bindings import Binding, bound, counted
from ckpt_bench.ycsb.choosing import Chooser
from ckpt_bench.ycsb.client import Client, Loader, Worker
from ckpt_bench.ycsb.crash import Crashes
from ckpt_bench.ycsb.generators import InsertedKeys
from ckpt_bench.ycsb.histogram import LatencyHistogram
from ckpt_bench.ycsb.measures import Measurements, Recorder, Row
from ckpt_bench.ycsb.settings import Settings
from ckpt_bench.ycsb.status import Bar, Lines, Status
from ckpt_bench.ycsb.upkeep import Event, Upkeep


@dataclass
class Results:
    """What a phase found."""

    address: str
    phase: str
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What went wrong, in words; none if everything was as it should be."""
    interrupted: bool = False
    histograms: dict[str, LatencyHistogram] = field(default_factory=dict)
    per_second: dict[str, Counter[int]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """What happened besides operations."""


class Phase:
    """One phase on one store."""

    def __init__(self, address: str, settings: Settings, say: Callable[[str], object], out: TextIO) -> None:
        self._address = address
        self._settings = settings
        self._say = say
        self._measurements = Measurements(settings, out)
        self._stop = threading.Event()
        self._first_errors: dict[str, str] = {}
        self._seeds = np.random.SeedSequence(settings.seed)

    # -- the two phases --------------------------------------------------------------------------

    def load(self) -> Results:
        """Insert the records."""
        with open_backend(self._address) as backend:
            return self._phase("load", backend, self._loaders, self._settings.inserts)

    def run(self) -> Results:
        """Carry the operations out."""
        settings = self._settings
        total = settings.operationcount or None
        if settings.operationcount is None and not settings.maxexecutiontime:
            if settings.asks_more:
                total = 0
            else:
                raise ConfigError("the run has no end; set operationcount or maxexecutiontime")
        if settings.scanproportion:
            self._say(
                "each SCAN walks the table from its first key: the contract of backends has no scan that "
                "begins at a key"
            )
        with open_backend(self._address) as backend:
            if not backend.capabilities.persistent:
                if settings.crashcount:
                    raise ConfigError(
                        f"crashcount: {backend.address} keeps nothing that could survive a crash"
                    )
                self._load_first(backend)
            return self._phase("run", backend, self._workers, total)

    def _load_first(self, backend: Backend) -> None:
        settings = replace(self._settings, target=0.0, threadcount=1)
        self._say(f"{backend.address} keeps nothing between processes: loading {settings.inserts} records")
        measurements = Measurements(settings, sys.stderr)
        binding = bound(backend, settings, measurements.recorder(), self._on_error)
        [loader] = self._clients(Loader, settings, settings.inserts, binding, measurements, **self._numbers())
        loader.run()
        binding.finish()
        binding.close()
        if loader.failure:
            raise loader.failure

    def _loaders(self, binding: Binding, total: int | None) -> list[Client]:
        return self._clients(Loader, self._settings, total, binding, self._measurements, **self._numbers())

    def _numbers(self) -> dict[str, object]:
        return {"numbers": itertools.count(self._settings.insertstart)}

    def _workers(self, binding: Binding, total: int | None) -> list[Client]:
        if total == 0:
            return []
        inserted = InsertedKeys(self._settings.recordcount)
        chooser = Chooser(self._settings, inserted)
        return self._clients(
            Worker,
            self._settings,
            total,
            binding,
            self._measurements,
            chooser=chooser,
            inserted=inserted,
        )

    def _clients(
        self,
        kind: type[Client],
        settings: Settings,
        total: int | None,
        binding: Binding,
        measurements: Measurements,
        **own: object,
    ) -> list[Client]:
        threads = settings.threadcount if total is None else max(min(settings.threadcount, total), 1)
        return [
            kind(
                number,
                None if total is None else total // threads + (number < total % threads),
                settings=settings,
                binding=binding,
                recorder=measurements.recorder(),
                stop=self._stop,
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
    ) -> Results:
        results = Results(backend.address, name)
        own = self._measurements.recorder()
        binding = bound(backend, self._settings, own, self._on_error)
        clients = make_clients(binding, total)
        self._measurements.begun_ns = started_ns = time.perf_counter_ns()
        upkeep = self._upkeep(backend, clients, total, own) if name == "run" else None
        results.interrupted = self._drive(clients, upkeep, self._status(name, total), total)
        self._finish(binding)
        took_ns = time.perf_counter_ns() - started_ns
        if upkeep is not None:
            results.interrupted |= self._interruptible(upkeep.finish)
            results.events = upkeep.events
        closing_ns = time.perf_counter_ns()
        self._closed(binding, backend)
        cleanup = own.of("CLEANUP")
        cleanup.extend([closing_ns] * (self._settings.measurement_interval != "op"))
        cleanup.extend((closing_ns, time.perf_counter_ns()))
        for thread in (*clients, upkeep):
            if thread is not None and thread.failure is not None:
                raise thread.failure
        crashes = self._crashes(own)
        if name == "run" and not results.interrupted:
            self._stop.clear()  # it may have been set because the time for operations was over
            results.interrupted = self._interruptible(crashes.run)
            moments = [tuple((at - started_ns) / 1e9 for at in moment) for moment in crashes.moments_ns]
            results.events += [Event("CRASH", killed_s, read_s) for killed_s, read_s in moments]
        done = sum(client.done for client in clients)
        results.rows = [
            ("OVERALL", "RunTime(ms)", took_ns // 1_000_000),
            ("OVERALL", "Throughput(ops/sec)", done / (took_ns / 1e9)),
            *binding.rows(),
            *(upkeep.rows() if upkeep is not None else []),
            *(crashes.rows() if self._settings.crashcount else []),
            *self._measurements.rows(),
        ]
        results.faults += [*self._faults(), *binding.faults(), *crashes.faults()]
        results.per_second = self._measurements.per_second
        names = {row[0] for row in results.rows}
        results.histograms = {
            each: found for each in sorted(names) if (found := self._measurements.histogram(each)) is not None
        }
        return results

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
            stop=self._stop,
            reached=reached,
            on_error=self._on_error,
            say=self._say,
        )

    def _crashes(self, recorder: Recorder) -> Crashes:
        return Crashes(
            self._address,
            self._settings,
            recorder=recorder,
            stop=self._stop,
            on_error=self._on_error,
            say=self._say,
        )

    def _status(self, what: str, total: int | None) -> Status:
        settings = self._settings
        if settings.status:
            return Lines(self._measurements, settings.status_interval, settings.label, self._say)
        return Bar(what, total, self._measurements)

    def _drive(
        self, clients: Sequence[Client], upkeep: Upkeep | None, status: Status, total: int | None
    ) -> bool:
        """Until all clients are done, or are to stop; whether Ctrl-C was the reason."""
        limit_s = self._settings.maxexecutiontime
        interrupted = False
        with status:
            status.show(0, total)
            started_s = shown_s = time.monotonic()
            for thread in (*clients, upkeep):
                if thread is not None:
                    thread.start()
            while any(client.is_alive() for client in clients):
                try:
                    now_s = time.monotonic()
                    if limit_s and now_s - started_s >= limit_s:
                        self._stop.set()
                    if now_s - shown_s >= status.every_s:
                        shown_s = now_s
                        status.show(sum(client.done for client in clients), total)
                    wake_s = shown_s + status.every_s
                    if limit_s and not self._stop.is_set():
                        wake_s = min(wake_s, started_s + limit_s)
                    self._wait_for(clients, wake_s)
                except KeyboardInterrupt:
                    if interrupted:
                        raise
                    interrupted = True
                    self._say("interrupted: ending the operations under way (again: at once)")
                    self._stop.set()
            status.show(sum(client.done for client in clients), total)
        return interrupted

    def _interruptible(self, work: Callable[[], None]) -> bool:
        """Do the work; whether Ctrl-C has ended it early."""
        try:
            work()
        except KeyboardInterrupt:
            self._stop.set()
            work()  # ends what is under way
            return True
        return False

    @staticmethod
    def _wait_for(clients: Sequence[Client], wake_s: float) -> None:
        for client in clients:
            client.join(max(wake_s - time.monotonic(), 0.001))
            if client.is_alive():
                return

    def _finish(self, binding: Binding) -> None:
        try:
            binding.finish()
        except (CkptError, OSError) as error:
            self._on_error("flush", error)

    def _closed(self, binding: Binding, backend: Backend) -> None:
        try:
            binding.close()
            backend.close()
        except (CkptError, OSError) as error:
            self._on_error("close", error)

    def _on_error(self, name: str, error: Exception) -> None:
        self._first_errors.setdefault(name, str(error))

    def _faults(self) -> list[str]:
        by_name: dict[str, Counter[str]] = {}
        for (name, status), count in self._measurements.statuses().items():
            by_name.setdefault(name, Counter())[status] += count
        found = []
        for name in {**by_name, **self._first_errors}:
            counts = f" {counted(by_name[name])}" if name in by_name else ""
            first = f"; the first: {self._first_errors[name]}" if name in self._first_errors else ""
            found.append(f"{name}:{counts}{first}")
        return found
