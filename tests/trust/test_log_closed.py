"""A log that was closed is opened by its word for it, which holds whatever happens to a later writer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.testing import observe, survives_crashes, survives_faults
from ckpt_backends.engine.manifest import Manifest, decode_manifest, encode_manifest
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import PROVING, nth

SMALL = LogOptions(segment_bytes=16 << 10, recent_records=10_000)
Steps = list[Callable[[Backend], object]]


class ReadOnly(Disk):
    """A disk that nothing may be written to."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        assert not flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT), path
        return super().open(path, flags, mode)

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise AssertionError(f"{args} of a log that was only read")

    pwrite = pwritev = sync = sync_dir = allocate = truncate = rename = unlink = mkdir = _refuse


class EachLife:
    """A log that is opened for each call and closed after it."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._open = lambda: LogBackend(directory, SMALL, disk=disk)
        self._open().close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._open() as backend:
                answer = getattr(backend, name)(*args, **kwargs)
                return list(answer) if isinstance(answer, Iterator) else answer

        return call

    def __enter__(self) -> EachLife:
        return self

    def __exit__(self, *error: object) -> None:
        """It is open only during a call."""

    def close(self) -> None:
        """It is open only during a call."""


def open_each_life(directory: str, disk: Disk) -> Backend:
    return cast("Backend", EachLife(directory, disk))


LIVES: Steps = [
    lambda b: b.put_many("words", {b"a": b"1", b"b": b"1" * 700}),
    lambda b: b.put_many("words", {b"a": b"2"}),
    lambda b: b.put_many("words", {b"larger than the rest of the segment": b"l" * (13 << 10)}),
    lambda b: b.put_many("words", {b"larger than any segment": b"l" * (20 << 10)}),
    lambda b: b.commit("store", 1, {b"%d" % i: b"v" * 3000 for i in range(6)}, commit_id="wide"),
    lambda b: b.delete_many("words", [b"b"]),
    lambda b: cast("LogBackend", b).compact(),
    lambda b: b.put_many("words", {b"a": b"3"}),
]


def manifest_of(folder: Path) -> Manifest:
    return decode_manifest((folder / "MANIFEST").read_bytes())[0]


def test_a_power_failure_in_any_life_is_survived(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    limits = {"all_subsets_of": 4, "samples": 8}
    states = survives_crashes(open_each_life, LIVES, tmp_path, only=nth(8), **limits)
    record_property("states", states)
    assert states > (100 if PROVING else 12)


def test_a_fault_in_any_life_is_survived(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    faults = survives_faults(open_each_life, LIVES, tmp_path, only=nth(15))
    record_property("states", len(faults))
    assert len(faults) > (100 if PROVING else 6)


def test_reading_a_closed_log_writes_and_lists_nothing(
    closed_log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_log.write_to(tmp_path)
    LogBackend(str(tmp_path), SMALL).close()  # its lock names this process from now on
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}

    def refuse(path: str) -> list[str]:
        raise AssertionError(f"{path} was listed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        for _ in range(2):
            with LogBackend(str(tmp_path), SMALL, disk=ReadOnly()) as backend:
                assert observe(backend) == closed_log.seen
                backend.flush()
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")} == before


def test_a_log_is_called_closed_only_while_nothing_is_written(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path), SMALL) as backend:
        backend.put_many("words", {b"a": b"1"})
        assert not (tmp_path / "MANIFEST").exists()
    assert manifest_of(tmp_path).closed
    segment = tmp_path / "segments" / "000000000001.seg"
    end = segment.stat().st_size
    assert end == manifest_of(tmp_path).position.offset
    with LogBackend(str(tmp_path), SMALL) as backend:
        assert backend._engine.untouched
        backend.put_many("words", {b"a": b"2"})
        assert segment.stat().st_size > end
        backend.put_many("words", {b"b": b"2" * (15 << 10)})  # begins another segment
        assert not manifest_of(tmp_path).closed
    with LogBackend(str(tmp_path), SMALL) as backend:
        assert backend._engine.untouched
        assert backend.get_many("words", [b"a", b"b"]) == {b"a": b"2", b"b": b"2" * (15 << 10)}


def test_a_segment_that_contradicts_the_manifest_is_found_before_the_first_write(tmp_path: Path) -> None:
    """No writer leaves this behind: somebody has put an old manifest back."""
    folder = tmp_path / "log"
    with LogBackend(str(folder), SMALL) as backend:
        backend.put_many("words", {b"a": b"1" * (11 << 10)})
    old = manifest_of(folder)
    with LogBackend(str(folder), SMALL) as backend:
        backend.put_many("words", {b"b": b"2" * (11 << 10)})
    assert manifest_of(folder).position.segment == 2
    os.truncate(folder / "segments" / "000000000001.seg", old.position.offset)
    (folder / "MANIFEST").write_bytes(encode_manifest(old))
    with LogBackend(str(folder), SMALL) as backend:
        backend.put_many("words", {b"c": b"3"})
        assert set(backend.get_many("words", [b"a", b"b", b"c"])) == {b"a", b"b", b"c"}
    with LogBackend(str(folder), SMALL) as backend:
        assert set(backend.get_many("words", [b"a", b"b", b"c"])) == {b"a", b"b", b"c"}
        assert list(backend.verify()) == []


def test_an_uncut_or_foreign_tail_is_not_believed(closed_log, tmp_path: Path) -> None:
    name = max(n for n in closed_log.files if n.endswith(".seg"))
    data = closed_log.files[name]
    for tail in (data + bytes(4096), bytes(8) + data[8:]):
        closed_log.write_to(tmp_path)
        (tmp_path / name).write_bytes(tail)
        with LogBackend(str(tmp_path), SMALL) as backend:
            assert not backend._engine.untouched
            assert observe(backend) == closed_log.seen


def test_a_scan_from_before_the_first_write_holds_its_segments(tmp_path: Path) -> None:
    """The tail is mapped anew for the first write; who reads the old map must still keep the file."""
    old = {b"key-%02d" % i: b"old" * 300 for i in range(10)}
    with LogBackend(str(tmp_path), SMALL) as backend:
        for key, value in old.items():
            backend.put_many("words", {key: value})
    with LogBackend(str(tmp_path), SMALL) as backend:
        scan = backend.scan("words")
        first = next(scan)
        assert backend._engine.untouched
        for value in (b"new", b"newer", b"newest"):  # into recycled files, if the scan did not hold them
            for key in old:
                backend.put_many("words", {key: value * 300})
            backend._maintenance._collect(0.9)
        assert dict([first, *scan]) == old


def test_a_closed_log_that_is_open_already_is_refused(closed_log, tmp_path: Path) -> None:
    closed_log.write_to(tmp_path)
    with LogBackend(str(tmp_path), SMALL):
        with pytest.raises(BackendUnavailableError, match=f"process {os.getpid()}"):
            LogBackend(str(tmp_path), SMALL)
        with LogBackend(str(tmp_path), LogOptions(mode="read")) as reader:
            assert observe(reader) == closed_log.seen


def test_a_lock_file_makes_no_log_of_an_object_store(tmp_path: Path) -> None:
    with ckpt.open_backend(f"fsspec+file://{tmp_path}/store") as store:
        store.put_many("words", {b"be": b"2"})
    (tmp_path / "store" / "LOCK").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="object store"):
        LogBackend(f"{tmp_path}/store")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "store" / "LOCK").read_bytes() == b""
    shutil.rmtree(tmp_path / "store" / "manifests")
    with pytest.raises(ConfigError, match="object store"):
        LogBackend(f"{tmp_path}/store")
