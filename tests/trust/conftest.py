"""Small logs that hold a bit of everything, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckpt.testing import observe
from ckpt.testing.survival import Observation
from ckpt_backends.log import LogBackend, LogOptions

SMALL = LogOptions(segment_bytes=16 << 10, recent_records=100_000)


@dataclass(frozen=True)
class ClosedLog:
    """A cleanly closed log: its files, and what a reader sees."""

    files: dict[str, bytes]
    """By relative path."""
    seen: Observation

    def write_to(self, folder: Path) -> None:
        """Make the folder hold exactly these files."""
        for path in ("segments", "index"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path in [p for p in folder.rglob("*") if p.is_file()]:
            if str(path.relative_to(folder)) not in self.files:
                path.unlink()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


def fill(backend: LogBackend) -> None:
    """Plain and versioned namespaces, overwritten and deleted keys, a branch, two segments, two runs."""
    backend.put_many("words", {b"key-%d" % i: b"value %d " % i * (i + 1) for i in range(6)})
    backend.commit("store", 1, {b"a": b"1", b"b": b"one"}, commit_id="one")
    backend.compact()
    backend.put_many("words", {b"key-1": b"newer", b"other": b"o" * 20})
    backend.delete_many("words", [b"key-2"])
    backend.commit("store", 2, {b"a": b"2", b"c": b"two" * 9}, [b"b"], commit_id="two")
    backend.commit("store", 3, {b"a": b"3"}, base="one", commit_id="branch")
    backend.put_many("bulk", {b"bulk": b"b" * 11_000})
    backend.put_many("words", {b"last": b"in the second segment"})
    backend.commit("store", 4, {b"d": b"4"}, base="two", commit_id="four")


@pytest.fixture(scope="session")
def closed_log(tmp_path_factory: pytest.TempPathFactory) -> ClosedLog:
    folder = tmp_path_factory.mktemp("closed") / "log"
    with LogBackend(str(folder), SMALL) as backend:
        fill(backend)
        seen = observe(backend)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return ClosedLog({n: d for n, d in files.items() if "spare-" not in n}, seen)


@pytest.fixture
def small_log(tmp_path: Path) -> Iterator[LogBackend]:
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        yield backend
