"""The end of a log that nobody closed: what is damaged is told from what was torn."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt.errors import CorruptRecordError
from ckpt_backends.log import LogBackend, LogOptions
from ckpt_backends.log.local import LocalStorage

OPTIONS = LogOptions(segment_bytes=8 << 20, recent_records=100_000)
_LARGE = 2 << 20


def flip(path: Path, at: int, size: int) -> None:
    """One bit of the header."""
    del size
    with path.open("r+b") as file:
        file.seek(at + 9)
        (byte,) = file.read(1)
        file.seek(at + 9)
        file.write(bytes([byte ^ 4]))


def clear(path: Path, at: int, size: int) -> None:
    """Zeros, as a drive gives for sectors that it has lost."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def punch(path: Path, at: int, size: int) -> None:
    """The same as a hole: the file without the frame, as if nothing had ever been written there."""
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.truncate(len(data))
        for start in range(0, len(data), 4096):
            piece = data[start : start + 4096]
            cleared = bytearray(piece)
            low, high = max(at - start, 0), max(min(at + size - start, len(piece)), 0)
            cleared[low:high] = bytes(max(high - low, 0))
            if any(cleared):
                file.seek(start)
                file.write(cleared)


def killed(folder: Path) -> tuple[Path, list[int]]:
    """A log as `kill -9` leaves it, its segment uncut, and where in that each of its frames starts."""
    ends = []
    with LogBackend(str(folder / "log"), OPTIONS) as backend:
        for number, size in enumerate((10, _LARGE, 10, 10)):
            backend.put_many("words", {b"%d" % number: b"v" * size})
            ends.append(backend._engine.tail.offset)
        copy = folder / "killed"
        shutil.copytree(folder / "log", copy)
    starts = [4096, *ends[:-1]]
    return copy / "segments" / "000000000001.seg", starts


@pytest.mark.parametrize("damage", [flip, clear, punch])
@pytest.mark.parametrize("frame", [1, 2])
def test_damage_in_the_middle_is_not_taken_for_the_end(
    tmp_path: Path, damage: Callable[[Path, int, int], None], frame: int
) -> None:
    segment, starts = killed(tmp_path)
    assert segment.stat().st_size == OPTIONS.segment_bytes
    damage(segment, starts[frame], starts[frame + 1] - starts[frame])
    with LogBackend(str(segment.parents[1]), OPTIONS) as backend:
        assert backend.get_many("words", [b"3"]) == {b"3": b"v" * 10}
        with pytest.raises(CorruptRecordError):
            backend.get_many("words", [b"%d" % frame])
        assert list(backend.verify())


def test_what_was_torn_is_not_taken_for_damage(tmp_path: Path) -> None:
    segment, starts = killed(tmp_path)
    flip(segment, starts[3], 10)  # nobody knows of it that it was durable
    with LogBackend(str(segment.parents[1]), OPTIONS) as backend:
        assert backend.get_many("words", [b"0", b"2", b"3"]) == {b"0": b"v" * 10, b"2": b"v" * 10}
        assert list(backend.verify()) == []


def test_what_was_only_reserved_is_not_searched(tmp_path: Path) -> None:
    """Where the filesystem can tell; one that cannot says that all of the file was written."""
    path = tmp_path / "segments" / "000000000001.seg"
    path.parent.mkdir()
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        file.seek(512 << 10)
        file.write(b"x" * 4096)
    storage = LocalStorage(str(tmp_path), segment_bytes=1 << 20, read_only=True)
    found = storage.written(1, 0, 1 << 20)
    assert any(start <= 512 << 10 and end >= (512 << 10) + 4096 for start, end in found)
    assert storage.written(1, 1 << 20, 1 << 20) == []
    assert storage.written(1, (512 << 10) + 16, (512 << 10) + 32) == [((512 << 10) + 16, (512 << 10) + 32)]
