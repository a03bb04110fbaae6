"""Several writers of one object store: none overwrites, all see everything, the fenced are refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ckpt
from ckpt.errors import BackendUnavailableError, ConfigError, FencedError
from ckpt.testing.harness import numbered
from ckpt_backends.objects.backend import FsspecBackend, FsspecOptions

TINY = {
    "segment_bytes": 4096,
    "recent_records": 50,
    "unindexed_segments": 3,
    "small_segments": 4,
    "cache_bytes": 8192,
}


def together(*tasks: Any) -> None:
    """Run all at once, and raise what any of them raises."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        for done in [pool.submit(task) for task in tasks]:
            done.result(timeout=120)


def test_a_writer_that_comes_second_writes_on_top(objects: Any) -> None:
    with objects.open() as one, objects.open() as other:
        one.put_many("words", {b"be": b"1"})
        other.put_many("words", {b"or": b"2"})
        one.put_many("words", {b"not": b"3"})
        other.delete_many("words", [b"be"])
        expected = {b"or": b"2", b"not": b"3"}
        assert dict(one.scan("words")) == dict(other.scan("words")) == expected
    with objects.open() as again:
        assert dict(again.scan("words")) == expected
        assert list(again.verify()) == []


def test_a_delete_reaches_a_namespace_that_another_has_just_made(objects: Any) -> None:
    with objects.open(stale_s=3600) as one, objects.open() as other:
        assert one.namespaces() == []
        other.put_many("words", {b"be": b"1"})
    with objects.open() as one, objects.open() as other:
        other.put_many("new", {b"be": b"1"})
        one.delete_many("new", [b"be"])
        other.put_many("newer", {b"be": b"1"})
        one.drop("newer")
        assert other.namespaces() == ["words"]


@pytest.mark.parametrize("options", [{}, TINY], ids=["roomy", "tiny"])
def test_writers_in_many_threads_on_many_handles_lose_nothing(objects: Any, options: dict[str, Any]) -> None:
    handles = [objects.open(retry_s=5, **options) for _ in range(3)]
    start = threading.Barrier(6)

    def work(number: int) -> None:
        backend = handles[number % 3]
        start.wait()
        for turn in range(15):
            backend.put_many("words", {b"%d-%d" % (number, turn): b"x" * 50, b"shared": b"%d" % number})
            backend.commit(f"store-{number}", turn + 1, {b"turn": b"%d" % turn})
            assert backend.get_many(f"store-{number}", [b"turn"]) == {b"turn": b"%d" % turn}

    together(*(lambda n=n: work(n) for n in range(6)))
    expected = {b"%d-%d" % (number, turn): b"x" * 50 for number in range(6) for turn in range(15)}
    for handle in [*handles, objects.open()]:
        found = dict(handle.scan("words"))
        assert found.pop(b"shared") in {b"%d" % n for n in range(6)}
        assert found == expected
        for number in range(6):
            assert [c.version for c in handle.versions(f"store-{number}")] == list(range(1, 16))
        assert list(handle.verify()) == []
        handle.close()


def test_a_fenced_owner_is_told_in_whatever_it_writes(objects: Any) -> None:
    with objects.open() as old, objects.open() as new:
        old.claim("words")
        old.put_many("words", {b"be": b"1"})
        new.claim("words")
        for write in (
            lambda: old.put_many("words", {b"be": b"stale"}),
            lambda: old.delete_many("words", [b"be"]),
            lambda: old.drop("words"),
        ):
            with pytest.raises(FencedError, match="words"):
                write()
        old.put_many("others", {b"be": b"2"})
        assert dict(new.scan("words")) == {b"be": b"1"}
        assert new.namespaces() == ["others", "words"]


def test_a_claim_outlives_a_crash_and_can_be_taken_over(objects: Any) -> None:
    crashed = objects.open()
    first = crashed.claim("words")
    with objects.open() as backend:
        with pytest.raises(FencedError):
            backend.put_many("words", {b"be": b"1"})
        assert backend.claim("words") > first
        backend.put_many("words", {b"be": b"1"})
        with pytest.raises(FencedError):
            crashed.put_many("words", {b"be": b"zombie"})
    crashed.close()


def test_two_that_start_an_empty_store_at_once_share_it(objects: Any) -> None:
    both = threading.Barrier(2, timeout=60)
    waited = threading.local()

    def meet(kind: str, path: str) -> None:
        if kind == "put" and path.endswith("000000000001.seg") and not hasattr(waited, "done"):
            waited.done = True
            both.wait()

    objects.before = meet
    with objects.open() as one, objects.open() as other:
        together(
            lambda: one.put_many("words", {b"one": b"1"}), lambda: other.put_many("words", {b"other": b"2"})
        )
        assert dict(one.scan("words")) == dict(other.scan("words")) == {b"one": b"1", b"other": b"2"}


def test_an_idle_handle_that_slept_through_a_compaction_is_not_taken_in_by_a_free_number(
    objects: Any,
) -> None:
    """The next number that it knows was used, compacted away and removed: it looks free."""
    with objects.open(grace_s=0, **TINY) as sleeper, objects.open(grace_s=0, **TINY) as busy:
        sleeper.put_many("words", {b"first": b"1"})
        for turn in range(30):
            busy.put_many("words", {b"%d" % turn: b"x" * 200})
        busy.compact()
        assert "bucket/place/segments/000000000002.seg" not in objects.objects
        sleeper.put_many("words", {b"last": b"2"})
        assert len(dict(busy.scan("words"))) == 32
        assert dict(busy.scan("words")) == dict(sleeper.scan("words"))


def test_readers_go_on_while_others_write_and_compact(objects: Any) -> None:
    kept = numbered(200)
    with objects.open(grace_s=0, retry_s=5, **TINY) as writer:
        writer.put_many("kept", kept)
        done = threading.Event()

        def write() -> None:
            try:
                for turn in range(12):
                    writer.put_many("words", numbered(60, b"turn %d" % turn))
                    writer.compact()
            finally:
                done.set()

        def read(reader: Any) -> None:
            sample = dict(list(kept.items())[::17])
            while not done.is_set():
                assert reader.get_many("kept", sample) == sample
                assert {v.split(b"-")[0] for v in reader.get_many("words", numbered(60)).values()} <= {
                    b"turn %d" % turn for turn in range(12)
                }

        readers = [objects.open(mode="read", grace_s=0, retry_s=5, **TINY) for _ in range(2)]
        together(write, *(lambda r=r: read(r) for r in readers))
        for reader in readers:
            assert dict(reader.scan("kept")) == kept
            assert dict(reader.scan("words")) == numbered(60, b"turn 11")
            reader.close()


def test_objects_stay_for_readers_until_the_grace_is_over(objects: Any) -> None:
    options = {**TINY, "grace_s": 60, "gc": False}
    with objects.open(**options) as writer:
        for turn in range(20):
            writer.put_many("words", numbered(20, b"turn %d" % turn))
        with objects.open(mode="read") as reader:
            scan = reader.scan("words")
            next(scan)
            before = set(objects.names("segments"))
            writer.put_many("more", {b"x": b"1"})
            writer.compact()
            assert before <= set(objects.names("segments"))
            assert len(list(scan)) == 19
    with objects.open(**options) as writer:
        writer.put_many("more", {b"x": b"2"})
        writer.compact()
        assert before <= set(objects.names("segments"))
        objects.clock.advance(61)
        writer.compact()
        assert not before & set(objects.names("segments"))
        assert dict(writer.scan("words")) == numbered(20, b"turn 19")


def test_compaction_makes_few_large_objects_of_many_small_ones(objects: Any) -> None:
    with objects.open(grace_s=0, small_segments=10, gc=False) as backend:
        for number in range(100):
            backend.put_many("words", {b"%d" % number: b"x" * 100})
        assert len(objects.names("segments")) == 100
        report = backend.compact()
        assert report.bytes_after < report.bytes_before
        assert len(objects.names("segments")) <= 3
        assert len(dict(backend.scan("words"))) == 100


def test_background_compaction_keeps_the_number_of_objects_down(objects: Any) -> None:
    with objects.open(grace_s=0, small_segments=20, unindexed_segments=5) as backend:
        for number in range(300):
            backend.put_many("words", {b"%d" % (number % 7): b"%d" % number})
        backend.compact()
        assert len(objects.names("segments")) < 40
        assert dict(backend.scan("words")) == {b"%d" % (n % 7): b"%d" % n for n in range(293, 300)}
    assert len(objects.names("manifests")) <= 2
    assert len(objects.names("index")) <= 2


def test_a_store_that_ignores_conditions_takes_no_writes(objects: Any) -> None:
    """Two writers would both create the same number, and one of their commits would be gone."""
    objects.obeys_conditions = False
    with objects.open() as one, objects.open() as other:
        assert one.capabilities.shared_writers
        for backend, write in (
            (one, lambda: one.put_many("words", {b"be": b"1"})),
            (one, lambda: one.put_many("words", {b"be": b"1"})),
            (other, lambda: other.commit("store", 1, {b"or": b"2"})),
        ):
            with pytest.raises(ConfigError, match=r"fsspec\+s3://bucket/place .*sole_writer=true"):
                write()
            assert backend.namespaces() == []
    assert objects.names("segments") == []


def test_a_sole_writer_may_use_a_store_that_ignores_conditions(objects: Any) -> None:
    objects.obeys_conditions = False
    for key in (b"be", b"or"):
        with objects.open(sole_writer=True) as one:
            assert not one.capabilities.shared_writers
            one.put_many("words", {key: b"1"})
    with objects.open(mode="read") as reader:
        assert dict(reader.scan("words")) == {b"be": b"1", b"or": b"1"}


def test_a_sole_writer_is_held_to_conditions_that_the_store_obeys(objects: Any) -> None:
    with objects.open(sole_writer=True) as one, objects.open(sole_writer=True) as other:
        together(
            *(
                lambda backend=backend, turn=turn: backend.put_many("words", {b"%d" % turn: b"1"})
                for turn, backend in enumerate([one, other] * 5)
            )
        )
        assert len(dict(one.scan("words"))) == 10


def test_a_protocol_without_conditions_is_opened_for_writing_by_a_sole_writer_only(objects: Any) -> None:
    def opened(**options: Any) -> FsspecBackend:
        return FsspecBackend(
            objects,
            "host/place",
            FsspecOptions(**options),
            protocol="sftp",
            address="fsspec+sftp://host/place",
        )

    with pytest.raises(ConfigError, match=r"fsspec\+sftp://host/place .*sole_writer=true"):
        opened()
    assert not objects.counts
    with opened(sole_writer=True) as backend:
        backend.put_many("words", {b"be": b"1"})
    with opened(mode="read") as reader:
        assert dict(reader.scan("words")) == {b"be": b"1"}


def test_addresses(tmp_path: Any) -> None:
    for address, message in {
        "fsspec:///x": "names no protocol",
        "fsspec+memory://": "names no place",
        "fsspec+file://relative/path": "three slashes",
        "fsspec+memroy://bucket": "did you mean 'memory'",
        "fsspec+memory://x?segment_byte=1": "did you mean 'segment_bytes'",
        "fsspec+memory://x?segment_bytes=1": "between 4KiB and 64MiB",
        "fsspec+memory://x?mode=append": "read or write",
        "fsspec+memory://x?gc_select=2": "between 0 and 1",
        "fsspec+memory://x?retry_s=-1": "not below 0",
        "fsspec+memory://x?fs.client={bad}": "is JSON",
        f"fsspec+file://{tmp_path}/nothing?mode=read": "no store at",
    }.items():
        with pytest.raises(ConfigError, match=message):
            ckpt.open_backend(address)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_driver_is_named_with_its_command() -> None:
    protocol = "gdrive"
    with pytest.raises(ConfigError, match=r"pip install '\S+'"):
        ckpt.open_backend(f"fsspec+{protocol}://place/x")


def test_secrets_are_not_shown(tmp_path: Any) -> None:
    address = f"fsspec+file://{tmp_path}/x?fs.secret=hidden&fs.auto_mkdir=true"
    with ckpt.open_backend(address) as backend:
        assert backend.address == f"fsspec+file://{tmp_path}/x?fs.auto_mkdir=true"
        assert "hidden" not in repr(backend)


def test_who_always_comes_second_is_told_in_the_end(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_backends.objects.backend._LONGEST_WAIT_S", 0.001)
    with objects.open() as unlucky, objects.open() as lucky:
        unlucky.put_many("words", {b"be": b"1"})
        first = True

        def be_first(kind: str, path: str) -> None:
            nonlocal first
            # not from a maintenance thread, which may be the lucky one's own
            if kind == "put" and first and threading.current_thread() is threading.main_thread():
                first = False
                lucky.put_many("words", {b"lucky": b"1"})
                first = True

        objects.before = be_first
        with pytest.raises(BackendUnavailableError, match="nothing was written"):
            unlucky.put_many("words", {b"be": b"2"})
        objects.before = lambda kind, path: None
        assert unlucky.get_many("words", [b"be", b"lucky"]) == {b"be": b"1", b"lucky": b"1"}


@pytest.mark.parametrize("work", ["repair", "compact"])
def test_work_on_the_whole_store_gives_up_beside_writers_that_never_pause(objects: Any, work: str) -> None:
    with objects.open(small_segments=2) as slow, objects.open() as busy:
        for number in range(5):
            slow.put_many("words", {b"be": b"%d" % number})
        writes = 0

        def be_first(kind: str, path: str) -> None:
            nonlocal writes
            if kind == "put" and threading.current_thread() is threading.main_thread():
                objects.before = lambda kind, path: None
                busy.put_many("busy", {b"%d" % writes: b""})
                objects.before = be_first
                writes += 1

        objects.before = be_first
        with pytest.raises(BackendUnavailableError, match="Try again when nobody writes to it"):
            getattr(slow, work)()
        assert writes < 100
        objects.before = lambda kind, path: None
        getattr(slow, work)()
        assert slow.get_many("words", [b"be"]) == {b"be": b"4"}
        assert len(list(slow.scan("busy"))) == writes


def test_a_fenced_writer_is_told_also_beside_one_that_never_pauses(objects: Any) -> None:
    with objects.open() as old, objects.open() as new:
        old.claim("words")
        new.claim("words")
        writes = 0

        def write_more(kind: str, path: str) -> None:
            nonlocal writes
            if kind == "head":
                objects.before = lambda kind, path: None
                new.put_many("words", {b"%d" % writes: b""})
                objects.before = write_more
                writes += 1

        objects.before = write_more
        with pytest.raises(FencedError):
            old.put_many("words", {b"be": b"1"})
        objects.before = lambda kind, path: None
        assert b"be" not in dict(new.scan("words"))


def test_handles_that_share_nothing_but_a_folder(tmp_path: Any) -> None:
    handles = [ckpt.open_backend(f"fsspec+file://{tmp_path}/x") for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(10):
            handles[number].put_many("words", {b"%d-%d" % (number, turn): b"1"})

    together(*(lambda n=n: work(n) for n in range(4)))
    for handle in handles:
        assert len(dict(handle.scan("words"))) == 40
        handle.close()
    leftovers = [path for path in (tmp_path / "x").rglob("*") if ".tmp-" in path.name]
    assert leftovers == []


def test_closing_says_goodbye_even_if_the_store_does_not_answer(objects: Any) -> None:
    backend = objects.open()
    backend.claim("words")

    def refuse(kind: str, path: str) -> None:
        raise TimeoutError("no answer")

    objects.before = refuse
    with pytest.raises(BackendUnavailableError, match="no answer"):
        backend.put_many("words", {b"be": b"1"})
    backend.close()
    with pytest.raises(BackendUnavailableError, match="closed"):
        backend.put_many("words", {b"be": b"1"})


WRITER = """
import sys
import ckpt

with ckpt.open_backend(sys.argv[1]) as backend:
    for turn in range(10_000):
        backend.put_many("words", {f"{sys.argv[2]}-{turn}".encode(): b"x" * 100})
        print(turn, flush=True)
"""


def test_processes_that_are_killed_lose_nothing_they_were_told_of(tmp_path: Any) -> None:
    address = f"fsspec+file://{tmp_path}/x?unindexed_segments=4&small_segments=8"
    for generation in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, address, f"{generation}-{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        told = {}
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            while (line := writer.stdout.readline()) and int(line) < 8 + generation:
                told[number] = int(line)
        for number, writer in enumerate(writers):
            writer.kill()
            rest = writer.communicate()[0].split()
            told[number] = max(told[number], *map(int, rest or [0]))
        with ckpt.open_backend(address) as backend:
            for number, last in told.items():
                keys = [b"%d-%d-%d" % (generation, number, turn) for turn in range(last + 1)]
                assert sorted(backend.get_many("words", keys)) == sorted(keys)
            assert list(backend.verify()) == []


def test_a_segment_retired_while_a_reader_catches_up_is_no_error(objects: Any) -> None:
    """The reader has listed a segment; before it reads it, others have collected it."""
    with objects.open(grace_s=0, **TINY) as first:
        first.put_many("words", {b"be": b"1"})
    with objects.open(grace_s=0, **TINY) as writer, objects.open(mode="read", grace_s=0, **TINY) as reader:
        assert reader.get_many("words", [b"be"]) == {b"be": b"1"}
        for turn in range(6):
            writer.put_many("words", {b"be": b"%d" % turn})
        compacted = False

        def compact_first(kind: str, path: str) -> None:
            nonlocal compacted
            if kind == "get" and "segments/" in path and not compacted:
                compacted = True
                writer.compact()

        objects.before = compact_first
        try:
            assert reader.get_many("words", [b"be"]) == {b"be": b"5"}
        finally:
            objects.before = lambda kind, path: None
        assert compacted
