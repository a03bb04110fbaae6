"""What a real S3 service is asked, counted on the wire: requests depend on batches, not on keys."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ckpt
from ckpt.dev.s3 import ACCESS_KEY, SECRET_KEY
from ckpt.testing.harness import numbered
from ckpt_backends.objects.backend import FsspecBackend

CREDENTIALS = {"fs.key": ACCESS_KEY, "fs.secret": SECRET_KEY}
Open = Callable[..., FsspecBackend]


class Wire:
    """Counts the HTTP requests of a handle, by what they ask of S3, and the bytes that come back."""

    def __init__(self, backend: FsspecBackend) -> None:
        self.asked: Counter[str] = Counter()
        self.received_bytes = 0
        events = backend._requests._driver._fs.s3.meta.events
        events.register("before-send.s3", self._note)
        events.register("after-call.s3.GetObject", self._weigh)

    def _note(self, request: Any, event_name: str, **_: Any) -> None:
        self.asked[event_name.rpartition(".")[2]] += 1

    def _weigh(self, parsed: dict[str, Any], **_: Any) -> None:
        self.received_bytes += parsed.get("ContentLength", 0)

    def since(self) -> Counter[str]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, Counter()
        return asked


@pytest.fixture
def open_place(dev_server: Callable[[str], str]) -> Iterator[Open]:
    """Opens handles on one place in the bucket, of this test alone."""
    base, _, query = dev_server("s3").partition("?")
    place = f"{base}/requests-{secrets.token_hex(6)}"
    handles = []

    def open_one(**options: Any) -> FsspecBackend:
        handles.append(ckpt.open_backend(f"{place}?{query}", **options))
        return handles[-1]

    yield open_one
    for handle in handles:
        handle.close()


@pytest.mark.parametrize("keys", [1, 100, 1000])
def test_a_batch_is_one_put_however_many_keys(open_place: Open, keys: int) -> None:
    backend = open_place()
    backend.put_many("words", {b"first": b"1"})
    backend.commit("store", 1, {b"first": b"1"})
    wire = Wire(backend)
    backend.put_many("words", numbered(keys))
    assert wire.since() == {"PutObject": 1}
    backend.commit("store", 2, numbered(keys))
    assert wire.since() == {"PutObject": 1}
    backend.delete_many("words", numbered(keys))
    assert wire.since() == {"PutObject": 1}


def test_two_hundred_stores_committing_at_once_are_a_handful_of_puts(open_place: Open) -> None:
    backend = open_place()
    backend.put_many("words", {b"first": b"1"})
    wire = Wire(backend)
    start = threading.Barrier(200)

    def commit(number: int) -> None:
        start.wait()
        backend.commit(f"store-{number}", 1, numbered(50))

    with ThreadPoolExecutor(200) as pool:
        list(pool.map(commit, range(200)))
    assert wire.since()["PutObject"] <= 20
    assert len(backend.namespaces()) == 201
    with ckpt.open_backend(backend.address, **CREDENTIALS) as again:
        assert all(dict(again.scan(f"store-{n}")) == numbered(50) for n in range(0, 200, 33))


def test_reads_of_ones_own_ask_nothing_and_others_ask_once(open_place: Open) -> None:
    owner = open_place()
    owner.claim("words")
    owner.put_many("words", numbered(100))
    wire = Wire(owner)
    assert owner.get_many("words", [b"key-000007", b"missing"]) == {b"key-000007": b"v-7"}
    assert wire.since() == {}
    other = open_place(mode="read")
    assert len(other.get_many("words", numbered(100))) == 100
    wire = Wire(other)
    assert other.get_many("words", [b"key-000007", b"missing"]) == {b"key-000007": b"v-7"}
    assert wire.since() == {"HeadObject": 1}


def test_a_few_keys_are_found_without_reading_the_namespace(open_place: Open) -> None:
    with open_place(gc=False) as writer:
        for part in range(20):
            writer.put_many("words", {b"%d-%d" % (part, i): b"x" * 1000 for i in range(100)})
    reader = open_place(mode="read")
    wire = Wire(reader)
    assert len(reader.get_many("words", [b"7-7", b"13-3"])) == 2
    assert wire.since()["GetObject"] <= 2
    assert wire.received_bytes < 300_000  # of two million


def test_what_is_retired_is_deleted_by_the_thousand(open_place: Open) -> None:
    backend = open_place(grace_s=0, gc=False, small_segments=10)
    for number in range(60):
        backend.put_many("words", {b"%d" % number: b"x"})
    wire = Wire(backend)
    backend.compact()
    asked = wire.since()
    assert asked["DeleteObjects"] <= 6
    assert asked["DeleteObject"] == 0
    assert len(backend._requests.list("segments")) < 10
    assert len(dict(backend.scan("words"))) == 60


def test_opening_asks_a_few_times_whatever_the_store_holds(open_place: Open) -> None:
    counts = []
    for size in (5, 150):
        with open_place(gc=False) as backend:
            for number in range(size):
                backend.put_many("words", {b"%d" % number: b"x"})
        with open_place() as backend:
            counts.append(sum(backend._requests.counts.values()))
    assert max(counts) <= 12


def test_objects_that_come_in_pages_are_all_listed(open_place: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_place()
    for number in range(7):
        backend.put_many("words", {b"%d" % number: b"x"})
    filesystem = backend._requests._driver._fs
    ask = filesystem.call_s3

    def ask_for_little(method: str, **arguments: Any) -> Any:
        return ask(method, **({"MaxKeys": 3} if method == "list_objects_v2" else {}), **arguments)

    monkeypatch.setattr(filesystem, "call_s3", ask_for_little)
    wire = Wire(backend)
    assert len(backend._requests.list("segments")) == 7
    assert wire.since() == {"ListObjectsV2": 3}


def test_a_large_value_is_uploaded_in_parts_and_only_if_the_name_is_free(open_place: Open) -> None:
    backend, other = open_place(), open_place()
    backend.put_many("words", {b"first": b"1"})
    wire = Wire(backend)
    large = secrets.token_bytes(1 << 20) * 40
    backend.put_many("words", {b"large": large})
    asked = wire.since()
    assert asked["UploadPart"] == 3 + 1  # one to try the store out
    assert asked["PutObject"] == 0
    assert other.get_many("words", [b"large"]) == {b"large": large}
    # Two that write at once: both know the same last number, and one of them must come second.
    both = threading.Barrier(2)

    def put(handle: FsspecBackend, key: bytes) -> None:
        both.wait()
        handle.put_many("words", {key: large})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, (backend, other), (b"one", b"two")))
    with ckpt.open_backend(backend.address, **CREDENTIALS) as again:
        assert sorted(key for key, _ in again.scan("words")) == [b"first", b"large", b"one", b"two"]
        assert list(again.verify()) == []


def test_a_store_that_ignores_the_condition_for_parts_gets_one_put(
    open_place: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_place()
    backend.put_many("words", {b"first": b"1"})
    filesystem = backend._requests._driver._fs
    ask = filesystem.call_s3

    def ask_without_condition(method: str, **arguments: Any) -> Any:
        if method == "complete_multipart_upload":
            arguments.pop("IfNoneMatch", None)
        return ask(method, **arguments)

    monkeypatch.setattr(filesystem, "call_s3", ask_without_condition)
    wire = Wire(backend)
    backend.put_many("words", {b"large": bytes(20 << 20)})
    assert wire.since()["PutObject"] == 1
