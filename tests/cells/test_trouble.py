"""Lost answers, crashes between requests, zombies: what was acknowledged stands, nothing else shows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckpt.errors import (
    BackendUnavailableError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    UnsupportedError,
    VersionNotFoundError,
)
from ckpt_backends.cells import NotNowError


class Once:
    """Raises for one request of a kind, the first time or after some others."""

    def __init__(self, request: str, error: Exception, *, skip: int = 0) -> None:
        self.request, self.error, self.skip = request, error, skip

    def __call__(self, request: str) -> None:
        if request == self.request and self.error is not None:
            if self.skip:
                self.skip -= 1
                return
            error, self.error = self.error, None
            raise error


LOST = NotNowError("the answer was lost")


def cells(shelves, namespace: str = "store") -> int:
    return sum(len(of_key) for of_key in shelves.shelves[namespace].cells.values())


# -- lost answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", ["append", "write_cells"])
def test_a_commit_whose_answer_was_lost_is_made_once(shelves, request_: str) -> None:
    backend = shelves.open(retry_s=5)
    backend.commit("store", 1, {b"a": b"1"})
    shelves.after = Once(request_, LOST)
    second = backend.commit("store", 2, {b"a": b"2"})
    assert [c.id for c in backend.versions("store")][-1] == second
    assert len(backend.versions("store")) == 2
    assert dict(shelves.open().scan("store")) == {b"a": b"2"}


def test_a_claim_whose_answer_was_lost_is_made_once(shelves) -> None:
    backend = shelves.open(retry_s=5)
    shelves.after = Once("append", LOST)
    first = backend.claim("words")
    backend.put_many("words", {b"a": b"1"})
    assert first == 1
    assert shelves.open().claim("words") > first


def test_an_answer_that_never_comes_is_unavailable_and_the_commit_may_be_made_again(shelves) -> None:
    backend = shelves.open()
    backend.commit("store", 1, {b"a": b"1"})
    shelves.before = Once("append", LOST)
    with pytest.raises(BackendUnavailableError):
        backend.commit("store", 2, {b"a": b"lost"})
    assert backend.get_many("store", [b"a"]) == {b"a": b"1"}
    backend.commit("store", 2, {b"a": b"2"})
    assert dict(backend.scan("store")) == {b"a": b"2"}


# -- crashes between requests --------------------------------------------------------------------


def test_what_a_crashed_commit_left_is_invisible_and_goes(shelves) -> None:
    backend = shelves.open(grace_s=0)
    backend.commit("store", 1, {b"a": b"1"})
    shelves.before = Once("append", BackendUnavailableError("killed"))
    with pytest.raises(BackendUnavailableError):
        backend.commit("store", 2, {b"a": b"lost", b"new": b"lost"})
    other = shelves.open(grace_s=0)
    assert dict(other.scan("store")) == {b"a": b"1"}
    assert other.get_many("store", [b"a", b"new"]) == {b"a": b"1"}
    assert cells(shelves) == 3
    other.commit("store", 2, {b"a": b"2"})
    other.truncate("store", 2)
    assert dict(other.scan("store")) == {b"a": b"2"}
    assert cells(shelves) == 1, "only what version 2 shows is left"


def test_a_claimer_that_died_before_its_fence_was_up_is_followed_by_another(shelves) -> None:
    first = shelves.open()
    first.claim("words")
    first.put_many("words", {b"a": b"1"})
    dying = shelves.open()
    shelves.before = Once("fence", BackendUnavailableError("killed"))
    with pytest.raises(BackendUnavailableError):
        dying.claim("words")
    third = shelves.open()
    third.claim("words")
    third.put_many("words", {b"a": b"3"})
    for fenced in (first, dying):
        with pytest.raises(FencedError):
            fenced.put_many("words", {b"a": b"stale"})
    assert third.get_many("words", [b"a"]) == {b"a": b"3"}


def test_a_fence_that_is_not_up_is_put_up_by_who_needs_it(shelves) -> None:
    backend = shelves.open()
    backend.put_many("words", {b"a": b"1"})
    backend.claim("words")
    shelves.before = Once("fence", BackendUnavailableError("killed"))
    with pytest.raises(BackendUnavailableError):
        backend.release("words")
    other = shelves.open()
    other.put_many("words", {b"a": b"2"})
    assert other.get_many("words", [b"a"]) == {b"a": b"2"}


def test_a_first_commit_that_died_leaves_a_plain_namespace(shelves) -> None:
    dying = shelves.open()
    shelves.before = Once("write_cells", BackendUnavailableError("killed"))
    with pytest.raises(BackendUnavailableError):
        dying.commit("store", 1, {b"a": b"1"})
    backend = shelves.open()
    assert backend.namespaces() == []
    backend.put_many("store", {b"a": b"plain"})
    assert backend.get_many("store", [b"a"]) == {b"a": b"plain"}
    with pytest.raises(UnsupportedError):
        dying.commit("store", 1, {b"a": b"1"})


def test_a_server_that_has_lost_records_is_told_from_one_that_is_busy(shelves) -> None:
    backend = shelves.open()
    for version in (1, 2, 3):
        backend.commit("store", version, {b"a": b"%d" % version})
    shelf = shelves.shelves["store"]
    shelf.head -= 1
    del shelf.records[shelf.head + 1]
    with pytest.raises(CorruptRecordError, match=r"lost.*open the store again"):
        backend.commit("store", 4, {b"a": b"4"})
    assert dict(shelves.open().scan("store")) == {b"a": b"2"}


def test_a_fence_that_is_ahead_of_its_ledger_is_no_endless_loop(shelves) -> None:
    backend = shelves.open()
    backend.put_many("words", {b"a": b"1"})
    shelves.shelves["words"].fence = 3
    with pytest.raises(CorruptRecordError, match="fence"):
        backend.put_many("words", {b"a": b"2"})
    assert backend.get_many("words", [b"a"]) == {b"a": b"1"}


# -- zombies and races ---------------------------------------------------------------------------


def test_a_write_that_was_under_way_during_a_takeover_is_fenced(shelves) -> None:
    old, new = shelves.open(), shelves.open()
    old.claim("words")
    held, go_on = threading.Event(), threading.Event()

    def wait(request: str) -> None:
        if request == "write_plain" and threading.current_thread() is not threading.main_thread():
            held.set()
            go_on.wait(30)

    shelves.before = wait
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(old.put_many, "words", {b"a": b"stale"})
        held.wait(30)
        new.claim("words")
        new.put_many("words", {b"b": b"2"})
        go_on.set()
        with pytest.raises(FencedError):
            late.result()
    assert dict(new.scan("words")) == {b"b": b"2"}


def test_a_commit_that_was_under_way_during_a_cleaning_is_whole(shelves) -> None:
    """Its cells lie below the floor when it goes on: it must not be left with some of them."""
    slow, fast = shelves.open(grace_s=0), shelves.open(grace_s=0)
    base = slow.commit("store", 1, {b"a": b"1"})
    held, go_on = threading.Event(), threading.Event()

    def wait(request: str) -> None:
        if request == "append" and threading.current_thread() is not threading.main_thread():
            held.set()
            go_on.wait(30)

    shelves.before = wait
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(slow.commit, "store", 9, {b"x": b"9", b"y": b"9"})
        held.wait(30)
        for version in range(2, 6):
            fast.commit("store", version, {b"a": b"%d" % version})
        fast.truncate("store", 5)
        go_on.set()
        made = late.result()
    shelves.before = lambda request: None
    assert base != made
    for reader in (fast, shelves.open()):
        assert dict(reader.scan("store")) == {b"a": b"5", b"x": b"9", b"y": b"9"}
        assert reader.get_many("store", [b"a"], version=5) == {b"a": b"5"}


def test_handles_that_commit_at_once_all_succeed_and_build_one_chain(shelves) -> None:
    handles = [shelves.open() for _ in range(4)]
    handles[0].commit("store", 1, {b"count": b"0"})

    def work(number: int) -> None:
        for turn in range(10):
            handles[number].commit("store", 2 + turn, {b"%d-%d" % (number, turn): b"1"})

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
    states = [dict(handle.scan("store")) for handle in [*handles, shelves.open()]]
    assert all(state == states[0] for state in states)
    assert len({tuple(c.id for c in handle.versions("store")) for handle in handles}) == 1


def test_a_handle_that_knows_an_older_tip_builds_on_the_newest(shelves) -> None:
    one, other = shelves.open(), shelves.open()
    one.commit("store", 1, {b"a": b"1"})
    assert dict(other.scan("store")) == {b"a": b"1"}
    two = one.commit("store", 2, {b"b": b"2"})
    three = other.commit("store", 3, {b"c": b"3"})
    assert other.history("store")[three].base == two
    branch = one.commit("store", 4, {b"d": b"4"}, base=three)
    assert dict(other.scan("store", commit_id=branch)) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}


def test_giving_up_a_claim_keeps_what_was_committed_meanwhile(shelves) -> None:
    backend = shelves.open()
    backend.claim("store")
    for version in (1, 2):
        backend.commit("store", version, {b"%d" % version: b"1"})
    backend.release("store")
    assert dict(backend.scan("store")) == dict(shelves.open().scan("store")) == {b"1": b"1", b"2": b"1"}


# -- requests, space, grace ----------------------------------------------------------------------


def test_a_batch_costs_one_request_and_a_commit_three(shelves) -> None:
    backend = shelves.open()
    backend.claim("words")
    backend.put_many("words", {b"a": b"1"})
    backend.commit("store", 1, {b"a": b"1"})
    for count in (1, 1000):
        shelves.counts.clear()
        backend.put_many("words", {b"%d" % i: b"1" for i in range(count)})
        assert shelves.counts == {"write_plain": 1}
    shelves.counts.clear()
    backend.get_many("words", [b"%d" % i for i in range(1000)])
    assert shelves.counts == {"read_plain": 1}
    for version, count in ((2, 1), (3, 1000)):
        shelves.counts.clear()
        backend.commit("store", version, {b"%d" % i: b"1" for i in range(count)})
        assert shelves.counts == {"new_stamp": 1, "write_cells": 1, "append": 1}
    shelves.counts.clear()
    backend.get_many("store", [b"1", b"2"])
    assert shelves.counts == {"load": 1, "newest_cells": 1}


def test_truncating_keeps_the_space_in_proportion_to_what_is_shown(shelves) -> None:
    backend = shelves.open(grace_s=0)
    keys = [b"%d" % i for i in range(50)]
    for version in range(1, 101):
        backend.commit("store", version, dict.fromkeys(keys, b"%d" % version))
        if version > 3:
            backend.truncate("store", version - 2)
        assert cells(shelves) <= 6 * len(keys)
    assert len(shelves.shelves["store"].records) <= 6
    backend.commit("store", 101, {}, deletes=keys)
    backend.truncate("store", 101)
    backend.compact()
    assert cells(shelves) == 0


def test_a_scan_within_the_grace_goes_on_and_one_beyond_it_says_so(shelves) -> None:
    writer, reader = shelves.open(grace_s=3600), shelves.open(grace_s=3600)
    writer.commit("store", 1, {b"%d" % i: b"1" for i in range(10)})
    scan = reader.scan("store")
    next(scan)
    writer.commit("store", 2, {}, deletes=[b"%d" % i for i in range(10)])
    writer.truncate("store", 2)
    writer.compact()
    assert len(list(scan)) == 9
    hasty = shelves.open(grace_s=0)
    hasty.commit("store", 3, {b"%d" % i: b"3" for i in range(10)})
    scan = reader.scan("store")
    next(scan)
    hasty.commit("store", 4, {b"%d" % i: b"4" for i in range(10)})
    hasty.truncate("store", 4)
    with pytest.raises(VersionNotFoundError, match="grace"):
        list(scan)


def test_a_scan_that_was_begun_and_forgotten_holds_nothing_up(shelves) -> None:
    backend = shelves.open(grace_s=0)
    backend.commit("store", 1, {b"a": b"1"})
    scan = backend.scan("store")
    unread = backend.scan("store")
    next(scan)
    del scan, unread
    backend.commit("store", 2, {b"a": b"2"})
    backend.truncate("store", 2)
    assert cells(shelves) == 1


def test_who_opened_it_to_read_writes_nothing(shelves) -> None:
    writer, reader = shelves.open(), shelves.open(mode="read")
    writer.put_many("words", {b"a": b"1"})
    writer.commit("store", 1, {b"a": b"1"})
    assert reader.namespaces() == ["store", "words"]
    assert reader.get_many("words", [b"a"]) == reader.get_many("store", [b"a"]) == {b"a": b"1"}
    for write in (
        lambda: reader.put_many("words", {b"a": b"2"}),
        lambda: reader.delete_many("words", [b"a"]),
        lambda: reader.commit("store", 2, {}),
        lambda: reader.truncate("store", 1),
        lambda: reader.drop("words"),
        lambda: reader.claim("words"),
        reader.compact,
    ):
        with pytest.raises(BackendUnavailableError, match="mode=read"):
            write()
    with pytest.raises(ConfigError, match="mode"):
        shelves.open(mode="look")


def test_namespaces_are_asked_about_at_the_same_time(shelves) -> None:
    """A store of Spark has hundreds, and each is a round trip."""
    with shelves.open() as writer:
        for number in range(16):
            writer.put_many(f"words-{number:02}", {b"a": b"1"})
            writer.commit(f"store-{number:02}", 1, {b"a": b"1"})
    with shelves.open() as reader:
        meeting = threading.Barrier(4, timeout=10)
        shelves.before = lambda request: meeting.wait() if request == "load" else None
        found = reader.namespaces()
    assert found == [*(f"store-{n:02}" for n in range(16)), *(f"words-{n:02}" for n in range(16))]


def test_the_first_namespace_that_cannot_be_asked_about_ends_the_question(shelves) -> None:
    def refuse(request: str) -> None:
        raise LOST

    with shelves.open() as writer:
        for number in range(200):
            writer.put_many(f"words-{number}", {b"a": b"1"})
    with shelves.open() as reader:
        shelves.counts.clear()
        shelves.before = refuse
        with pytest.raises(BackendUnavailableError, match="the answer was lost"):
            reader.namespaces()
        assert shelves.counts["load"] < 50
