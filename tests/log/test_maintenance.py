"""What happens in the background goes on happening, whatever stood in its way once."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckpt.contract.addresses import Durability
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError
from ckpt.types import Changes
from ckpt_backends.engine.storage import SegmentGoneError
from ckpt_backends.engine.visibility import LiveSegments
from ckpt_backends.log import LogBackend, LogOptions

PATIENCE_S = 60


class _MeagreDisk(Disk):
    """Has no memory for its first index file."""

    def __init__(self) -> None:
        self.refused, self.written = threading.Event(), threading.Event()

    def replace_file(self, path: str, buffers: Sequence[bytes | memoryview], *, durable: bool = True) -> None:
        if not path.endswith(".idx"):
            super().replace_file(path, buffers, durable=durable)
        elif not self.refused.is_set():
            self.refused.set()
            raise MemoryError
        else:
            super().replace_file(path, buffers, durable=durable)
            self.written.set()


def test_a_lack_of_memory_does_not_end_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else nothing would bound the memory of the index, or the disk space, until the log is opened again."""
    caplog.set_level(logging.WARNING, "ckpt.log")
    disk = _MeagreDisk()
    with LogBackend(f"{tmp_path}/log", LogOptions(recent_records=100), disk=disk) as log:
        log.put_many("words", {b"be": b"1", b"or": b"1", **{b"%d" % n: b"" for n in range(100)}})
        assert disk.refused.wait(PATIENCE_S)
        turn = 1
        while not disk.written.wait(0.01):
            turn += 1
            assert turn < PATIENCE_S * 100, "the index is not written any more"
            log.put_many("words", {b"be": b"%d" % turn, b"or": b"1"})
        assert log.get_many("words", [b"be", b"or"]) == {b"be": b"%d" % turn, b"or": b"1"}
    [told] = [record for record in caplog.records if record.exc_info]
    assert "will be tried again" in told.getMessage()
    assert "MemoryError" in caplog.text


class _FullIndexFolder(Disk):
    """Has no room for index files while `full`."""

    def __init__(self) -> None:
        self.full = True
        self.refused = threading.Semaphore(0)
        self.written = threading.Event()

    def replace_file(self, path: str, buffers: Sequence[bytes | memoryview], *, durable: bool = True) -> None:
        if path.endswith(".idx"):
            if self.full:
                self.refused.release()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.written.set()
        super().replace_file(path, buffers, durable=durable)


FEW = LogOptions(recent_records=10, durability=Durability.OS)


def put_until_refused(log: LogBackend) -> dict[bytes, bytes]:
    """What was put before a write was refused because of the index."""
    stored: dict[bytes, bytes] = {}
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        key = b"%d" % len(stored)
        try:
            log.put_many("words", {key: b"1"})
        except BackendUnavailableError as error:
            if re.search(r"index.*the disk is full.*writes go on", str(error)):
                return stored
            raise
        stored[key] = b"1"
    pytest.fail("nothing bounds the memory of the index")


def test_an_index_that_cannot_be_written_bounds_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_backends.engine.maintenance.pauses_until", lambda _: itertools.repeat(3600.0))
    disk = _FullIndexFolder()
    with LogBackend(f"{tmp_path}/log", FEW, disk=disk) as log:
        stored = put_until_refused(log)
        for write in (
            lambda: log.put_many("words", {b"more": b"1"}),
            lambda: log.write_many({"words": Changes({b"more": b"1"}, [b"0"])}),
            lambda: log.commit("store", 1, {b"more": b"1"}),
        ):
            with pytest.raises(BackendUnavailableError, match="index"):
                write()
        assert dict(log.scan("words")) == stored
        assert log.get_many("words", [b"0", b"more"]) == {b"0": b"1"}
        assert disk.refused.acquire(blocking=False)
        assert not disk.refused.acquire(blocking=False), "it was tried again without a pause"
    with LogBackend(f"{tmp_path}/log") as log:
        assert dict(log.scan("words")) == stored


def test_writes_go_on_once_the_index_can_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ckpt.log")
    disk = _FullIndexFolder()
    with LogBackend(f"{tmp_path}/log", FEW, disk=disk) as log:
        stored = put_until_refused(log)
        for _ in range(3):
            assert disk.refused.acquire(timeout=PATIENCE_S), "it is not tried again"
        disk.full = False
        assert disk.written.wait(PATIENCE_S), "it is tried again only by a write"
        log.compact()
        log.put_many("words", {b"more": b"1"})
        assert dict(log.scan("words")) == {**stored, b"more": b"1"}
    assert [r.levelname for r in caplog.records if "maintenance" in r.getMessage()] == ["WARNING", "INFO"]


class _WatchedMoves(Disk):
    """Holds what a collection moves, in another thread than the test's, until the log is being closed."""

    def __init__(self) -> None:
        self.begun, self.closing = threading.Event(), threading.Event()
        self.moves = 0

    def pwrite(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        is_frame = offset > 0  # index files and headers of segments begin at 0
        if is_frame and threading.current_thread() is not threading.main_thread():
            self.begun.set()
            if not self.moves:
                self.closing.wait(5)
            self.moves += 1
        return super().pwrite(fd, buffers, offset)


@pytest.mark.parametrize("asked_for", [False, True], ids=["background", "asked for"])
def test_close_ends_a_collection_that_runs(
    tmp_path: Path, asked_for: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who closes gives up in the middle, and the log stays locked for the rest of the process."""
    options = LogOptions(segment_bytes=16 << 10, recent_records=100, durability=Durability.OS, gc=False)
    expected = {b"hot": bytes(2000)}
    with LogBackend(f"{tmp_path}/log", options) as log:
        for number in range(1000):  # every segment has something that is needed, so each has to be moved
            expected[b"kept-%d" % number] = b"1"
            log.put_many("words", {b"kept-%d" % number: b"1", b"hot": bytes(2000)})
    disk = _WatchedMoves()
    log = LogBackend(f"{tmp_path}/log", dataclasses.replace(options, gc=not asked_for), disk=disk)
    refuse = log._engine.refuse_writes

    def tell_and_refuse() -> None:
        disk.closing.set()
        refuse()

    monkeypatch.setattr(log._engine, "refuse_writes", tell_and_refuse)
    errors: list[Exception] = []
    filler = {b"%d" % n: b"" for n in range(100)}
    log.put_many("words", filler)  # now the index is flushed, and garbage is looked for
    expected.update(filler)

    def compact() -> None:
        try:
            log.compact()
        except BackendUnavailableError as error:
            errors.append(error)

    asking = threading.Thread(target=compact)
    if asked_for:
        asking.start()
    assert disk.begun.wait(PATIENCE_S)
    log.close()
    if asked_for:
        asking.join(PATIENCE_S)
        [error] = errors
        assert "is closed" in str(error)
    assert disk.moves < 100  # of a thousand
    assert not [record for record in caplog.records if record.name == "ckpt.log"]
    with LogBackend(f"{tmp_path}/log", options) as again:
        assert dict(again.scan("words")) == expected
        assert list(again.verify()) == []
        again.compact()
        assert dict(again.scan("words")) == expected


def test_segments_may_be_retired_again_and_again_under_a_question(tmp_path: Path) -> None:
    """Where segments are tiny and many commit, the next is collected before the question is asked again."""
    with LogBackend(str(tmp_path / "log")) as log:
        log.put_many("words", {b"be": b"2"})
        asked = 0

        def question() -> bytes:
            nonlocal asked
            asked += 1
            if asked <= 5:
                log._engine.live = LiveSegments(log._engine.summaries)  # as a collection does
                raise SegmentGoneError("segments/1.seg is gone")
            return log.get_many("words", [b"be"])[b"be"]

        def gone() -> bytes:
            raise SegmentGoneError("segments/1.seg is gone")

        assert log._read(question) == b"2"
        with pytest.raises(SegmentGoneError):
            log._read(gone)


def test_a_reader_asks_again_as_long_as_what_it_looks_at_is_another_log(tmp_path: Path) -> None:
    """What a writer in another process has retired is seen only by looking; damage stays where it is."""
    path = str(tmp_path / "log")
    with LogBackend(path, LogOptions(segment_bytes=16 << 10)) as writer:
        writer.put_many("words", {b"be": b"2"})
        with LogBackend(path, LogOptions(mode="read")) as reader:
            asked = 0

            def question() -> bytes:
                nonlocal asked
                asked += 1
                if asked <= 5:
                    for number in range(60):
                        writer.put_many("words", {b"or-%d" % number: bytes(500)})
                    raise SegmentGoneError("segments/1.seg is gone")
                return reader.get_many("words", [b"be"])[b"be"]

            def damaged() -> bytes:
                nonlocal asked
                asked += 1
                raise SegmentGoneError("segments/1.seg is gone")

            assert reader._read(question) == b"2"
            asked = 0
            with pytest.raises(SegmentGoneError):
                reader._read(damaged)
            assert asked == 2
