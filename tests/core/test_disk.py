"""The disk seam: each call does all of its work or raises, and a replaced file is old or new."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.contract.disk import Disk
from ckpt.testing import Fault, FaultyDisk


class HaltingDisk(Disk):
    """Writes at most a few bytes per system call, as a signal or a full pipe may cause."""

    def __init__(self, at_most: int) -> None:
        self.at_most = at_most

    def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
        return super().pwritev(fd, [b"".join(views)[: self.at_most]], offset)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    disk = Disk()
    opened = disk.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    yield opened
    disk.close(opened)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 7), st.integers(0, 30))
def test_short_writes_are_continued(buffers: list[bytes], at_most: int, offset: int) -> None:
    disk = HaltingDisk(at_most)
    fd = os.memfd_create("short")
    try:
        assert disk.pwrite(fd, buffers, offset) == sum(map(len, buffers))
        whole = b"".join(buffers)
        assert disk.pread(fd, 10_000, offset) == whole
        if whole:
            assert disk.pread(fd, 10_000, 0) == bytes(offset) + whole
    finally:
        os.close(fd)


def test_more_buffers_than_one_system_call_takes(fd: int) -> None:
    buffers = [b"%d," % number for number in range(5000)]
    Disk().pwrite(fd, buffers, 0)
    assert Disk().pread(fd, 1 << 20, 0) == b"".join(buffers)


def test_views_and_empty_buffers(fd: int) -> None:
    assert Disk().pwrite(fd, [memoryview(b"abc")[1:], b"", b"end"], 0) == 5
    assert Disk().pwrite(fd, [], 0) == 0
    assert Disk().pwrite(fd, [b""], 0) == 0
    assert Disk().pread(fd, 100, 0) == b"bcend"


def test_pread_stops_at_the_end(fd: int) -> None:
    Disk().pwrite(fd, [b"12345"], 0)
    assert Disk().pread(fd, 3, 3) == b"45"
    assert Disk().pread(fd, 3, 5) == b""


def test_truncate_and_allocate(fd: int) -> None:
    disk = Disk()
    disk.allocate(fd, 100)
    assert os.fstat(fd).st_size == 100
    disk.truncate(fd, 7)
    assert disk.pread(fd, 100, 0) == bytes(7)


def test_make_dirs_may_be_repeated(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "c"
    Disk().make_dirs(str(place))
    Disk().make_dirs(str(place))
    assert place.is_dir()


def test_make_dirs_in_the_way_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(OSError, match="a"):
        Disk().make_dirs(str(tmp_path / "a" / "b"))


@pytest.mark.parametrize("kind", ["open", "pwrite", "sync", "rename"])
def test_a_replaced_file_is_old_or_new(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    disk = FaultyDisk(Fault(kind, 1, "EIO"))
    with pytest.raises(OSError, match="Input/output error"):
        disk.replace_file(str(path), [b"new"])
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    disk.replace_file(str(path), [b"n", b"ew"], durable=False)
    assert path.read_bytes() == b"new"


def test_descriptors_are_not_inherited(fd: int) -> None:
    assert not os.get_inheritable(fd)
