"""Figures 4.5 and 4.6: how long a save takes until it is durable, and a recovering read after a crash."""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import ckpt.dev
from ckpt.dev import fleet
from ckpt.errors import CkptError, ConfigError
from ckpt.safekeeper import SafeKeeper
from ckpt_bench.plot import Bar, bars
from ckpt_bench.reproduce.experiments import (
    Claim,
    Experiment,
    Lab,
    Shown,
    at_least,
    at_most,
    between,
    not_checked,
)
from ckpt_bench.reproduce.medium import Medium
from ckpt_bench.reproduce.s4.crashes import OperatorError, crashed
from ckpt_bench.reproduce.s4.default_fs import import_scheme, open_store
from ckpt_bench.reproduce.s4.operators import word
from ckpt_bench.reproduce.s4.saturation import DEFAULT, INDEXED, SCHEMES

RATE_PER_S = 400.0
"""Events per second in the thesis: as many as one file per state took there without losing any."""
REDIS, HBASE = "Redis", "HBase"


@dataclass(frozen=True, slots=True)
class Latency:
    """Averages over all operations of all rounds."""

    write_ms: float
    """From the save to its acknowledgement."""
    read_ms: float
    """Loading one state after the crash, once the store is open."""
    open_ms: float
    """Opening the store after the crash."""
    durability: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """Every backend at the same rate."""

    events: int
    states: int
    rounds: int
    floor_ms: float
    """From a save to its acknowledgement by a backend that does nothing: the SafeKeeper's threads alone."""
    stores: Mapping[str, Mapping[str, Latency]]
    """Medium → backend → latency."""


@dataclass(frozen=True, slots=True)
class ServerLatencies:
    """The data stores, beside the file backends of figure 4.5."""

    servers: Mapping[str, Latency]
    left_out: Mapping[str, str]
    """Backend → why it could not be measured."""
    files: Latencies


def _sizes(lab: Lab) -> tuple[int, int, int]:
    """Events, states, rounds."""
    return (
        lab.pick(quick=20, small=600, full=10_000),
        lab.pick(quick=10, small=300, full=1000),
        lab.pick(quick=1, small=2, full=10),
    )


def measure_files(lab: Lab) -> Latencies:
    """Both file backends on both media, in turn."""
    events, states, rounds = _sizes(lab)
    media: Sequence[Medium] = (lab.shared, lab.local)
    each = [(medium, name) for medium in media for name in SCHEMES]
    found: dict[tuple[str, str], list[Latency]] = {}
    floors_ms: list[float] = []
    for turn in range(rounds):
        lab.say(f"nothing but the SafeKeeper, {RATE_PER_S:g} events/s, round {turn + 1} of {rounds}")
        floors_ms += _counted("memory://", events, states, turn)
        for medium, name in each if turn % 2 == 0 else reversed(each):
            lab.say(f"{name} on {medium.name}, {RATE_PER_S:g} events/s, round {turn + 1} of {rounds}")
            durability = "fsync" if medium.durable else "os"
            lab.settle()
            one = _recovered(medium.address(SCHEMES[name]), events, states, turn, durability)
            found.setdefault((medium.name, name), []).append(one)
    stores = {medium.name: {name: _average(found[medium.name, name]) for name in SCHEMES} for medium in media}
    return Latencies(events, states, rounds, statistics.fmean(floors_ms), stores)


def measure_servers(lab: Lab) -> tuple[dict[str, Latency], dict[str, str]]:
    """Redis and HBase as far as they can be started here; and why not, otherwise."""
    events, states, rounds = _sizes(lab)
    found: dict[str, list[Latency]] = {}
    left_out = {}
    with ExitStack() as stack:
        addresses = {}
        for name, start in _SERVERS.items():
            lab.say(f"starting {name}")
            try:
                addresses[name] = stack.enter_context(start(lab))
                open_store(addresses[name][0]).close()
            except (CkptError, OSError) as error:
                addresses.pop(name, None)
                left_out[name] = str(error)
        for turn in range(rounds):
            for name, (address, durability) in addresses.items():
                lab.say(f"{name}, {RATE_PER_S:g} events/s, round {turn + 1} of {rounds}")
                one = _recovered(address, events, states, turn, durability)
                found.setdefault(name, []).append(one)
    return {name: _average(each) for name, each in found.items()}, left_out


@contextmanager
def _redis(lab: Lab) -> Iterator[tuple[str, str]]:
    # One of its own, which writes behind as in the thesis; the shared one syncs every write.
    folder = lab.local.new_folder("redis")
    with ckpt.dev.start("redis", folder, appendfsync="everysec") as server:
        yield server.address, "memory; written behind every second"


@contextmanager
def _hbase(lab: Lab) -> Iterator[tuple[str, str]]:
    with fleet.Lease("hbase", report=_reporting(lab)) as lease:
        yield f"{lease.address}?prefix=s4-{uuid.uuid4().hex}", "memory and synced write-ahead log"


def _reporting(lab: Lab) -> Callable[[str], None]:
    def report(line: str) -> None:
        lab.say(f"HBase: {line}")

    return report


_SERVERS = {REDIS: _redis, HBASE: _hbase}


def _counted(address: str, events: int, states: int, seed: int) -> list[float]:
    """An operator counts words and is killed when everything is durable; how long each save took, in ms."""
    settings = {"namespace": _namespace(seed), "events": events, "words": states, "seed": seed}
    took_ms: list[float] = crashed("count_words", address, rate=RATE_PER_S, **settings)["write_ms"]
    return took_ms


def _namespace(seed: int) -> str:
    return f"words-{seed}"


def _recovered(address: str, events: int, states: int, seed: int, durability: str) -> Latency:
    """An operator counts words and is killed; then another one reads every state back, one by one."""
    namespace = _namespace(seed)
    written_ms = _counted(address, events, states, seed)
    wanted = [word(number) for number in range(states)]
    random.Random(seed).shuffle(wanted)
    import_scheme(address)
    started_s = time.perf_counter()
    with open_store(address) as backend, SafeKeeper(backend, fetch_timeout_s=None) as keeper:
        loads = keeper.namespace(namespace)
        opened_s = time.perf_counter()
        counts = sum(loads.load(each, default={"count": 0})["count"] for each in wanted)
        read_s = time.perf_counter()
    if counts != events:
        raise OperatorError(
            f"{events} events were durable in {address}, and {counts} came back after a crash"
        )
    if not address.startswith(("s4:", "log:")):
        with open_store(address) as backend:
            backend.drop(namespace)
    return Latency(
        statistics.fmean(written_ms),
        (read_s - opened_s) * 1000 / states,
        (opened_s - started_s) * 1000,
        durability,
    )


def _average(rounds: Sequence[Latency]) -> Latency:
    return Latency(
        statistics.fmean(each.write_ms for each in rounds),
        statistics.fmean(each.read_ms for each in rounds),
        statistics.fmean(each.open_ms for each in rounds),
        rounds[0].durability,
    )


def file_latencies(lab: Lab) -> Latencies:
    """Figure 4.5's."""
    return lab.once("latencies of files", lambda: measure_files(lab))


def server_latencies(lab: Lab) -> ServerLatencies:
    """Figure 4.6's, with what there is."""
    servers, left_out = lab.once("latencies of servers", lambda: measure_servers(lab))
    return ServerLatencies(servers, left_out, file_latencies(lab))


def _run_servers(lab: Lab) -> ServerLatencies:
    found = server_latencies(lab)
    if not found.servers:
        raise ConfigError("; ".join(f"{name}: {why}" for name, why in found.left_out.items()))
    return found


def _check_files(found: Latencies) -> list[Claim]:
    claims = []
    for medium, stores in found.stores.items():
        default, indexed = stores[DEFAULT], stores[INDEXED]
        above = [f"{one.write_ms - found.floor_ms:.2g}" for one in (default, indexed)]
        claims += [
            at_least(
                "a save with the indexed backend takes 4.85 times less",
                f"{medium}: time of a save, Default FS / Indexed FS",
                default.write_ms / indexed.write_ms,
                4.85,
                f"the SafeKeeper's own threads take {found.floor_ms:.2g} ms of both, and what is left, "
                f"{' and '.join(above)} ms, does not wait for a filer or a moving head",
            ),
            at_least(
                "and a recovering read 3 times less",
                f"{medium}: time of a read, Default FS / Indexed FS",
                default.read_ms / indexed.read_ms,
                3.0,
                "opening a file asks the operating system's caches here, not a filer, and most of a read is "
                "what both share",
            ),
        ]
    return claims


def _check_servers(found: ServerLatencies) -> list[Claim]:
    redis, hbase = found.servers.get(REDIS), found.servers.get(HBASE)
    slightly = "Redis saves slightly faster than HBase"
    faster = "HBase writes faster than it reads"
    claims = []
    if redis is not None and hbase is not None:
        ratio = hbase.write_ms / redis.write_ms
        claims.append(
            between(
                slightly,
                "time of a save, HBase / Redis",
                ratio,
                1.0,
                2.0,
                "this HBase syncs its write-ahead log and is reached through Thrift, and Redis writes behind",
            )
        )
    else:
        claims.append(not_checked(slightly, "time of a save, HBase / Redis", _missing(found)))
    if hbase is not None:
        claims.append(
            at_least(
                faster,
                "HBase: time of a read / of a save",
                hbase.read_ms / hbase.write_ms,
                1.0,
                "all states are still in memory when they are read, and a save waits for a synced "
                "write-ahead log",
            )
        )
    else:
        claims.append(not_checked(faster, "HBase: time of a read / of a save", _missing(found)))
    fastest_file = min(
        (latency.write_ms, f"{name} on {medium}")
        for medium, stores in found.files.stores.items()
        for name, latency in stores.items()
    )
    for name, latency in found.servers.items():
        claims.append(
            at_most(
                f"{name} saves faster than both file backends",
                f"time of a save, {name} / {fastest_file[1]}",
                latency.write_ms / fastest_file[0],
                1.0,
                "the file backends write to a local file system here, and a server is a round trip away",
            )
        )
    return claims


def _missing(found: ServerLatencies) -> str:
    return "left out: " + "; ".join(f"{name}: {why}" for name, why in found.left_out.items())


def _show_files(found: Latencies) -> Shown:
    each = {
        f"{name}, {medium}": latency
        for medium, stores in found.stores.items()
        for name, latency in stores.items()
    }
    return _shown(each, found, [])


def _show_servers(found: ServerLatencies) -> Shown:
    left_out = [f"{name} is left out: {why}" for name, why in found.left_out.items()]
    return _shown(found.servers, found.files, left_out)


def _shown(each: Mapping[str, Latency], sizes: Latencies, left_out: Sequence[str]) -> Shown:
    marks = [
        Bar(f"{name}: {what}", value, f"{value:,.3g} ms")
        for name, latency in each.items()
        for what, value in (("save", latency.write_ms), ("read", latency.read_ms))
    ]
    rows = [
        [name, f"{one.write_ms:.3g}", f"{one.read_ms:.3g}", f"{one.open_ms:.3g}", one.durability]
        for name, one in each.items()
    ]
    notes = [
        f"{sizes.events:,} events on {sizes.states:,} words at {RATE_PER_S:g}/s, each checkpointed; "
        f"{sizes.rounds} rounds. {sizes.floor_ms:.3g} ms of each save are the SafeKeeper's own threads: so "
        f"long it takes with a backend that does nothing.",
        *left_out,
    ]
    header = ["backend", "save, ms", "read after kill -9, ms", "open, ms", "durability"]
    return Shown(
        bars("Average latency of a save and of a recovering read, in ms", marks), header, rows, notes
    )


FIG_4_5 = Experiment(
    "fig-4.5",
    "Latency of saves and recovering reads, file backends",
    "A word count on three nodes, 400 events/s, each checkpointed: the indexed backend was 4.85 times faster "
    "in writes and 3 times in reads.",
    "One operator in a process of its own saves through a SafeKeeper and is killed with kill -9; each medium "
    "is measured, the page cache (or NFS) as in figure 4.1 and the disk as in figure 5.1.",
    file_latencies,
    _check_files,
    _show_files,
)
FIG_4_6 = Experiment(
    "fig-4.6",
    "Latency of saves and recovering reads, data stores",
    "The same on one node of Redis and one of HBase: Redis slightly faster in writes, HBase faster in writes "
    "than in reads, and both faster than files on NFS.",
    "Both servers run on this machine, so that a round trip stays on the loopback interface.",
    _run_servers,
    _check_servers,
    _show_servers,
)
