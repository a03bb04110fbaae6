"""Many threads and one log: group commit, reads and scans during collection, a second writer refused."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpt.contract.addresses import Durability
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, CkptError
from ckpt_backends.log import LogBackend, LogOptions

BUSY = LogOptions(segment_bytes=16 << 10, recent_records=40, durability=Durability.OS)
"""Flushes, merges and collections all the time; what is tested here is not durability."""


class SlowSyncs(Disk):
    """Counts syncs, and lets none end before several writers wait for one."""

    def __init__(self, writers: int) -> None:
        self.syncs = 0
        self._enough = threading.Barrier(writers)

    def gather(self) -> None:
        """Wait until as many writers have come here."""
        self._enough.wait(timeout=30)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.syncs += 1


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run every job in a thread of its own; the first error is raised here."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


def test_writers_that_wait_at_the_same_time_share_a_sync(tmp_path: Path) -> None:
    writers, puts = 8, 25
    disk = SlowSyncs(writers)
    with LogBackend(str(tmp_path / "log"), disk=disk) as backend:
        backend.put_many("words", {b"first": b""})
        before = disk.syncs

        def write(number: int) -> None:
            for i in range(puts):
                disk.gather()
                backend.put_many("words", {b"%d-%d" % (number, i): b"v"})

        in_threads(*[lambda n=n: write(n) for n in range(writers)])
        assert disk.syncs - before < writers * puts
        assert len(dict(backend.scan("words"))) == writers * puts + 1


def test_reads_are_right_while_segments_are_collected(tmp_path: Path) -> None:
    """Each key has one writer; a reader sees values of a key in the order in which they were written."""
    keys = [b"key-%02d" % i for i in range(30)]
    stop = threading.Event()
    with LogBackend(str(tmp_path / "log"), BUSY) as backend:
        backend.put_many("words", dict.fromkeys(keys, b"%012d" % 0))

        def write(mine: list[bytes], seed: int) -> None:
            rng = random.Random(seed)
            for number in range(1, 250):
                chosen = rng.sample(mine, 4)
                backend.put_many("words", dict.fromkeys(chosen, b"%012d" % number * 20))
                if number % 50 == 0:
                    backend.commit(
                        "store", number, {b"k%d" % seed: b"%d" % number}, commit_id=f"{seed}-{number}"
                    )

        def read() -> None:
            newest = dict.fromkeys(keys, 0)
            while not stop.is_set():
                found = backend.get_many("words", keys)
                assert found.keys() == newest.keys()
                for key, value in found.items():
                    assert int(value[:12]) >= newest[key]
                    newest[key] = int(value[:12])

        def scan() -> None:
            while not stop.is_set():
                assert {key for key, _ in backend.scan("words")} == set(keys)

        def compact() -> None:
            while not stop.is_set():
                backend.compact()
                backend.namespaces()

        def write_then_stop() -> None:
            try:
                in_threads(lambda: write(keys[:15], 1), lambda: write(keys[15:], 2))
            finally:
                stop.set()

        in_threads(write_then_stop, read, read, scan, compact)
        assert list(backend.verify()) == []


def test_a_scan_goes_on_after_its_segments_were_retired(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), LogOptions(segment_bytes=16 << 10)) as backend:
        for i in range(40):
            backend.put_many("words", {b"key-%02d" % i: b"old" * 300})
        scan = backend.scan("words")
        first = next(scan)
        for i in range(40):
            backend.put_many("words", {b"key-%02d" % i: b"new" * 300})
        backend.compact()
        for i in range(40):  # into recycled files, if the scan did not hold them
            backend.put_many("words", {b"key-%02d" % i: b"newer" * 300})
        assert dict([first, *scan]) == {b"key-%02d" % i: b"old" * 300 for i in range(40)}


def test_reading_a_version_that_is_truncated_meanwhile_is_right_or_says_so(tmp_path: Path) -> None:
    stop = threading.Event()
    with LogBackend(str(tmp_path / "log"), BUSY) as backend:
        keys = [b"key-%d" % i for i in range(6)]
        for version in range(1, 6):
            backend.commit("store", version, dict.fromkeys(keys, b"%d" % version * 100))

        def read() -> None:
            while not stop.is_set():
                version = backend.versions("store")[-1].version - 3
                try:
                    found = backend.get_many("store", keys, version=version)
                except CkptError:
                    continue
                assert found == dict.fromkeys(keys, b"%d" % version * 100)

        def write() -> None:
            try:
                for version in range(6, 200):
                    backend.commit("store", version, dict.fromkeys(keys, b"%d" % version * 100))
                    backend.truncate("store", version - 2)
                    if version % 10 == 0:
                        backend.compact()
            finally:
                stop.set()

        in_threads(write, read, read)


def test_a_second_writer_is_refused_in_this_process(tmp_path: Path) -> None:
    with (
        LogBackend(str(tmp_path / "log")) as first,
        pytest.raises(BackendUnavailableError, match=r"another writer .* has log://.* open; .*mode=read"),
    ):
        LogBackend(first.address.removeprefix("log://"))


def test_a_second_writer_is_refused_in_another_process(tmp_path: Path) -> None:
    code = "import sys, ckpt; ckpt.open_backend(sys.argv[1])"
    with LogBackend(str(tmp_path / "log")) as first:
        ran = subprocess.run(
            [sys.executable, "-c", code, first.address], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1
        assert "another writer (process" in ran.stderr
        first.put_many("words", {b"a": b"1"})
        assert first.get_many("words", [b"a"]) == {b"a": b"1"}


def test_a_process_that_ends_without_closing_ends_quietly(tmp_path: Path) -> None:
    code = """
import sys, ckpt
backend = ckpt.open_backend(sys.argv[1])
for i in range(200):
    backend.put_many("words", {b"%d" % (i % 9): b"v" * 900})
backend.compact()
scan = backend.scan("words")
next(scan)
backend.compact()
"""
    address = f"log://{tmp_path}/log?segment_bytes=16KiB&recent_records=20"
    ran = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    with LogBackend(str(tmp_path / "log")) as backend:
        assert len(dict(backend.scan("words"))) == 9


def test_writes_that_come_while_the_log_is_closed_are_durable_or_refused(tmp_path: Path) -> None:
    acknowledged: dict[bytes, bytes] = {}
    backend = LogBackend(str(tmp_path / "log"), LogOptions(segment_bytes=16 << 10))
    started = threading.Barrier(5)

    def write(number: int) -> None:
        started.wait(timeout=30)
        for i in range(10_000):
            try:
                backend.put_many("words", {b"%d-%d" % (number, i): b"v" * 100})
            except BackendUnavailableError:
                return
            acknowledged[b"%d-%d" % (number, i)] = b"v" * 100

    def close() -> None:
        started.wait(timeout=30)
        backend.close()

    in_threads(close, *[lambda n=n: write(n) for n in range(4)])
    with LogBackend(str(tmp_path / "log")) as again:
        assert again.get_many("words", list(acknowledged)) == acknowledged
