"""An object store that fails: nothing acknowledged is lost, nothing is there by halves or invented."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.errors import BackendUnavailableError, CkptError, CorruptRecordError
from ckpt.testing import FaultyDisk, each_fault
from ckpt.testing.harness import numbered

OPTIONS = {"segment_bytes": 4096, "small_segments": 3, "gc": False, "grace_s": 0, "retry_s": 0}


def pair(number: int) -> dict[bytes, bytes]:
    return {b"%d-left" % number: b"x" * 60, b"%d-right" % number: b"y" * 60}


def step(backend: Backend, number: int) -> None:
    """Every step has an effect of its own, which can be looked for later."""
    if number % 3 == 0:
        backend.put_many("words", pair(number))
    elif number % 3 == 1:
        backend.commit(f"store-{number}", 1, pair(number), commit_id="c")
    else:
        backend.write_many({"words": ckpt.Changes(pair(number), deletes=[b"never there"])})


def effect(backend: Backend, number: int) -> dict[bytes, bytes]:
    namespace = f"store-{number}" if number % 3 == 1 else "words"
    return backend.get_many(namespace, pair(number))


def run(objects: Any) -> set[int]:
    """Twelve steps and two compactions on one handle; which steps were acknowledged."""
    acknowledged: set[int] = set()
    with contextlib.suppress(CkptError):
        backend = objects.open(**OPTIONS)
        try:
            for number in range(12):
                with contextlib.suppress(CkptError):
                    step(backend, number)
                    acknowledged.add(number)
                if number in (6, 10):
                    with contextlib.suppress(CkptError):
                        backend.compact()
        finally:
            backend.close()
    return acknowledged


def check(objects: Any, acknowledged: set[int], story: str) -> None:
    with objects.open(**OPTIONS) as backend:
        for number in range(12):
            found = effect(backend, number)
            allowed = [pair(number)] if number in acknowledged else [{}, pair(number)]
            assert found in allowed, f"step {number} after {story}"
        assert list(backend.verify()) == [], story
        backend.put_many("after", {b"key": b"value"})
        backend.compact()
    with objects.open(mode="read") as again:
        assert again.get_many("after", [b"key"]) == {b"key": b"value"}
        assert all(effect(again, number) == pair(number) for number in acknowledged), story


class Failing:
    """The n-th request fails, before or after it was done; if it lasts, so does every later one."""

    def __init__(self, objects: Any, nth: int, *, done: bool, lasts: bool) -> None:
        self.count = 0
        self.nth, self.lasts = nth, lasts
        if done:
            objects.after = self
        else:
            objects.before = self

    def __call__(self, kind: str, path: str) -> None:
        self.count += 1
        if self.count == self.nth or (self.lasts and self.count > self.nth):
            raise TimeoutError("the store did not answer")


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_every_request_fails_once(make_objects: Callable[[], Any], done: bool, lasts: bool) -> None:
    counting = make_objects()
    assert run(counting) == set(range(12))
    total = sum(counting.counts.values())
    assert total > 50
    for nth in range(1, total + 1):
        objects = make_objects()
        Failing(objects, nth, done=done, lasts=lasts)
        acknowledged = run(objects)
        objects.before = objects.after = lambda kind, path: None
        check(objects, acknowledged, f"request {nth} failed")


def test_a_failure_is_retried_and_nobody_notices(make_objects: Callable[[], Any]) -> None:
    objects = make_objects()
    with objects.open(retry_s=30) as backend:
        for done in (False, True):
            Failing(objects, 1, done=done, lasts=False)
            backend.put_many("words", {b"be": b"%d" % done})
            Failing(objects, 1, done=done, lasts=False)
            assert backend.get_many("words", [b"be"]) == {b"be": b"%d" % done}
        assert len(objects.names("segments")) == 2


def test_work_goes_on_when_the_store_is_back(objects: Any) -> None:
    with objects.open() as backend:
        backend.put_many("words", {b"before": b"1"})
        Failing(objects, 1, done=False, lasts=True)
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match=r"fsspec\+s3://bucket/place.*did not answer"):
                backend.put_many("words", {b"during": b"2"})
            with pytest.raises(BackendUnavailableError):
                backend.get_many("words", [b"before"])
        objects.before = lambda kind, path: None
        assert backend.get_many("words", [b"before", b"during"]) == {b"before": b"1"}
        backend.put_many("words", {b"after": b"3"})
        assert dict(backend.scan("words")) == {b"before": b"1", b"after": b"3"}


def test_a_lost_answer_is_not_taken_for_another_writer(objects: Any) -> None:
    """The object was created, the answer was lost: it is recognised by its bytes, also when refused later."""
    with objects.open() as backend:
        backend.put_many("words", {b"first": b"1"})
        Failing(objects, 1, done=True, lasts=False)
        backend.commit("store", 1, {b"a": b"1"}, commit_id="only-once")
        assert [commit.id for commit in backend.versions("store")] == ["only-once"]
        assert len(objects.names("segments")) == 2


def test_a_wrong_bucket_or_a_refusal_is_told_at_once(objects: Any) -> None:
    def refuse(kind: str, path: str) -> None:
        raise PermissionError("access denied")

    objects.before = refuse
    with pytest.raises(BackendUnavailableError, match="check the credentials"):
        objects.open(retry_s=3600)


@pytest.mark.parametrize("error", [FileNotFoundError("NoSuchBucket"), OSError("AccessDenied")])
def test_a_store_that_takes_no_object_says_why(objects: Any, error: OSError) -> None:
    def refuse(kind: str, path: str) -> None:
        if kind == "put":
            raise error

    objects.before = refuse
    with objects.open() as backend:
        with pytest.raises(BackendUnavailableError, match=str(error)):
            backend.put_many("words", {b"be": b"1"})
        objects.before = lambda kind, path: None
        backend.put_many("words", {b"be": b"2"})
        assert dict(backend.scan("words")) == {b"be": b"2"}


def small_store(objects: Any) -> dict[bytes, bytes]:
    with objects.open(**OPTIONS) as backend:
        for number in range(4):
            backend.put_many("words", pair(number))
        return dict(backend.scan("words"))


@pytest.mark.parametrize("with_index", [True, False])
def test_every_flipped_byte_is_reported_or_harmless(
    make_objects: Callable[[], Any], with_index: bool
) -> None:
    objects = make_objects()
    expected = small_store(objects)
    if not with_index:
        objects.objects = {n: d for n, d in objects.objects.items() if "/segments/" in n}
    sound = dict(objects.objects)
    for name, data in sound.items():
        for at in range(0, len(data), 3):
            changed = bytearray(data)
            changed[at] ^= 0x10
            objects.objects = {**sound, name: bytes(changed)}
            with contextlib.suppress(CorruptRecordError), objects.open(mode="read") as reader:
                for key, value in expected.items():
                    with contextlib.suppress(CorruptRecordError):
                        assert reader.get_many("words", [key]) == {key: value}, (name, at)
                with contextlib.suppress(CorruptRecordError):
                    assert dict(reader.scan("words")) == expected, (name, at)


def test_a_lost_object_is_reported_and_repair_saves_the_rest(objects: Any) -> None:
    small_store(objects)
    del objects.objects[objects.names("segments")[1]]
    with objects.open(**OPTIONS) as backend:
        with pytest.raises(CorruptRecordError, match="gone"):
            backend.get_many("words", pair(1))
        assert backend.get_many("words", pair(2)) == pair(2)
        assert len(list(backend.verify())) == 1
        backend.repair()
        assert list(backend.verify()) == []
        assert sorted(dict(backend.scan("words"))) == sorted({**pair(0), **pair(2), **pair(3)})
    with objects.open(mode="read") as reader:
        assert reader.get_many("words", [*pair(0), *pair(1)]) == pair(0)


def test_a_damaged_object_is_quarantined(objects: Any) -> None:
    small_store(objects)
    name = objects.names("segments")[2]
    objects.objects[name] = objects.objects[name].replace(b"x" * 60, b"x" * 59 + b"z")
    with objects.open(**OPTIONS) as backend:
        with pytest.raises(CorruptRecordError, match="ckpt verify"):
            backend.get_many("words", [b"2-left"])
        assert backend.get_many("words", [b"2-right"]) == {b"2-right": b"y" * 60}
        report = backend.repair()
        assert [bad.key for bad in report.quarantined] == [b"2-left"]
        assert report.quarantine == "fsspec+s3://bucket/place/quarantine"
        assert len(objects.names("quarantine")) == 1
        assert list(backend.verify()) == []


def test_a_damaged_index_is_rebuilt(objects: Any) -> None:
    expected = small_store(objects)
    for folder in ("index", "manifests"):
        for name in objects.names(folder):
            objects.objects[name] = objects.objects[name][:-9] + b"damaged!!"
    with objects.open(**OPTIONS) as backend:
        assert dict(backend.scan("words")) == expected
        backend.put_many("words", {b"more": b"1"})
    with objects.open(mode="read") as reader:
        assert dict(reader.scan("words")) == {**expected, b"more": b"1"}
        assert list(reader.verify()) == []


def test_a_batch_over_several_objects_is_whole_or_not_at_all(make_objects: Callable[[], Any]) -> None:
    big = {b"%d" % n: bytes([n]) * (20 << 20) for n in range(5)}
    for failing in (1, 2, 3):
        objects = make_objects()
        with objects.open() as backend:
            backend.put_many("words", {b"first": b"1"})
            Failing(objects, failing, done=False, lasts=True)
            with pytest.raises(BackendUnavailableError):
                backend.commit("store", 1, big)
            objects.before = lambda kind, path: None
            assert backend.versions("store") == []
            backend.commit("store", 1, {b"small": b"1"})
        with objects.open(mode="read") as reader:
            assert dict(reader.scan("store")) == {b"small": b"1"}
            assert list(reader.verify()) == []


def test_what_an_interrupted_creation_left_aside_is_invisible_and_removed(tmp_path: Path) -> None:
    address = f"fsspec+file://{tmp_path}/x"
    with ckpt.open_backend(address) as backend:
        backend.put_many("words", numbered(3))
    old = tmp_path / "x" / "segments" / "000000000002.seg.tmp-1-abcd"
    young = tmp_path / "x" / "segments" / "000000000002.seg.tmp-2-abcd"
    for path in (old, young):
        path.write_bytes(b"half an obj")
    os.utime(old, (time.time() - 3600,) * 2)
    with ckpt.open_backend(f"{address}?mode=read") as reader:
        assert dict(reader.scan("words")) == numbered(3)
    assert old.exists()
    with ckpt.open_backend(address) as backend:
        backend.put_many("words", numbered(5))
        assert dict(backend.scan("words")) == numbered(5)
    assert not old.exists()
    assert young.exists()


def test_local_files_are_written_aside_synced_and_linked(tmp_path: Path) -> None:
    """A full disk or an I/O error at any operation: the write raises, or is there after a reopen."""

    def scenario(disk: FaultyDisk, folder: Path) -> set[int]:
        acknowledged: set[int] = set()
        with contextlib.suppress(CkptError):
            backend = ckpt.open_backend(f"fsspec+file://{folder}", disk=disk, retry_s=0, gc=False)
            for number in range(4):
                with contextlib.suppress(CkptError):
                    step(backend, number)
                    acknowledged.add(number)
            with contextlib.suppress(CkptError):
                backend.close()
        return acknowledged

    for count, fault in enumerate(each_fault(lambda disk: scenario(disk, tmp_path / "counted"))):
        folder = tmp_path / str(count)
        acknowledged = scenario(FaultyDisk(fault), folder)
        with ckpt.open_backend(f"fsspec+file://{folder}") as backend:
            for number in range(4):
                allowed = [pair(number)] if number in acknowledged else [{}, pair(number)]
                assert effect(backend, number) in allowed, str(fault)
            backend.put_many("after", {b"key": b"value"})
        assert not [path for path in folder.rglob("*") if ".tmp-" in path.name and fault.kind != "unlink"]


@pytest.mark.parametrize("stale_s", [0, 3600])
@pytest.mark.parametrize("owns", [True, False])
def test_what_could_not_be_stored_is_not_read(objects: Any, owns: bool, stale_s: float) -> None:
    def refuse(kind: str, path: str) -> None:
        if kind == "put":
            raise ConnectionError("the line is dead")

    with objects.open(stale_s=stale_s) as backend:
        if owns:
            backend.claim("words")
        backend.put_many("words", {b"be": b"old"})
        objects.before = refuse
        with pytest.raises(BackendUnavailableError):
            backend.put_many("words", {b"be": b"new", b"or": b"new"})
        assert backend.get_many("words", [b"be", b"or"]) == {b"be": b"old"}
        assert dict(backend.scan("words")) == {b"be": b"old"}
        objects.before = lambda kind, path: None
        assert backend.get_many("words", [b"be", b"or"]) == {b"be": b"old"}
        backend.put_many("words", {b"be": b"newer"})
    with objects.open() as backend:
        assert dict(backend.scan("words")) == {b"be": b"newer"}


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "give this user access"),
    ],
)
def test_a_disk_that_will_not_mend_by_itself_is_told_at_once(
    tmp_path: Path, number: int, advice: str
) -> None:
    class RefusingDisk(Disk):
        refusals = 0

        def pwrite(self, fd: int, buffers: Any, offset: int) -> None:
            self.refusals += 1
            raise OSError(number, os.strerror(number))

    disk = RefusingDisk()
    with ckpt.open_backend(f"fsspec+file://{tmp_path}/x", disk=disk, retry_s=3600) as backend:
        with pytest.raises(BackendUnavailableError, match=advice):
            backend.put_many("words", {b"be": b"1"})
        assert disk.refusals == 1
        assert backend.get_many("words", [b"be"]) == {}
