"""Table 5.1: ten bytes at a time into one file, in order and at random places."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_bench.plot import Bar, bars
from ckpt_bench.reproduce.claims import Claim, at_least, at_most, not_checked
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

_RECORD = b"0123456789"
_CHUNK = 100_000
_LOCAL, _NFS = "local disk", "NFS"

SEQ, RND, SEQ_SYNC, RND_SYNC = "seq", "rnd", "seq fsync", "rnd fsync"
THESIS_OPERATIONS = (1_000_000, 10_000_000, 100_000_000)
THESIS_S: Mapping[str, Mapping[str, Sequence[float]]] = {
    _LOCAL: {
        SEQ_SYNC: (0.0353, 0.3237, 3.2741),
        RND_SYNC: (0.3349, 3.9525, 1579.3410),
        SEQ: (0.0048, 0.0414, 1.1295),
        RND: (0.3068, 3.6825, 1381.1431),
    },
    _NFS: {
        SEQ_SYNC: (0.0315, 0.3181, 3.1816),
        RND_SYNC: (0.3096, 3.7492, 44.7602),
        SEQ: (0.0048, 0.0409, 0.3870),
        RND: (0.2887, 3.3799, 41.8916),
    },
}
"""Seconds, by medium and way, one for each of the numbers of operations."""


@dataclass(frozen=True, slots=True)
class DiskWrites:
    """Seconds for each number of operations; with `fsync`, one at the end is part of them."""

    operations: Sequence[int]
    rounds: int
    seconds: Mapping[str, Mapping[str, Sequence[Rounds]]]
    """Medium → way → the rounds of each number of operations."""
    synced_each_us: Mapping[str, Mapping[str, Rounds]]
    """Medium → way → microseconds for one write with a sync of its own."""
    seeks: bool
    """Whether the local disk has heads to move."""

    def factors(self, medium: str, *, synced: bool) -> list[Rounds]:
        """How many times as long random writes took, for each number of operations."""
        ways = self.seconds[medium]
        slow, fast = (ways[RND_SYNC], ways[SEQ_SYNC]) if synced else (ways[RND], ways[SEQ])
        return [ratios(random, sequential) for random, sequential in zip(slow, fast, strict=True)]


def measure(lab: Lab) -> DiskWrites:
    """Every way on every medium, into a new file each time."""
    operations = lab.pick(quick=(500, 2000), small=(50_000, 500_000), full=THESIS_OPERATIONS)
    synced = lab.pick(quick=5, small=100, full=10_000)
    rounds = lab.pick(quick=1, small=5, full=3)
    folders = {_LOCAL: lab.local.folder}
    if lab.shared.name == _NFS:
        folders[_NFS] = lab.shared.folder
    seconds: dict[str, dict[str, list[list[float]]]] = {}
    each_us: dict[str, dict[str, list[float]]] = {}
    for medium, folder in folders.items():
        ways: dict[str, list[list[float]]] = {
            way: [[] for _ in operations] for way in (SEQ_SYNC, RND_SYNC, SEQ, RND)
        }
        for turn in range(rounds):
            for at, count in enumerate(operations):
                for way, times in ways.items():
                    lab.say(f"{medium}: {way}, {count:,} writes, round {turn + 1} of {rounds}")
                    write = _sequential if way in (SEQ, SEQ_SYNC) else _random
                    times[at].append(write(folder, count, synced=way in (SEQ_SYNC, RND_SYNC)))
        seconds[medium] = ways
        lab.say(f"{medium}: a sync after each of {synced:,} writes")
        each_us[medium] = _synced_each_us(folder, synced, rounds)
    return DiskWrites(operations, rounds, seconds, each_us, lab.filesystem.seeks)


def _sequential(folder: str, count: int, *, synced: bool) -> float:
    """Through a buffer, as a program that appends would; the seconds."""
    with tempfile.TemporaryFile(dir=folder) as file:
        write = file.write
        started_s = time.perf_counter()
        for _ in range(count):
            write(_RECORD)
        file.flush()
        if synced:
            os.fsync(file.fileno())
        return time.perf_counter() - started_s


def _random(folder: str, count: int, *, synced: bool) -> float:
    """At places that nothing can gather: one system call each; the seconds."""
    choose = np.random.default_rng(count)
    took_s = 0.0
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()
        for start in range(0, count, _CHUNK):
            # Choosing the places is not part of writing there.
            offsets = (choose.integers(0, count, min(_CHUNK, count - start)) * len(_RECORD)).tolist()
            started_s = time.perf_counter()
            for offset in offsets:
                os.pwrite(descriptor, _RECORD, offset)
            took_s += time.perf_counter() - started_s
        started_s = time.perf_counter()
        if synced:
            os.fsync(descriptor)
        return took_s + time.perf_counter() - started_s


def _synced_each_us(folder: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Into a file that has all its blocks already, so that only the place differs; for one write."""
    size = 64 << 20
    offsets = np.random.default_rng(count).integers(0, size // len(_RECORD), count) * len(_RECORD)
    places = {SEQ: range(0, count * len(_RECORD), len(_RECORD)), RND: offsets.tolist()}
    found: dict[str, list[float]] = {SEQ: [], RND: []}
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()
        for _ in range(64):
            os.write(descriptor, bytes(1 << 20))
        os.fsync(descriptor)
        for _ in range(rounds):
            for way, took_us in found.items():
                started_s = time.perf_counter()
                for place in places[way]:
                    os.pwrite(descriptor, _RECORD, place)
                    os.fdatasync(descriptor)
                took_us.append((time.perf_counter() - started_s) * 1e6 / count)
    return found


def _run(lab: Lab) -> DiskWrites:
    return lab.once("disk writes", lambda: measure(lab))


def _check(found: DiskWrites) -> list[Claim]:
    synced = found.factors(_LOCAL, synced=True)
    each_us = found.synced_each_us[_LOCAL]
    no_heads = "" if found.seeks else "the device has no heads to move, and "
    claims = [
        at_least(
            "sequential writes are at least 9.4 times as fast, with fsync",
            "local disk, fsync: random / sequential, smallest of all sizes",
            _smallest(synced),
            9.4,
            "writing the file back takes most of the time, and that is the same bytes either way",
        ),
        at_least(
            "and at least 64 times as fast without",
            "local disk: random / sequential, smallest of all sizes",
            _smallest(found.factors(_LOCAL, synced=False)),
            63.9,
            "a write into a buffer costs more in Python than it did there, a system call about as much",
        ),
        at_least(
            "once the file is large, random writes fall behind 50 times further",
            "local disk, fsync: random / sequential, most operations / fewest",
            spread(ratios(synced[-1], synced[0])),
            50.0,
            f"{no_heads}the file fits into the page cache, which gathers the writes",
        ),
        at_least(
            "a sync after every write makes it wait for the place, too",
            "local disk, a sync after each write: random / sequential",
            spread(ratios(each_us[RND], each_us[SEQ])),
            2.0,
            f"{no_heads}a sync takes as long wherever the block is",
        ),
    ]
    says = "on NFS fsync changes little, for memory with a battery acknowledges"
    what = "NFS, most operations: random with fsync / without"
    if _NFS not in found.seconds:
        why = "no folder on NFS was given (--nfs); its rows are left out"
        return [*claims, not_checked(says, what, why)]
    ways = found.seconds[_NFS]
    fsync_costs = spread(ratios(ways[RND_SYNC][-1], ways[RND][-1]))
    return [*claims, at_most(says, what, fsync_costs, 1.5, "this server writes to its disk")]


def _smallest(factors: Sequence[Rounds]) -> Spread:
    return min((spread(each) for each in factors), key=lambda each: each.median)


def _show(found: DiskWrites) -> Shown:
    rows, marks = [], []
    for medium, ways in THESIS_S.items():
        for way, theirs in ways.items():
            ours = found.seconds.get(medium, {}).get(way)
            rows.append(
                [f"{medium}, {way}"]
                + [spread(seconds).text(",.3g") for seconds in ours or ()]
                + ["-"] * (0 if ours else len(found.operations))
                + [f"{seconds:,.4g}" for seconds in theirs]
            )
    for medium in found.seconds:
        for synced, name in ((True, "fsync"), (False, "no fsync")):
            for count, each in zip(found.operations, found.factors(medium, synced=synced), strict=True):
                factor = spread(each)
                label, text = f"{medium}, {name}, {count:,}", f"{factor.median:,.3g} times"
                marks.append(Bar(label, factor.median, text, factor.q1, factor.q3))
    header = [
        "seconds",
        *(f"{count:,} here" for count in found.operations),
        *(f"{count:,} thesis" for count in THESIS_OPERATIONS),
    ]
    synced_each = "; ".join(
        f"{medium}: {spread(ways[SEQ]).text(',.0f')} us in order, {spread(ways[RND]).text(',.0f')} us at "
        f"random"
        for medium, ways in found.synced_each_us.items()
    )
    notes = [
        "The thesis says that fsync follows every operation. Its times leave 35 ns for a write with fsync, "
        "so here it is one fsync at the end; its sizes (0.96 MB for a million writes of 10 bytes) do not fit "
        "either, and the numbers of operations are taken as they stand.",
        f"With a sync after each write: {synced_each}; {of_rounds(found.rounds)}.",
    ]
    return Shown(bars("How many times as long random writes take", marks), header, rows, notes)


TABLE_5_1 = Experiment(
    "table-5.1",
    "Sequential and random writes into one file",
    "Writing 10 bytes at a time, random places took 10 to 480 times as long as sequential ones on a local "
    "disk with fsync, 64 to 1,200 times without, and 10 to 110 times on NFS.",
    "Sequential writes go through a buffer, random ones are a system call each, from Python.",
    _run,
    _check,
    _show,
)
