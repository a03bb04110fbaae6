"""The file backend after a power failure at any instant, and after any system call fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.contract.addresses import Durability
from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError
from ckpt.testing import (
    Fault,
    FaultyDisk,
    RecordingDisk,
    crash_states,
    observe,
    survives_crashes,
    survives_faults,
)
from ckpt.types import Changes
from ckpt_backends.file.backend import FileBackend
from tests.effort import PROVING, nth

Count = Callable[[str, object], None]
LONG = b"long" * 100

STEPS: list[Callable[[Backend], object]] = [
    lambda b: b.put_many("words", {b"a": b"1", b"b": b"1" * 700, LONG: b"1"}),
    lambda b: b.put_many("words", {b"a": b"2", LONG: b"2"}),
    lambda b: b.delete_many("words", [b"b", LONG]),
    lambda b: b.write_many({"words": Changes({b"c": b"3"}, [b"a"]), "n" * 200: Changes({b"x": b"3"})}),
    lambda b: b.commit("store", 1, {b"a": b"1", b"b": b"1" * 600}, commit_id="one"),
    lambda b: b.commit("store", 2, {b"a": b"2"}, [b"b"], commit_id="two"),
    lambda b: b.commit("store", 3, {b"c": b"3"}, commit_id="three"),
    lambda b: b.commit("store", 3, {b"c": b"other"}, base="two", commit_id="branch"),
    lambda b: b.commit("store", 3, {b"c": b"again"}, commit_id="retry"),
    lambda b: b.truncate("store", 2),
    lambda b: b.truncate("store", 3),
    lambda b: b.commit("store", 4, {b"d": b"4"}, commit_id="four"),
    lambda b: b.claim("words"),
    lambda b: b.put_many("words", {b"c": b"4"}),
    lambda b: b.release("words"),
    lambda b: b.drop("n" * 200),
    lambda b: b.drop("store"),
    lambda b: b.put_many("store", {b"plain": b"1"}),
]


def open_store(directory: str, disk: Disk) -> Backend:
    return FileBackend(directory, disk=disk)


def test_every_crash_state_is_survived(tmp_path: Path, record_property: Count) -> None:
    states = survives_crashes(open_store, STEPS, tmp_path, only=nth(20))
    record_property("states", states)
    assert states > (1000 if PROVING else 50)


def test_every_fault_is_survived(tmp_path: Path, record_property: Count) -> None:
    faults = survives_faults(open_store, STEPS, tmp_path, only=nth(7))
    record_property("states", len(faults))
    kinds = {"open", "pwrite", "sync", "sync_dir", "rename", "unlink", "mkdir"}
    assert not PROVING or {fault.kind for fault in faults} >= kinds


def test_without_syncs_a_crash_loses_writes(tmp_path: Path) -> None:
    """The instrument has teeth: at `durability=os` it finds what a power failure takes."""

    def open_unsynced(directory: str, disk: Disk) -> Backend:
        return FileBackend(directory, disk=disk, durability=Durability.OS)

    with pytest.raises(AssertionError, match=r"neither what it was nor what it was to be|CorruptRecordError"):
        survives_crashes(open_unsynced, STEPS[:1], tmp_path)


def test_flush_makes_durable_what_the_page_cache_holds(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    with FileBackend(str(tmp_path), disk=disk, durability=Durability.OS) as backend:
        backend.put_many("words", {b"a": b"1", b"b": b"1"})
        backend.commit("store", 1, {b"a": b"1"}, commit_id="one")
        before = observe(backend)
        backend.flush()
        disk.mark("flushed")
    flushed = [state for state in crash_states(disk) if state.marks]
    assert flushed
    for number, state in enumerate(flushed):
        place = tmp_path.parent / f"crashed-{number}"
        place.mkdir()
        state.write_to(place)
        with FileBackend(str(place)) as backend:
            assert observe(backend) == before


def test_one_directory_sync_per_batch(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path)) as backend:
        backend.put_many("words", {b"first": b"1"})
    counting = FaultyDisk()
    with FileBackend(str(tmp_path), disk=counting) as backend:
        counting.counts.clear()
        backend.put_many("words", {b"%d" % number: b"1" for number in range(50)})
        assert counting.counts["sync_dir"] == 1
        assert counting.counts["sync"] == counting.counts["rename"] == 50
        backend.delete_many("words", [b"%d" % number for number in range(50)])
        assert counting.counts["sync_dir"] == 2


@pytest.mark.parametrize(
    ("failure", "step"),
    [("ENOSPC", "free some space"), ("EIO", "check the disk"), ("EROFS", "mount"), ("EACCES", "access")],
)
def test_a_failing_disk_is_named_with_the_next_step(tmp_path: Path, failure: str, step: str) -> None:
    disk = FaultyDisk()
    with FileBackend(str(tmp_path), disk=disk) as backend:
        backend.put_many("words", {b"kept": b"1"})
        disk.counts.clear()
        disk.fault = Fault("pwrite", 1, failure)
        with pytest.raises(BackendUnavailableError, match=step) as raised:
            backend.put_many("words", {b"kept": b"the new value", b"new": b"the new value"})
        assert str(tmp_path) in str(raised.value)
        assert "the new value" not in str(raised.value)
        assert dict(backend.scan("words")) == {b"kept": b"1"}
        assert not list((tmp_path / "aside").iterdir())
        backend.put_many("words", {b"kept": b"2"})
        assert dict(backend.scan("words")) == {b"kept": b"2"}
