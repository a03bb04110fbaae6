"""A full disk, a failing sync, a log cut off at any byte: it goes on correctly, or it refuses clearly."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckpt.contract.addresses import Durability
from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, CkptError, CorruptRecordError
from ckpt.testing import Fault, FaultyDisk
from ckpt_backends.log import LogBackend, LogOptions

SMALL = LogOptions(segment_bytes=16 << 10, recent_records=100_000)


class FullDisk(Disk):
    """Has no room left while `full`: neither for a new file's blocks nor for a write."""

    def __init__(self) -> None:
        self.full = False

    def allocate(self, fd: int, length: int) -> None:
        self._require_room()
        super().allocate(fd, length)

    def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
        self._require_room()
        return super().pwritev(fd, views, offset)

    def _require_room(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Quick(Disk):
    """Syncs nothing, where thousands of stores are looked at once."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class NoSync(FaultyDisk):
    """Every sync of a segment fails from now on, if told so."""

    failing = False

    def sync(self, fd: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


def everything(backend: Backend) -> dict[str, dict[bytes, bytes]]:
    return {name: dict(backend.scan(name)) for name in backend.namespaces()}


def test_a_full_disk_is_refused_and_forgotten_when_there_is_room_again(tmp_path: Path) -> None:
    disk = FullDisk()
    with LogBackend(str(tmp_path / "log"), SMALL, disk=disk) as backend:
        backend.put_many("words", {b"a": b"1"})
        for _ in range(3):
            disk.full = True
            with pytest.raises(BackendUnavailableError, match="the disk is full: free some space"):
                backend.put_many("words", {b"a": b"2"})
            with pytest.raises(BackendUnavailableError, match="the disk is full"):
                backend.put_many("new", {b"b": b"3" * 20_000})
            with pytest.raises(BackendUnavailableError, match="the disk is full"):
                backend.commit("store", 1, {b"k": b"v"})
            assert everything(backend) == {"words": {b"a": b"1"}}
            disk.full = False
            backend.put_many("words", {b"c": b"4" * 5000})
            backend.delete_many("words", [b"c"])
        backend.commit("store", 1, {b"k": b"v"})
        expected = {"words": {b"a": b"1"}, "store": {b"k": b"v"}}
        assert everything(backend) == expected
        assert list(backend.verify()) == []
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        assert everything(backend) == expected
        assert list(backend.verify()) == []


def test_a_namespace_that_became_empty_stays_plain_if_its_first_commit_fails(tmp_path: Path) -> None:
    disk = FullDisk()
    with LogBackend(str(tmp_path / "log"), SMALL, disk=disk) as backend:
        backend.put_many("words", {b"a": b"1"})
        backend.delete_many("words", [b"a"])
        disk.full = True
        with pytest.raises(BackendUnavailableError):
            backend.commit("words", 1, {b"k": b"v"})
        disk.full = False
        backend.put_many("words", {b"b": b"2"})
        backend.drop("words")
        backend.commit("words", 1, {b"k": b"v"})
        assert everything(backend) == {"words": {b"k": b"v"}}
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        assert everything(backend) == {"words": {b"k": b"v"}}


def test_the_index_may_fail_to_be_written_and_nothing_is_lost(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=16 << 10, recent_records=10, durability=Durability.OS)
    disk = FaultyDisk()
    expected: dict[bytes, bytes] = {}
    with LogBackend(str(tmp_path / "log"), options, disk=disk) as backend:
        for i in range(300):
            if i % 10 == 0:  # the next rename is that of an index file, a manifest or a segment
                disk.fault = Fault("rename", disk.counts["rename"] + 1, "EIO") if i % 20 else None
            try:
                backend.put_many("words", {b"key-%d" % (i % 50): b"%d" % i * 30})
            except BackendUnavailableError:
                continue
            expected[b"key-%d" % (i % 50)] = b"%d" % i * 30
            assert dict(backend.scan("words")) == expected
            assert backend.get_many("words", list(expected)) == expected
        disk.fault = None
    with LogBackend(str(tmp_path / "log"), options) as backend:
        assert dict(backend.scan("words")) == expected


def test_after_a_failed_sync_writes_are_refused_until_the_log_is_opened_again(tmp_path: Path) -> None:
    disk = NoSync()
    backend = LogBackend(str(tmp_path / "log"), SMALL, disk=disk)
    backend.put_many("words", {b"a": b"1"})
    disk.failing = True
    with pytest.raises(BackendUnavailableError, match="I/O error"):
        backend.put_many("words", {b"a": b"2"})
    disk.failing = False  # the kernel reports a lost page once; a second sync would lie
    for write in (
        lambda: backend.put_many("words", {b"a": b"3"}),
        lambda: backend.commit("store", 1, {b"a": b"3"}),
        backend.flush,
    ):
        with pytest.raises(BackendUnavailableError, match=r"since a sync failed .* open it again"):
            write()
    backend.close()
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        assert backend.get_many("words", [b"a"])[b"a"] in (b"1", b"2")
        backend.put_many("words", {b"a": b"4"})
        assert backend.get_many("words", [b"a"]) == {b"a": b"4"}
    assert not (tmp_path / "log" / "SYNC-FAILED").exists()


def test_after_a_failed_sync_the_next_writer_writes_the_tail_again(tmp_path: Path) -> None:
    """A page that could not be written is clean for the kernel: only new writes bring it to the disk."""
    disk = NoSync()
    backend = LogBackend(str(tmp_path / "log"), SMALL, disk=disk)
    backend.put_many("words", {b"a": b"1" * 100})
    disk.failing = True
    with pytest.raises(BackendUnavailableError):
        backend.put_many("words", {b"b": b"2" * 100})
    backend.close()
    written: list[bytes] = []

    class Watching(Disk):
        def pwritev(self, fd: int, views: Sequence[bytes | memoryview], offset: int) -> int:
            written.append(b"".join(views))
            return super().pwritev(fd, views, offset)

    with LogBackend(str(tmp_path / "log"), SMALL, disk=Watching()) as backend:
        assert any(b"2" * 100 in data for data in written)
        assert backend.get_many("words", [b"b"]) == {b"b": b"2" * 100}


def test_a_log_cut_off_at_any_byte_holds_a_prefix_of_what_was_written(tmp_path: Path) -> None:
    """What a crash leaves of the last writes: complete batches, in order, and no error."""
    original = tmp_path / "original"
    states: list[dict[str, dict[bytes, bytes]]] = [{}]
    ends = []
    with LogBackend(str(original), SMALL) as backend:
        segment = original / "segments" / "000000000001.seg"
        for step in (
            lambda: backend.put_many("words", {b"a": b"1", b"b": b"22"}),
            lambda: backend.commit("store", 1, {b"k": b"v" * 40}),
            lambda: backend.delete_many("words", [b"a"]),
            lambda: backend.put_many("words", {b"b": b"3" * 33}),
        ):
            step()
            ends.append(backend._engine.tail.offset)
            states.append(everything(backend))
        data = segment.read_bytes()[: ends[-1]]
    copy = tmp_path / "copy"
    for cut in range(4096, ends[-1] + 1):
        (copy / "segments").mkdir(parents=True)
        (copy / "segments" / segment.name).write_bytes(data[:cut])
        complete = sum(end <= cut or not any(data[cut:end]) for end in ends)
        with LogBackend(str(copy), SMALL, disk=Quick()) as backend:
            assert everything(backend) == states[complete], cut
            backend.put_many("more", {b"x": b"y"})
        with LogBackend(str(copy), SMALL, disk=Quick()) as backend:
            assert everything(backend) == {**states[complete], "more": {b"x": b"y"}}, cut
            assert list(backend.verify()) == []
        shutil.rmtree(copy)


def test_a_closed_log_cut_off_at_any_byte_is_right_or_raises(closed_log, tmp_path: Path) -> None:
    """The index knows what was there: cutting off acknowledged records is noticed."""
    folder = tmp_path / "log"
    for name in (n for n in closed_log.files if n.endswith(".seg")):
        data = closed_log.files[name]
        for cut in [*range(0, len(data), 61), len(data) - 1]:
            closed_log.write_to(folder)
            (folder / name).write_bytes(data[:cut])
            with LogBackend(str(folder), LogOptions(mode="read")) as backend:
                for (space, key), value in closed_log.seen.plain.items():
                    try:
                        assert backend.get_many(space, [key]) == {key: value}, (name, cut, key)
                    except CkptError:
                        continue


def test_a_lost_segment_is_noticed_with_and_without_the_index(closed_log, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    names = sorted(n for n in closed_log.files if n.endswith(".seg"))
    assert len(names) > 1
    for name in names[:-1]:
        for without_index in (False, True):
            closed_log.write_to(folder)
            (folder / name).unlink()
            if without_index:
                (folder / "MANIFEST").unlink()
            with LogBackend(str(folder), SMALL) as backend:
                assert list(backend.verify())
                for (space, key), value in closed_log.seen.plain.items():
                    try:
                        assert backend.get_many(space, [key]) == {key: value}
                    except CorruptRecordError:
                        continue
                backend.repair()
                assert list(backend.verify()) == []
                backend.put_many("words", {b"after": b"1"})
            with LogBackend(str(folder), SMALL) as backend:
                assert backend.get_many("words", [b"after"]) == {b"after": b"1"}
                assert list(backend.verify()) == []


def test_frames_of_an_earlier_life_of_a_file_are_never_taken_for_new_ones(tmp_path: Path) -> None:
    """A recycled segment is full of frames of its former number; a crash must not bring them back."""
    path = tmp_path / "log"
    with LogBackend(str(path), SMALL) as backend:
        backend._engine.on_append = lambda: None  # no thread that prepares files which were never used
        for i in range(60):
            backend.put_many("words", {b"key-%d" % (i % 3): b"%02d" % i * 400})
        backend._maintenance._collect(0.9)  # unlike compact(), it keeps files to use again
        for _ in range(2):
            backend.put_many("words", {b"key-0": b"new" * 2000})
        backend.put_many("words", {b"key-0": b"newest"})
        expected = everything(backend)
        copy = tmp_path / "crashed"
        shutil.copytree(path, copy)
    segments = [file.read_bytes() for file in (copy / "segments").glob("*.seg")]
    stale = any(b"%02d" % i * 400 in segment for segment in segments for i in range(45))
    assert stale, "no segment was recycled"
    for name in ("MANIFEST", None):
        if name:
            (copy / name).unlink(missing_ok=True)
        with LogBackend(str(copy), SMALL) as backend:
            assert everything(backend) == expected
            assert list(backend.verify()) == []


@pytest.mark.parametrize("count", [16_384, 16_385, 40_000])
def test_a_batch_of_more_records_than_a_frame_holds_is_whole(tmp_path: Path, count: int) -> None:
    items = {b"%d" % i: b"v%d" % i for i in range(count)}
    with LogBackend(str(tmp_path / "log")) as backend:
        backend.put_many("words", items)
        backend.commit("store", 1, items)
        backend.commit("store", 2, {}, list(items)[1:])
        assert dict(backend.scan("words")) == items
    with LogBackend(str(tmp_path / "log")) as backend:
        assert dict(backend.scan("words")) == items
        assert dict(backend.scan("store", version=1)) == items
        assert dict(backend.scan("store")) == {b"0": b"v0"}


def test_a_log_that_is_never_synced_keeps_few_files_open(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=16 << 10, recent_records=100_000, durability=Durability.OS, gc=False)
    with LogBackend(str(tmp_path / "log"), options) as backend:
        for i in range(120):
            backend.put_many("words", {b"%d" % i: b"v" * 10_000})
        written = [fd for fd in Path("/proc/self/fd").iterdir() if is_open_for_writing(fd)]
        assert len(written) < 40
        assert len(dict(backend.scan("words"))) == 120


def is_open_for_writing(fd: Path) -> bool:
    try:
        flags = Path(f"/proc/self/fdinfo/{fd.name}").read_text().split("flags:")[1].split()[0]
        return "segments" in str(fd.readlink()) and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    except FileNotFoundError:
        return False


def test_values_and_batches_larger_than_a_segment_are_stored_and_collected(tmp_path: Path) -> None:
    large = {b"large": b"l" * 200_000}
    wide = {b"wide-%d" % i: b"w" * 9_000 for i in range(10)}
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        for _ in range(4):
            backend.put_many("words", large)
            backend.put_many("words", wide)
            backend.commit("store", 1, wide)
        before = backend.stats().stored_bytes
        backend.compact()
        assert backend.stats().stored_bytes < before
        assert dict(backend.scan("words")) == {**large, **wide}
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        assert dict(backend.scan("words")) == {**large, **wide}
        assert list(backend.verify()) == []


def test_a_log_whose_directory_is_removed_acknowledges_nothing_more(tmp_path: Path) -> None:
    """Its files could still be written; all of it would be gone when they are closed."""
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2"})
        assert not log.is_broken
        shutil.rmtree(tmp_path / "log")
        assert log.is_broken
        with pytest.raises(BackendUnavailableError, match="was removed or replaced while"):
            log.put_many("words", {b"or": b"1"})
        with pytest.raises(BackendUnavailableError, match="was removed or replaced while"):
            log.put_many("words", {b"not": b"1"})
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("writes", [False, True])
def test_a_log_that_takes_the_place_of_an_open_one_is_left_alone(tmp_path: Path, writes: bool) -> None:
    """A backup is put back while the writer of what was there before has not ended yet."""
    place, backup = tmp_path / "log", tmp_path / "backup"
    with LogBackend(str(place)) as log:
        log.put_many("words", {b"be": b"2"})
    shutil.copytree(place, backup)
    log = LogBackend(str(place))
    log.put_many("words", {b"be": b"3", b"or": b"1"})
    place.rename(tmp_path / "before")
    backup.rename(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    if writes:
        with pytest.raises(BackendUnavailableError, match="was removed or replaced while"):
            log.put_many("words", {b"not": b"1"})
    log.close()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    with LogBackend(str(place)) as log:
        assert dict(log.scan("words")) == {b"be": b"2"}
