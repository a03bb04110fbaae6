"""Who reads a log without its index sees the same, whatever was collected, truncated or expired."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import ckpt
from ckpt.contract.backend import Backend
from ckpt.testing import ManualClock, backend_machine, observe
from ckpt_backends.log import LogBackend, LogOptions
from tests.effort import effort

SMALL = LogOptions(segment_bytes=16 << 10, recent_records=100_000)
TINY = "segment_bytes=16KiB&recent_records=5"


def open_without_index(directory: str) -> Backend:
    path = os.path.join(directory, "log")
    if os.path.exists(f"{path}/MANIFEST"):
        os.unlink(f"{path}/MANIFEST")
        shutil.rmtree(f"{path}/index")
    return ckpt.open_backend(f"log://{path}?{TINY}")


class TestLogWithoutIndexMachine(backend_machine(open_without_index, max_examples=effort(15, 300), steps=40)):
    pass


def same_without_index(backend: LogBackend, copy: Path, clock: ManualClock | None = None) -> bool:
    """Whether a copy of the files, as they are now and without the index, shows the same."""
    with backend._maintenance.paused():
        shutil.copytree(backend.address.removeprefix("log://"), copy)
    shutil.rmtree(copy / "index")
    (copy / "MANIFEST").unlink(missing_ok=True)
    seams = {} if clock is None else {"clock": clock}
    try:
        with LogBackend(str(copy), SMALL, **seams) as without:
            assert list(without.verify()) == []
            return observe(without) == observe(backend)
    finally:
        shutil.rmtree(copy)


def filler(backend: Backend, count: int = 2) -> None:
    """Enough to begin new segments."""
    for i in range(count):
        backend.put_many("filler", {b"filler": b"%d" % i * 11_000})


def test_deletes_stay_deletes_when_their_segments_are_collected(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        backend.put_many("words", {b"kept-%d" % i: b"v" * 700 for i in range(14)})
        backend.put_many("words", {b"gone-%d" % i: b"v" * 10 for i in range(14)})
        filler(backend)
        backend.delete_many("words", [b"gone-%d" % i for i in range(14)])
        filler(backend)
        for _ in range(4):
            backend.compact()
            filler(backend)
            assert dict(backend.scan("words")).keys() == {b"kept-%d" % i for i in range(14)}
            assert same_without_index(backend, tmp_path / "copy")


def test_what_expired_stays_away_when_its_segment_is_collected(tmp_path: Path) -> None:
    clock = ManualClock()
    with LogBackend(str(tmp_path / "log"), SMALL, clock=clock) as backend:
        backend.put_many("words", {b"key": b"for ever", **{b"pad-%d" % i: b"p" * 700 for i in range(14)}})
        filler(backend)
        backend.put_many("words", {b"key": b"for a while"}, ttl_s=10)
        filler(backend)
        clock.advance(11)
        for _ in range(3):
            backend.compact()
            filler(backend)
            assert backend.get_many("words", [b"key"]) == {}
            assert same_without_index(backend, tmp_path / "copy", clock)


def test_what_expires_later_is_moved_with_its_expiry(tmp_path: Path) -> None:
    clock = ManualClock()
    with LogBackend(str(tmp_path / "log"), SMALL, clock=clock) as backend:
        backend.put_many("words", {b"key": b"for a while"}, ttl_s=10)
        filler(backend)
        backend.compact()
        assert backend.get_many("words", [b"key"]) == {b"key": b"for a while"}
        clock.advance(11)
        assert backend.get_many("words", [b"key"]) == {}
        assert backend.namespaces() == ["filler"]


def test_branches_keep_what_they_need_through_truncation_and_collection(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        backend.commit("store", 1, {b"%d" % i: b"one" * 100 for i in range(20)}, commit_id="one")
        filler(backend)
        backend.commit("store", 2, {b"0": b"two"}, [b"%d" % i for i in range(10, 20)], commit_id="two")
        backend.commit("store", 2, {b"0": b"other"}, [b"1"], base="one", commit_id="other")
        backend.commit("store", 3, {b"1": b"three"}, base="other", commit_id="three")
        backend.commit("store", 3, {b"2": b"left"}, base="two", commit_id="left")
        for keep_from in (1, 2, 2, 3, 3):
            before = observe(backend).versioned["store"][1]
            backend.truncate("store", keep_from)
            filler(backend)
            backend.compact()
            after = observe(backend).versioned["store"][1]
            assert after == {commit_id: before[commit_id] for commit_id in after}
            assert same_without_index(backend, tmp_path / "copy")
        assert set(after) == {"three", "left"}


def test_a_namespace_of_deletes_shrinks_to_its_floor(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        for version in range(1, 60):
            backend.commit(
                "store",
                version,
                {b"%d" % version: b"v" * 900, b"same": b"%d" % version},
                [b"%d" % (version - 1)],
                commit_id=f"c{version}",
            )
            if version > 2:
                backend.truncate("store", version - 1)
            if version % 10 == 0:
                filler(backend)
                backend.compact()
                assert same_without_index(backend, tmp_path / "copy")
        assert dict(backend.scan("store")) == {b"59": b"v" * 900, b"same": b"59"}
        assert backend.stats().details["segments"] < 6


def test_dropped_namespaces_do_not_come_back(tmp_path: Path) -> None:
    with LogBackend(str(tmp_path / "log"), SMALL) as backend:
        for number in range(6):
            backend.put_many("words", {b"%d" % number: b"v" * 3000})
            backend.drop("words")
            backend.commit("words", 1, {b"%d" % number: b"v" * 3000}, commit_id=f"c{number}")
            backend.drop("words")
            filler(backend)
            backend.compact()
            assert backend.namespaces() == ["filler"]
            assert same_without_index(backend, tmp_path / "copy")
        backend.put_many("words", {b"new": b"1"})
        assert dict(backend.scan("words")) == {b"new": b"1"}
