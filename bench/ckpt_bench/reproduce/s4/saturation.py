"""Figures 4.1 and 5.1: throughput against latency of the two file backends, behind a filer and on a disk."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ckpt.contract.backend import Backend
from ckpt_bench import plot
from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.medium import Medium
from ckpt_bench.reproduce.s4.default_fs import open_store
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

DEFAULT, INDEXED = "Default FS", "Indexed FS"
SCHEMES = {DEFAULT: "s4", INDEXED: "log"}
"""The thesis' name of a backend → the scheme that stands for it here."""

_NAMESPACE = "elements"
_VALUE_BYTES = 1024
_WRITES = 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """What so many threads reach."""

    threads: int
    ops_per_s: Rounds
    latency_ms: Rounds


@dataclass(frozen=True, slots=True)
class Saturation:
    """One curve for each backend."""

    medium: str
    durable: bool
    """Whether every write was synced."""
    operations: int
    states: int
    rounds: int
    curves: Mapping[str, Sequence[Point]]

    def limit(self, store: str) -> Rounds:
        """The highest rate that the backend reaches with any number of threads."""
        return [max(rates) for rates in zip(*(p.ops_per_s for p in self.curves[store]), strict=True)]

    @property
    def advantage(self) -> Spread:
        """How many times the rate of one file per state the indexed backend reaches."""
        return spread(ratios(self.limit(INDEXED), self.limit(DEFAULT)))

    @property
    def least_gain(self) -> Spread:
        """The smallest of: latency of one file per state over the indexed backend's, at equal threads."""
        pairs = zip(self.curves[DEFAULT], self.curves[INDEXED], strict=True)
        gains = [spread(ratios(default.latency_ms, indexed.latency_ms)) for default, indexed in pairs]
        return min(gains, key=lambda gain: gain.median)

    @property
    def steepness(self) -> Spread:
        """One file per state: growth of latency over growth of rate, from the fewest threads to the most."""
        first, last = self.curves[DEFAULT][0], self.curves[DEFAULT][-1]
        growth = ratios(last.latency_ms, first.latency_ms), ratios(last.ops_per_s, first.ops_per_s)
        return spread(ratios(*growth))


@dataclass(frozen=True, slots=True)
class Flushed:
    """The same on a local disk, where every write is forced to the device, and as in figure 4.1."""

    flushed: Saturation
    behind_cache: Saturation


def measure(lab: Lab, medium: Medium) -> Saturation:
    """Both backends in turn, with more and more threads."""
    operations = lab.pick(quick=64, small=400, full=10_000)
    states = lab.pick(quick=20, small=500, full=1000)
    rounds = lab.pick(quick=1, small=5, full=10)
    threads = lab.pick(quick=(1, 2), small=(1, 4, 16, 32), full=(1, 2, 4, 8, 16, 32))
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    names = list(SCHEMES)
    with ExitStack() as stack:
        stores = {name: stack.enter_context(open_store(medium.address(SCHEMES[name]))) for name in names}
        for store in stores.values():
            store.put_many(_NAMESPACE, {_key(number): bytes(_VALUE_BYTES) for number in range(states)})
        for store in stores.values():
            run_threads(store, threads[-1], operations, states, seed=rounds)  # warms up
        lab.settle()
        for turn in range(rounds):
            for count in threads if turn % 2 == 0 else reversed(threads):
                for name in names if turn % 2 == 0 else reversed(names):
                    lab.say(f"{name} on {medium.name}, {count} threads, round {turn + 1} of {rounds}")
                    reached = run_threads(stores[name], count, operations, states, seed=turn)
                    found.setdefault((name, count), []).append(reached)
    curves = {
        name: [
            Point(count, *(list(each) for each in zip(*found[name, count], strict=True))) for count in threads
        ]
        for name in names
    }
    return Saturation(medium.name, medium.durable, operations, states, rounds, curves)


def run_threads(
    store: Backend, threads: int, operations: int, states: int, *, seed: int
) -> tuple[float, float]:
    """Nine writes for each read of 1 KB, one after the other in each thread: operations/s, average ms."""
    share = operations // threads
    stop = threading.Event()
    busy_s = [0.0] * threads
    failures: list[BaseException] = []
    ended = [threading.Event() for _ in range(threads)]

    def work(number: int) -> None:
        choose = random.Random(seed * 1000 + number)
        value = choose.randbytes(_VALUE_BYTES)
        try:
            for _ in range(share):
                if stop.is_set():
                    return
                key = _key(choose.randrange(states))
                is_write = choose.random() < _WRITES
                started_s = time.perf_counter()
                if is_write:
                    store.put_many(_NAMESPACE, {key: value})
                else:
                    store.get_many(_NAMESPACE, (key,))
                busy_s[number] += time.perf_counter() - started_s
        except BaseException as error:  # noqa: BLE001 - raised below, by who waits
            failures.append(error)
            stop.set()
        finally:
            ended[number].set()

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    started_s = time.perf_counter()
    try:
        for worker in workers:
            worker.start()
        for each in ended:
            each.wait()
    finally:
        # Also after Ctrl-C, which up to Python 3.12 makes a thread that it finds in `join` look as if it had
        # ended: nobody may use a store that is being closed.
        stop.set()
        for worker, each in zip(workers, ended, strict=True):
            if worker.ident is not None:
                each.wait()
    took_s = time.perf_counter() - started_s
    if failures:
        raise failures[0]
    return share * threads / took_s, sum(busy_s) / (share * threads) * 1000


def _key(number: int) -> bytes:
    return b"element-%06d" % number


def _behind_cache(lab: Lab) -> Saturation:
    return lab.once("saturation behind a cache", lambda: measure(lab, lab.shared))


def flushed_saturation(lab: Lab) -> Saturation:
    """Figure 5.1's."""
    return lab.once("saturation on a disk", lambda: measure(lab, lab.local))


def _flushed(lab: Lab) -> Flushed:
    return Flushed(flushed_saturation(lab), _behind_cache(lab))


def _check_behind_cache(found: Saturation) -> list[Claim]:
    most = found.curves[DEFAULT][-1].threads
    return [
        at_least(
            "the indexed backend saturates at 3 times the rate: about 2,100 and 700 operations/s",
            "highest rate, Indexed FS / Default FS",
            found.advantage,
            3.0,
            "the requests that a file of its own costs are few beside the sync that both wait for"
            if found.durable
            else "a file that is created or replaced costs system calls here, not requests to a filer, and "
            "both backends share one Python interpreter",
        ),
        at_least(
            "one file per state does not get beyond its limit: more load only adds latency",
            f"Default FS from 1 to {most} threads, growth of latency / growth of rate",
            found.steepness,
            2.0,
            "the server takes several syncs at once, so that more threads still bring a higher rate"
            if found.durable
            else "no write waits for a device, and the system calls of several threads run at the same time, "
            "so that more threads still bring a higher rate",
        ),
        at_least(
            "under the same load the indexed backend answers sooner",
            "latency, Default FS / Indexed FS, smallest at any number of threads",
            found.least_gain,
            1.0,
            "at one number of threads at least, writers waited longer for the log than for separate files",
        ),
    ]


def _check_flushed(found: Flushed) -> list[Claim]:
    fall = {
        name: spread(ratios(found.flushed.limit(name), found.behind_cache.limit(name))) for name in SCHEMES
    }
    return [
        at_least(
            "on a disk the indexed backend still reaches 1.4 times the rate: about 700 and 500 operations/s",
            "highest rate, Indexed FS / Default FS",
            found.flushed.advantage,
            1.4,
            "the file system's journal syncs many files at once, so that each of them costs less than it did",
        ),
        at_least(
            "with a lower latency",
            "latency, Default FS / Indexed FS, smallest at any number of threads",
            found.flushed.least_gain,
            1.0,
            "writers of the log share its syncs, so one may wait for the sync before its own; with few "
            "threads the sync of a separate file may end sooner",
        ),
        *(
            at_most(
                f"forcing every write to the disk costs {name} much of its rate: to {to:.2f} of figure 4.1",
                f"highest rate of {name}, on the disk / in figure 4.1",
                fall[name],
                0.75,
                "the device acknowledges a flush about as fast as its cache takes the write",
            )
            for name, to in ((INDEXED, 700 / 2100), (DEFAULT, 500 / 700))
        ),
    ]


def _show(found: Saturation) -> Shown:
    marks = {
        name: [
            plot.Point(spread(p.ops_per_s).median, spread(p.latency_ms).median * 1000, f"{p.threads} threads")
            for p in points
        ]
        for name, points in found.curves.items()
    }
    chart = plot.trade_off("Latency against throughput", "operations/s", "average latency", marks)
    rows = [
        [str(default.threads)]
        + [
            text
            for point in (default, indexed)
            for text in (spread(point.ops_per_s).text(",.0f"), spread(point.latency_ms).text())
        ]
        for default, indexed in zip(found.curves[DEFAULT], found.curves[INDEXED], strict=True)
    ]
    header = ["threads", f"{DEFAULT}, ops/s", "ms", f"{INDEXED}, ops/s", "ms"]
    notes = [
        f"{found.operations:,} operations on {found.states:,} states of 1 KB, 90 % writes, on the "
        f"{found.medium}; {of_rounds(found.rounds)}, backends in turn."
    ]
    return Shown(chart, header, rows, notes)


def _show_flushed(found: Flushed) -> Shown:
    return _show(found.flushed)


FIG_4_1 = Experiment(
    "fig-4.1",
    "Throughput and latency of the two file backends",
    "On NFS, one file per state hardly passed 700 operations/s; the append-only file with an index "
    "saturated at about 2,100, at 20 ms.",
    "The filer of the thesis acknowledged from battery-backed memory. Without --nfs the page cache takes "
    "that part (durability=os): no write waits for a device, and none crosses a network.",
    _behind_cache,
    _check_behind_cache,
    _show,
)
FIG_5_1 = Experiment(
    "fig-5.1",
    "The same on a local disk, every write flushed",
    "On ext3 with every write forced to the disk, one file per state stopped at 500 operations/s; the "
    "indexed backend went to 700 with less than 10 ms.",
    "Every write is synced before it is acknowledged (durability=fsync).",
    _flushed,
    _check_flushed,
    _show_flushed,
)
