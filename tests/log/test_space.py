"""Garbage is measured in bytes, and disk space stays bounded by what is needed."""

from __future__ import annotations

from pathlib import Path

from ckpt_backends.log import LogBackend, LogOptions

SEGMENT = 64 << 10
OPTIONS = LogOptions(segment_bytes=SEGMENT)


def used(log: LogBackend) -> int:
    return log._engine.written_bytes()


def test_few_large_records_are_collected_too(tmp_path: Path) -> None:
    """20 keys of 4 KB, overwritten 200 times: far fewer records than the index keeps recent."""
    with LogBackend(f"{tmp_path}/log", OPTIONS) as log:
        for turn in range(200):
            log.put_many("words", {b"%d" % n: bytes([turn]) * 4096 for n in range(20)})
        log._maintenance._work()  # what its thread does when it is woken, here and now
        assert used(log) < 40 * SEGMENT, "of 250 segments written, 16 of which may not be looked at yet"
        assert dict(log.scan("words")) == {b"%d" % n: bytes([199]) * 4096 for n in range(20)}


def test_truncated_versions_are_collected_too(tmp_path: Path) -> None:
    with LogBackend(f"{tmp_path}/log", OPTIONS) as log:
        for version in range(1, 201):
            log.commit("store", version, {b"%d" % (n + version % 7): bytes(4096) for n in range(10)})
            log.truncate("store", version)
        log._maintenance._work()
        assert used(log) < 40 * SEGMENT, "of 125 segments written, 16 of which may not be looked at yet"
        assert len(dict(log.scan("store"))) == 16


def test_small_records_do_not_protect_a_large_one(tmp_path: Path) -> None:
    """Each segment holds one dead large record and dozens of small ones that are needed."""
    with LogBackend(f"{tmp_path}/log", LogOptions(segment_bytes=SEGMENT, gc=False)) as log:
        expected = {}
        for turn in range(100):
            small = {b"%d-%d" % (turn, n): b"x" * 20 for n in range(30)}
            log.put_many("words", {b"large": bytes(40_000), **small})
            expected |= small
        before = used(log)
        log.compact()
        assert used(log) < before / 5
        assert dict(log.scan("words")) == {**expected, b"large": bytes(40_000)}


def test_compaction_gives_spare_files_back(tmp_path: Path) -> None:
    with LogBackend(f"{tmp_path}/log", OPTIONS) as log:
        for _ in range(50):
            log.put_many("words", {b"%d" % n: bytes(4096) for n in range(20)})
        log._maintenance._work()
        with log._maintenance.paused():  # its thread would prepare the next one
            log.compact()
            assert not list((tmp_path / "log" / "segments").glob("spare-*"))
