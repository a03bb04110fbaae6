"""A crash while recovering from a crash: nothing that was recovered, or written since, is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ckpt.contract.addresses import Durability
from ckpt.contract.disk import Disk
from ckpt.testing import CrashState, RecordingDisk, crash_states, observe
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import effort, nth, sample

OPTIONS = LogOptions(segment_bytes=16 << 10, recent_records=10_000)
UNSYNCED = LogOptions(segment_bytes=16 << 10, recent_records=10_000, durability=Durability.OS)


class Quick(Disk):
    """Syncs nothing: the store is only looked at."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


def first_crashes(folder: Path) -> list[CrashState]:
    """States after a crash of a log whose last writes, over three segments, were not synced."""
    folder.mkdir()
    disk = RecordingDisk(folder)
    with LogBackend(str(folder), UNSYNCED, disk=disk) as backend:
        backend.put_many("words", {b"a": b"1" * 3000, b"b": b"1"})
        backend.commit("store", 1, {b"a": b"1"}, commit_id="one")
        backend.flush()
        disk.mark("flushed")
        for i in range(6):
            backend.put_many("words", {b"a": b"%d" % i * 3000, b"large-%d" % i: b"x" * 3000})
        backend.put_many("words", {b"wide-%d" % i: b"w" * 7000 for i in range(3)})
        backend.commit("store", 2, {b"a": b"2" * 4000}, commit_id="two")
        disk.mark("written")
        backend.flush()
    return [s for s in crash_states(disk, all_subsets_of=4, samples=60) if s.marks]


def test_a_crash_during_recovery_is_survived(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    checked = 0
    for state in sample(first_crashes(tmp_path / "first"), 2, prove=60):
        once, twice = tmp_path / "once", tmp_path / "twice"
        once.mkdir()
        state.write_to(once)
        disk = RecordingDisk(once)
        with LogBackend(str(once), OPTIONS, disk=disk) as backend:
            disk.mark("recovered")
            recovered = observe(backend)
            backend.put_many("new", {b"first": b"1"})
            disk.mark("first")
            backend.put_many("new", {b"second": b"2" * 9000})
            disk.mark("second")
            backend.put_many("new", {b"third": b"3" * 9000})
            disk.mark("third")
        for second in list(crash_states(disk, all_subsets_of=4, samples=4))[nth(2)]:
            twice.mkdir()
            second.write_to(twice)
            story = f"{state}; then {second}"
            with LogBackend(str(twice), OPTIONS, disk=Quick()) as backend:
                found = observe(backend)
                new = {key for name, key in found.plain if name == "new"}
                written = [b"first", b"second", b"third"]
                if second.marks:
                    seen = {cell: v for cell, v in found.plain.items() if cell[0] != "new"}
                    assert (seen, found.versioned) == (recovered.plain, recovered.versioned), story
                    assert new >= set(written[: len(second.marks) - 1]), story
                assert new <= set(written), story
                assert list(backend.verify()) == [], story
            shutil.rmtree(twice)
            checked += 1
        shutil.rmtree(once)
    record_property("states", checked)
    assert checked > effort(20, 200)
