"""The instruments for disks: what is recorded, which crash states follow, and when a fault strikes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.contract.disk import Disk
from ckpt.testing import CrashState, Fault, FaultyDisk, RecordingDisk, crash_states, each_fault


def write(disk: Disk, path: Path, data: bytes, offset: int = 0, *, sync: bool = False) -> None:
    fd = disk.open(str(path), os.O_WRONLY | os.O_CREAT)
    disk.pwrite(fd, [data], offset)
    if sync:
        disk.sync(fd)
    disk.close(fd)


def contents(states: list[CrashState], name: str) -> set[bytes | None]:
    return {state.files.get(name, None) for state in states}


def after(disk: RecordingDisk, mark: str) -> list[CrashState]:
    """The states of a crash after the mark was passed."""
    return [state for state in crash_states(disk) if mark in state.marks]


def test_only_what_was_synced_is_certain(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    write(disk, tmp_path / "a", b"1", sync=True)
    disk.mark("written")
    disk.sync_dir(str(tmp_path))
    disk.mark("synced")
    assert contents(after(disk, "written"), "a") == {None, b"1"}
    assert contents(after(disk, "synced"), "a") == {b"1"}


def test_a_name_may_be_durable_before_its_data(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    write(disk, tmp_path / "a", b"12345678")
    disk.sync_dir(str(tmp_path))
    disk.mark("named")
    found = contents(after(disk, "named"), "a")
    assert {b"", b"12345678", b"1234", bytes(8), b"\0\0\0\0005678"} <= found


def test_unsynced_writes_are_lost_in_any_combination(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"....")
    disk = RecordingDisk(tmp_path)
    for offset in range(4):
        write(disk, tmp_path / "a", b"x", offset)
    expected = {bytes(b"x"[0] if mask >> i & 1 else b"."[0] for i in range(4)) for mask in range(16)}
    assert contents(list(crash_states(disk)), "a") == expected


def test_large_writes_are_torn_at_sectors(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"." * 2048)
    disk = RecordingDisk(tmp_path)
    write(disk, tmp_path / "a", b"x" * 2048)
    found = contents(list(crash_states(disk)), "a")
    assert {
        b"x" * 512 + b"." * 1536,
        b"." * 512 + b"x" * 1536,
        b"x" * 512 + b"." * 512 + b"x" * 1024,
    } <= found


def test_an_unsynced_rename_shows_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    disk = RecordingDisk(tmp_path)
    write(disk, tmp_path / "b", b"new", sync=True)
    disk.rename(str(tmp_path / "b"), str(tmp_path / "a"))
    disk.mark("renamed")
    disk.sync_dir(str(tmp_path))
    disk.mark("synced")
    assert contents(after(disk, "renamed"), "a") == {b"old", b"new"}
    assert contents(after(disk, "synced"), "a") == {b"new"}
    assert contents(after(disk, "synced"), "b") == {None}


def test_a_rename_without_a_sync_of_the_file_may_show_anything(tmp_path: Path) -> None:
    """The mistake that the instrument exists to find."""
    (tmp_path / "a").write_bytes(b"old")
    disk = RecordingDisk(tmp_path)
    write(disk, tmp_path / "b", b"new")
    disk.rename(str(tmp_path / "b"), str(tmp_path / "a"))
    disk.sync_dir(str(tmp_path))
    disk.mark("done")
    assert b"" in contents(after(disk, "done"), "a")


def test_unlink_truncate_and_directories(tmp_path: Path) -> None:
    (tmp_path / "gone").write_bytes(b"1")
    disk = RecordingDisk(tmp_path)
    disk.unlink(str(tmp_path / "gone"))
    disk.make_dirs(str(tmp_path / "d"))
    disk.mark("durable")
    write(disk, tmp_path / "d" / "f", b"123456", sync=True)
    disk.sync_dir(str(tmp_path / "d"))
    fd = disk.open(str(tmp_path / "d" / "f"), os.O_RDWR)
    disk.truncate(fd, 2)
    disk.allocate(fd, 4)
    disk.close(fd)
    disk.mark("cut")
    assert contents(after(disk, "durable"), "gone") == {None}
    assert contents(list(crash_states(disk)), "gone") == {b"1", None}
    assert contents(after(disk, "cut"), "d/f") == {b"123456", b"12", b"12\0\0"}


def test_a_file_keeps_its_identity_through_renames(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    fd = disk.open(str(tmp_path / "a"), os.O_RDWR | os.O_CREAT)
    disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    disk.pwrite(fd, [b"late"], 0)
    disk.sync(fd)
    disk.close(fd)
    disk.sync_dir(str(tmp_path))
    disk.mark("done")
    assert contents(after(disk, "done"), "b") == {b"late"}
    assert contents(after(disk, "done"), "a") == {None}


def test_states_are_distinct_and_the_same_every_time(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    for number in range(14):
        write(disk, tmp_path / f"{number}", b"data")
    first = list(crash_states(disk, samples=20, seed=3))
    assert [state.files for state in first] == [s.files for s in crash_states(disk, samples=20, seed=3)]
    assert len({(repr(state.files), state.marks) for state in first}) == len(first)


def test_a_state_can_be_written_down(tmp_path: Path) -> None:
    state = CrashState({"d": None, "d/f": b"1", "e": b""}, (), "", ())
    state.write_to(tmp_path)
    assert (tmp_path / "d" / "f").read_bytes() == b"1"
    assert (tmp_path / "e").read_bytes() == b""


def test_what_lies_outside_of_the_root_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    disk = RecordingDisk(tmp_path / "in")
    write(disk, tmp_path / "out", b"1", sync=True)
    disk.sync_dir(str(tmp_path))
    assert disk.operations == []


def scenario(directory: Path) -> Callable[[Disk], None]:
    return lambda disk: disk.replace_file(str(directory / "a"), [b"12", b"34"])


def test_each_fault_strikes_each_operation_once(tmp_path: Path) -> None:
    faults = list(each_fault(scenario(tmp_path), kinds=["open", "pwrite", "sync", "rename"]))
    assert {fault.kind for fault in faults} == {"open", "pwrite", "sync", "rename"}
    for fault in faults:
        disk = FaultyDisk(fault)
        if fault.failure == "short":
            scenario(tmp_path)(disk)
            assert (tmp_path / "a").read_bytes() == b"1234"
        else:
            with pytest.raises(OSError, match=r"\w"):
                scenario(tmp_path)(disk)
        assert disk.fired, fault


def test_a_fault_strikes_at_its_turn_and_once(tmp_path: Path) -> None:
    disk = FaultyDisk(Fault("sync", 2, "EIO"))
    write(disk, tmp_path / "a", b"1", sync=True)
    with pytest.raises(OSError, match="Input/output error"):
        write(disk, tmp_path / "a", b"2", sync=True)
    write(disk, tmp_path / "a", b"3", sync=True)
    lasting = FaultyDisk(Fault("sync", 1, "EIO", lasts=True))
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            write(lasting, tmp_path / "a", b"1", sync=True)


def test_a_torn_write_leaves_half(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        write(FaultyDisk(Fault("pwrite", 1, "torn")), tmp_path / "a", b"12345678")
    assert (tmp_path / "a").read_bytes() == b"1234"
