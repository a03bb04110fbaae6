"""The indexed log after a power failure at any instant, and after any system call fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.contract.addresses import Durability
from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.testing import survives_crashes, survives_faults
from ckpt.types import Changes
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import PROVING, nth

Steps = list[Callable[[Backend], object]]
Count = Callable[[str, object], None]

BULK = 3 << 10


def open_small(directory: str, disk: Disk) -> Backend:
    """Small segments, and no maintenance but what a step asks for, so that every run is the same."""
    return LogBackend(directory, LogOptions(segment_bytes=16 << 10, recent_records=10_000), disk=disk)


def compact(backend: Backend) -> None:
    assert isinstance(backend, LogBackend)
    backend.compact()


def fill(name: str, first: int, count: int = 4) -> Callable[[Backend], object]:
    return lambda b: b.put_many(name, {b"fill-%d" % i: b"%d" % i * BULK for i in range(first, first + count)})


PLAIN: Steps = [
    lambda b: b.put_many("words", {b"a": b"1", b"b": b"1" * 700}),
    lambda b: b.put_many("words", {b"a": b"2"}),
    lambda b: b.delete_many("words", [b"b"]),
    lambda b: b.write_many({"words": Changes({b"c": b"3"}, [b"a"]), "other": Changes({b"x": b"3"})}),
    lambda b: b.claim("words"),
    lambda b: b.drop("other"),
    lambda b: b.put_many("other", {b"y": b"4"}),
]

VERSIONED: Steps = [
    lambda b: b.commit("store", 1, {b"a": b"1", b"b": b"1" * 600}, commit_id="one"),
    lambda b: b.commit("store", 2, {b"a": b"2"}, [b"b"], commit_id="two"),
    lambda b: b.commit("store", 3, {b"c": b"3"}, commit_id="three"),
    lambda b: b.commit("store", 3, {b"c": b"other"}, base="two", commit_id="branch"),
    lambda b: b.commit("store", 3, {b"c": b"again"}, commit_id="retry"),
    lambda b: b.truncate("store", 2),
    lambda b: b.truncate("store", 3),
    lambda b: b.commit("store", 4, {b"d": b"4"}, commit_id="four"),
    lambda b: b.drop("store"),
    lambda b: b.put_many("store", {b"plain": b"1"}),
]

ROTATION: Steps = [
    fill("bulk", 0, 3),
    fill("bulk", 3, 3),
    lambda b: b.put_many("bulk", {b"large": b"l" * (20 << 10)}),
    lambda b: b.commit("store", 1, {b"%d" % i: b"v" * BULK for i in range(5)}, commit_id="wide"),
    lambda b: b.put_many("bulk", {b"last": b"1"}),
]

COLLECTION: Steps = [
    fill("bulk", 0),
    lambda b: b.commit("store", 1, {b"a": b"1" * BULK, b"b": b"1"}, commit_id="one"),
    fill("bulk", 0),
    lambda b: b.commit("store", 2, {b"a": b"2"}, [b"b"], commit_id="two"),
    lambda b: b.delete_many("bulk", [b"fill-1"]),
    fill("bulk", 2),
    compact,
    lambda b: b.truncate("store", 2),
    fill("bulk", 3),
    compact,
    fill("bulk", 3),
    compact,
    lambda b: b.put_many("bulk", {b"last": b"1"}),
]

SCENARIOS = {"plain": PLAIN, "versioned": VERSIONED, "rotation": ROTATION, "collection": COLLECTION}


def several(first: int, value: bytes) -> Callable[[Backend], None]:
    """Writes that wait for one sync together, as those of concurrent writers do; across segments."""

    def step(backend: Backend) -> None:
        for i in range(first, first + 5):
            backend.put_many("group", {b"%d" % i: value * i, b"also %d" % i: b"small"})
        backend.flush()

    return step


GROUPS: Steps = [several(0, b"v" * 500), several(3, b"w" * 900), compact, several(2, b"x" * 100)]


def open_unsynced(directory: str, disk: Disk) -> Backend:
    options = LogOptions(segment_bytes=16 << 10, recent_records=10_000, durability=Durability.OS)
    return LogBackend(directory, options, disk=disk)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state_is_survived(tmp_path: Path, name: str, record_property: Count) -> None:
    limits = {"all_subsets_of": 7, "samples": 24}
    states = survives_crashes(open_small, SCENARIOS[name], tmp_path, only=nth(7), **limits)
    record_property("states", states)
    assert states > (50 if PROVING else 7)


def test_writes_that_share_a_sync_survive_together_or_in_part(tmp_path: Path, record_property: Count) -> None:
    limits = {"all_subsets_of": 7, "samples": 24}
    states = survives_crashes(open_unsynced, GROUPS, tmp_path, only=nth(20), **limits)
    record_property("states", states)
    assert states > (500 if PROVING else 25)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault_is_survived(tmp_path: Path, name: str, record_property: Count) -> None:
    faults = survives_faults(open_small, SCENARIOS[name], tmp_path, only=nth(7))
    record_property("states", len(faults))
    if PROVING:
        assert {f.kind for f in faults} >= {"open", "pwrite", "sync", "sync_dir", "rename", "allocate"}
