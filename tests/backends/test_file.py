"""The file backend: the contract at both durability levels, and what is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ckpt
from ckpt.contract.addresses import Durability
from ckpt.contract.backend import Backend
from ckpt.errors import BackendUnavailableError, ConfigError, FencedError
from ckpt.testing import BackendConformance, ManualClock, backend_machine
from ckpt_backends.file.backend import FileBackend
from ckpt_backends.file.records import encode_note


class TestFile(BackendConformance):
    scheme = "file"
    durability = "fsync"

    def open_backend(self) -> Backend:
        return ckpt.open_backend(f"file://{self.directory}?durability={self.durability}", clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestFileInPageCache(TestFile):
    durability = "os"


class TestFileMachine(
    backend_machine(lambda directory: ckpt.open_backend(f"file://{directory}?durability=os"))
):
    pass


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'durability'"):
        ckpt.open_backend(f"file://{tmp_path}?durabilty=os")
    with pytest.raises(ConfigError, match="durability is one of"):
        ckpt.open_backend(f"file://{tmp_path}?durability=maybe")
    with pytest.raises(ConfigError, match="fsync, os"):
        ckpt.open_backend(f"file://{tmp_path}?durability=queued")
    with pytest.raises(ConfigError, match="absolute"):
        ckpt.open_backend("file://relative/path")
    assert not list(tmp_path.iterdir())


def test_the_address_opens_the_store_again(tmp_path: Path) -> None:
    place = tmp_path / "with space and é and %41"
    with FileBackend(str(place), durability=Durability.OS) as backend:
        backend.put_many("words", {b"be": b"1"})
    with ckpt.open_backend(backend.address) as again:
        assert again.get_many("words", [b"be"]) == {b"be": b"1"}
        assert again.address == backend.address


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(ConfigError, match=r"thesis\.tex.*choose an empty directory"):
        FileBackend(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    FileBackend(str(tmp_path)).close()
    (tmp_path / "ckpt-file").write_bytes(encode_note({"format": "ckpt-file", "version": 2}))
    with pytest.raises(ConfigError, match="cannot read"):
        FileBackend(str(tmp_path))


def test_a_store_that_went_away_is_not_a_store_without_keys(tmp_path: Path) -> None:
    """An unmounted disk must never look like missing keys: a blank state would replace the good one."""
    place = tmp_path / "mounted"
    with FileBackend(str(place)) as backend:
        backend.put_many("words", {b"be": b"1"})
        backend.commit("store", 1, {b"a": b"1"})
        place.rename(tmp_path / "elsewhere")
        place.mkdir()
        for call in (
            lambda: backend.get_many("words", [b"be"]),
            lambda: backend.scan("words"),
            lambda: backend.get_many("store", [b"a"]),
            lambda: backend.get_many("store", [b"a"], version=1),
            lambda: backend.versions("store"),
            backend.namespaces,
            lambda: backend.put_many("words", {b"be": b"2"}),
            lambda: backend.commit("store", 2, {}),
            lambda: list(backend.verify()),
        ):
            with pytest.raises(BackendUnavailableError):
                call()
        assert not list(place.iterdir())
        place.rmdir()
        (tmp_path / "elsewhere").rename(place)
        assert backend.get_many("words", [b"be"]) == {b"be": b"1"}


def test_leftovers_are_removed_only_when_nobody_can_own_them(tmp_path: Path) -> None:
    leftover = tmp_path / "aside" / "of-a-dead-process-0"
    with FileBackend(str(tmp_path)) as first:
        leftover.write_bytes(b"half")
        with FileBackend(str(tmp_path)):
            assert leftover.exists()
        first.put_many("words", {b"be": b"1"})
    with FileBackend(str(tmp_path)) as again:
        assert not leftover.exists()
        assert again.get_many("words", [b"be"]) == {b"be": b"1"}


def test_file_names_differ_by_more_than_case(tmp_path: Path) -> None:
    keys = [bytes([a, b]) for a in b"aAbB\xe9\xc9" for b in b"aAbB\xe9\xc9"]
    with FileBackend(str(tmp_path)) as backend:
        backend.put_many("words", dict.fromkeys(keys, b"1"))
    names = [path.name for path in (tmp_path / "spaces").rglob("keys/*")]
    assert len({name.lower() for name in names}) == len(keys)
    assert all(name.isascii() and len(name) <= 255 for name in names)


def test_expired_keys_leave_the_disk_when_compacted(tmp_path: Path) -> None:
    clock = ManualClock()
    with FileBackend(str(tmp_path), clock=clock) as backend:
        backend.put_many("words", {b"short": b"1" * 1000}, ttl_s=5)
        backend.put_many("words", {b"ever": b"1"})
        clock.advance(10)
        report = backend.compact()
        assert report.bytes_before - report.bytes_after > 1000
        assert len(list((tmp_path / "spaces").rglob("keys/*"))) == 1
        assert dict(backend.scan("words")) == {b"ever": b"1"}


def test_a_scan_of_a_long_chain_needs_few_descriptors(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path), durability=Durability.OS) as backend:
        for version in range(1, 101):
            backend.commit("store", version, {b"%d" % version: b"1"})
        before = len(os.listdir("/proc/self/fd"))
        scan = backend.scan("store")
        assert len(os.listdir("/proc/self/fd")) - before <= 64
        backend.truncate("store", 100)
        assert len(dict(scan)) == 100


def test_unfinished_scans_keep_no_descriptors(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path)) as backend:
        backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            backend.scan("store")
            next(backend.scan("store"))
        assert len(os.listdir("/proc/self/fd")) == before


WRITER = """
import sys
from ckpt.errors import FencedError
from ckpt_backends.file.backend import FileBackend

backend = FileBackend(sys.argv[1])
print(backend.claim("words"), flush=True)
for line in sys.stdin:
    try:
        backend.put_many("words", {b"be": line.strip().encode()})
        print("written", flush=True)
    except FencedError:
        print("fenced", flush=True)
"""


def test_a_claim_fences_another_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask(line: str) -> str:
            print(line, file=other.stdin, flush=True)
            return other.stdout.readline().strip()

        assert other.stdout.readline() == "1\n"
        assert ask("old") == "written"
        with FileBackend(str(tmp_path)) as backend:
            with pytest.raises(FencedError):
                backend.put_many("words", {b"be": b"new"})
            assert backend.claim("words") == 2
            assert ask("stale") == "fenced"
            backend.put_many("words", {b"be": b"new"})
            assert ask("stale") == "fenced"
        other.kill()
    with FileBackend(str(tmp_path)) as backend:
        assert backend.get_many("words", [b"be"]) == {b"be": b"new"}


COMMITTER = """
import sys
from ckpt_backends.file.backend import FileBackend

me = sys.argv[2]
with FileBackend(sys.argv[1]) as backend:
    last = "root"
    for version in range(2, 12):
        delta = {b"by": me.encode(), b"v": b"%d" % version}
        last = backend.commit("store", version, delta, base=last, commit_id=f"{me}-{version}")
        assert backend.get_many("store", [b"v"], commit_id=last) == {b"v": b"%d" % version}
        if version % 4 == 0:
            backend.truncate("store", 1)
"""


def test_processes_commit_and_truncate_in_one_namespace_at_once(tmp_path: Path) -> None:
    with FileBackend(str(tmp_path)) as backend:
        backend.commit("store", 1, {b"root": b"1"}, commit_id="root")
        others = [
            subprocess.Popen([sys.executable, "-c", COMMITTER, str(tmp_path), str(number)])
            for number in range(3)
        ]
        assert [other.wait() for other in others] == [0, 0, 0]
        commits = backend.versions("store")
        assert len({commit.sequence for commit in commits}) == len(commits) == 31
        for number in range(3):
            expected = {b"root": b"1", b"by": b"%d" % number, b"v": b"11"}
            assert dict(backend.scan("store", commit_id=f"{number}-11")) == expected
        assert list(backend.verify()) == []
