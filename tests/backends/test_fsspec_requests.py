"""What an object store is asked, and how often: requests depend on batches, not on keys."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ckpt
from ckpt.testing.harness import numbered
from ckpt.types import Changes


def made(objects: Any, before: Counter[str]) -> Counter[str]:
    return Counter(objects.counts) - before


@pytest.mark.parametrize("keys", [1, 100, 10_000])
def test_a_batch_is_one_put_however_many_keys(objects: Any, keys: int) -> None:
    with objects.open() as backend:
        backend.put_many("words", {b"first": b"1"})
        before = Counter(objects.counts)
        backend.put_many("words", numbered(keys))
        assert made(objects, before) == {"put": 1}
        before = Counter(objects.counts)
        backend.delete_many("words", list(numbered(keys)))
        assert made(objects, before) == {"put": 1}


def test_two_hundred_stores_committing_at_once_are_a_handful_of_puts(objects: Any) -> None:
    with objects.open() as backend:
        backend.put_many("words", {b"first": b"1"})
        start = threading.Barrier(200)
        waiting = threading.Semaphore(0)
        before = Counter(objects.counts)

        def hold_the_first_put(kind: str, path: str) -> None:
            # A real store takes milliseconds, in which the others come along; here they are waited for.
            if kind == "put" and made(objects, before)["put"] == 1:
                for _ in range(199):
                    waiting.acquire()

        append = backend._engine.append

        def append_and_tell(*args: Any, **kwargs: Any) -> Any:
            ticket = append(*args, **kwargs)
            waiting.release()
            return ticket

        backend._engine.append = append_and_tell
        objects.before = hold_the_first_put

        def commit(number: int) -> None:
            start.wait()
            backend.commit(f"store-{number}", 1, numbered(50))

        with ThreadPoolExecutor(200) as pool:
            list(pool.map(commit, range(200)))
        assert made(objects, before)["put"] <= 3
        assert len(backend.namespaces()) == 201


def test_an_owner_reads_its_own_writes_without_a_request(objects: Any) -> None:
    with objects.open() as backend:
        backend.claim("words")
        backend.put_many("words", numbered(100))
        before = Counter(objects.counts)
        assert backend.get_many("words", [b"key-000001", b"missing"]) == {b"key-000001": b"v-1"}
        assert made(objects, before) == {}


def test_a_read_of_what_others_may_write_asks_once_unless_it_may_be_stale(objects: Any) -> None:
    with objects.open() as writer, objects.open() as fresh, objects.open(stale_s=3600) as stale:
        writer.put_many("words", {b"be": b"1"})
        assert fresh.get_many("words", [b"be"]) == {b"be": b"1"}
        before = Counter(objects.counts)
        assert fresh.get_many("words", [b"be"]) == {b"be": b"1"}
        assert made(objects, before) == {"head": 1}
        before = Counter(objects.counts)
        assert stale.get_many("words", [b"be"]) == {}
        assert made(objects, before) == {}


def test_a_few_keys_cost_a_few_objects_not_the_namespace(objects: Any) -> None:
    with objects.open(segment_bytes=1 << 14) as backend:
        for part in range(50):
            backend.put_many("words", {b"%d-%d" % (part, i): b"x" * 100 for i in range(100)})
    with objects.open(mode="read") as reader:
        before = Counter(objects.counts)
        assert reader.get_many("words", [b"7-7", b"33-3"]) == {b"7-7": b"x" * 100, b"33-3": b"x" * 100}
        assert made(objects, before)["get"] == 2
        before = Counter(objects.counts)
        reader.get_many("words", [b"7-8", b"33-4"])
        assert made(objects, before)["get"] == 0


def test_opening_does_not_depend_on_the_number_of_objects(objects: Any) -> None:
    costs = []
    for size in (10, 200):
        with objects.open(gc=False) as backend:
            for number in range(size):
                backend.put_many("words", {b"%d" % number: b"x"})
        before = Counter(objects.counts)
        with objects.open() as backend:
            assert backend.get_many("words", [b"missing"]) == {}
        costs.append(sum(made(objects, before).values()))
    assert max(costs) <= 12


def test_many_short_lives_leave_few_runs_to_read(objects: Any) -> None:
    for number in range(40):
        with objects.open() as backend:
            backend.put_many("words", {b"%d" % (number % 30): b"%d" % number})
    assert len(objects.names("index")) < 10
    before = Counter(objects.counts)
    with objects.open(mode="read") as reader:
        opening = made(objects, before)
        assert sum(opening.values()) < 15
        assert len(dict(reader.scan("words"))) == 30
        assert reader.get_many("words", [b"3"]) == {b"3": b"33"}


def test_the_index_follows_also_when_batches_are_tiny(objects: Any) -> None:
    """After a crash, so many objects and not all of them have to be read."""
    indexed = threading.Event()

    def note_manifest(kind: str, path: str) -> None:
        if kind == "put" and "/manifests/" in path:
            indexed.set()

    objects.after = note_manifest
    crashed = objects.open(unindexed_segments=8, gc=False)
    for number in range(100):
        crashed.put_many("words", {b"%d" % number: b"x"})
    assert indexed.wait(60)
    before = Counter(objects.counts)
    with objects.open(mode="read") as reader:
        assert reader.get_many("words", [b"missing"]) == {}
    assert made(objects, before)["get"] < 100
    crashed.close()


def test_opening_and_closing_writes_nothing(objects: Any) -> None:
    objects.open().close()
    assert objects.objects == {}
    with objects.open() as backend:
        backend.put_many("words", {b"be": b"1"})
    before = Counter(objects.counts)
    with objects.open() as backend:
        assert backend.namespaces() == ["words"]
    with objects.open(mode="read") as backend:
        assert backend.namespaces() == ["words"]
    assert made(objects, before)["put"] == made(objects, before)["delete"] == 0


def test_a_reader_never_writes(objects: Any) -> None:
    with objects.open() as backend:
        backend.put_many("words", {b"be": b"1"})
    before = dict(objects.objects)
    with objects.open(mode="read") as reader:
        for write in (
            lambda: reader.put_many("words", {b"be": b"2"}),
            lambda: reader.commit("store", 1, {}),
            lambda: reader.claim("words"),
            reader.compact,
        ):
            with pytest.raises(ckpt.BackendUnavailableError, match="open for reading"):
                write()
    assert objects.objects == before


def test_the_cache_is_bounded_and_everything_stays_readable(objects: Any) -> None:
    with objects.open(cache_bytes=1 << 14, gc=False) as backend:
        for part in range(40):
            backend.put_many("words", {b"%d" % part: bytes([part]) * 3000})
        assert {key: value[0] for key, value in backend.scan("words")} == {b"%d" % p: p for p in range(40)}
        storage = backend._engine.storage
        assert storage._cached == sum(map(len, storage._cache.values())) <= 1 << 14
        held = {frame.owner.number for frame in backend._engine.records._frames.values()}
        assert held <= set(storage._cache)


def test_stats_count_requests(objects: Any) -> None:
    with objects.open() as backend:
        backend.put_many("words", {b"be": b"1"})
        details = backend.stats().details
    assert details["requests_put"] == 3  # the store is tried out with two
    assert details["segments"] == 1


@pytest.mark.parametrize("mode", ["read", "write"])
def test_stats_look_once_however_many_namespaces(objects: Any, mode: str) -> None:
    with objects.open() as writer:
        writer.write_many({f"words-{n}": Changes({b"be": b"1"}) for n in range(40)})
        with objects.open(mode=mode) as backend:
            before = Counter(objects.counts)
            assert len(backend.stats().namespaces) == 40
            asked = made(objects, before)
            assert asked["head"] == 1
            assert asked["list"] == 2  # what segments and index files weigh
            writer.put_many("more", {b"be": b"1"})
            assert len(backend.stats().namespaces) == 41
            assert backend.get_many("more", [b"be"]) == {b"be": b"1"}
