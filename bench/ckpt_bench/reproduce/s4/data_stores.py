"""Figure 4.6: the latencies of figure 4.5 with Redis and HBase, as far as they can be started here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import ckpt.dev
from ckpt.dev import fleet
from ckpt.errors import CkptError, ConfigError
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, between, not_checked
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.s4.default_fs import open_store
from ckpt_bench.reproduce.s4.latency import (
    RATE_PER_S,
    Latencies,
    Latency,
    backlogs,
    file_latencies,
    joined,
    recovered,
    shown,
    sizes,
)
from ckpt_bench.reproduce.spread import ratios, spread

REDIS, HBASE = "Redis", "HBase"


@dataclass(frozen=True, slots=True)
class ServerLatencies:
    """The data stores, beside the file backends of figure 4.5."""

    servers: Mapping[str, Latency]
    left_out: Mapping[str, str]
    """Backend → why it could not be measured."""
    files: Latencies

    def missing(self) -> str:
        """Why what needs both servers is not there."""
        return "left out: " + "; ".join(f"{name}: {why}" for name, why in self.left_out.items())


def measure(lab: Lab) -> tuple[dict[str, Latency], dict[str, str]]:
    """Each server that there is; and why there is not, otherwise."""
    events, states, rounds = sizes(lab)
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
                one = recovered(address, events, states, turn, durability)
                found.setdefault(name, []).append(one)
    return {name: joined(each) for name, each in found.items()}, left_out


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


def server_latencies(lab: Lab) -> ServerLatencies:
    """Figure 4.6's, with what there is."""
    servers, left_out = lab.once("latencies of servers", lambda: measure(lab))
    return ServerLatencies(servers, left_out, file_latencies(lab))


def _run(lab: Lab) -> ServerLatencies:
    found = server_latencies(lab)
    if not found.servers:
        raise ConfigError("; ".join(f"{name}: {why}" for name, why in found.left_out.items()))
    return found


def _check(found: ServerLatencies) -> list[Claim]:
    return [_slightly(found), _writes_first(found), *(_beside_files(found, name) for name in found.servers)]


def _slightly(found: ServerLatencies) -> Claim:
    says, what = "Redis saves slightly faster than HBase", "time of a save, HBase / Redis"
    if found.left_out or (late := backlogs(found.servers)):
        return not_checked(says, what, found.missing() if found.left_out else late)
    ratio = spread(ratios(found.servers[HBASE].write_ms, found.servers[REDIS].write_ms))
    why = "this HBase syncs its write-ahead log and is reached through Thrift, and Redis writes behind"
    return between(says, what, ratio, 1.0, 2.0, why)


def _writes_first(found: ServerLatencies) -> Claim:
    says, what = "HBase writes faster than it reads", "HBase: time of a read / of a save"
    hbase = found.servers.get(HBASE)
    if hbase is None:
        return not_checked(says, what, found.missing())
    if late := backlogs({HBASE: hbase}):
        return not_checked(says, what, late)
    why = "all states are still in memory when they are read, and a save waits for a synced write-ahead log"
    return at_least(says, what, spread(ratios(hbase.read_ms, hbase.write_ms)), 1.0, why)


def _beside_files(found: ServerLatencies, name: str) -> Claim:
    says = f"{name} saves faster than both file backends"
    files = {
        f"{store} on {medium}": latency
        for medium, stores in found.files.stores.items()
        for store, latency in stores.items()
    }
    fastest = min(files, key=lambda each: spread(files[each].write_ms).median)
    what = f"time of a save, {name} / {fastest}"
    if late := backlogs({name: found.servers[name], fastest: files[fastest]}):
        return not_checked(says, what, late)
    return at_most(
        says,
        what,
        spread(ratios(found.servers[name].write_ms, files[fastest].write_ms)),
        1.0,
        "the file backends write to a local file system here, and a server is a round trip away",
    )


def _show(found: ServerLatencies) -> Shown:
    left_out = [f"{name} is left out: {why}" for name, why in found.left_out.items()]
    return shown(found.servers, found.files, left_out)


FIG_4_6 = Experiment(
    "fig-4.6",
    "Latency of saves and recovering reads, data stores",
    "The same on one node of Redis and one of HBase: Redis slightly faster in writes, HBase faster in writes "
    "than in reads, and both faster than files on NFS.",
    "Both servers run on this machine, so that a round trip stays on the loopback interface.",
    _run,
    _check,
    _show,
)
