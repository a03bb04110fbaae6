"""The contract of versioned namespaces: chains, branches, replacement, as-of reads, truncation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ckpt.contract.backend import Backend, Compacts
from ckpt.errors import ConfigError, UnsupportedError, VersionNotFoundError
from ckpt.testing.harness import HOSTILE_KEYS, BackendHarness, numbered
from ckpt.types import Changes


def state(backend: Backend, version: int | None = None, commit_id: str | None = None) -> dict[bytes, bytes]:
    """The whole state of `store`, read both ways, which must agree."""
    scanned = list(backend.scan("store", version=version, commit_id=commit_id))
    assert len({key for key, _ in scanned}) == len(scanned)
    found = dict(scanned)
    assert backend.get_many("store", [*found, b"never there"], version=version, commit_id=commit_id) == found
    return found


def ids(backend: Backend) -> list[str]:
    """The ids of the commits of `store` that a reader may name."""
    return [commit.id for commit in backend.versions("store")]


class VersionConformance(BackendHarness):
    """A commit is whole, every retained version stays readable, and a zombie's commit is an unused branch."""

    def test_a_history_knows_its_tip_and_its_beginning(self, backend: Backend) -> None:
        assert backend.history("store").tip is None
        one = backend.commit("store", 1, {b"a": b"1"})
        two = backend.commit("store", 2, {b"a": b"2"})
        backend.commit("store", 2, {b"a": b"branch"}, base=one)
        history = backend.history("store")
        assert history.tip is not None
        assert history.tip.id == two
        backend.truncate("store", 2)
        assert backend.history("store").truncated_below == 2
        assert history.truncated_below == 0, "a history that was handed out does not change"

    def test_reading_as_of_a_version(self, backend: Backend) -> None:
        backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
        backend.commit("store", 2, {b"a": b"2", b"c": b"2"}, deletes=[b"b", b"never there"])
        backend.commit("store", 5, {b"b": b"5"}, deletes=[b"a"])
        assert state(backend, 0) == {}
        assert state(backend, 1) == {b"a": b"1", b"b": b"1"}
        for version in (2, 3, 4):
            assert state(backend, version) == {b"a": b"2", b"c": b"2"}
        assert state(backend, 5) == state(backend) == {b"b": b"5", b"c": b"2"}

    def test_a_version_that_was_never_made_is_an_error(self, backend: Backend) -> None:
        assert backend.get_many("store", [b"a"], version=0) == {}
        with pytest.raises(VersionNotFoundError):
            backend.get_many("store", [b"a"], version=1)
        first = backend.commit("store", 1, {b"a": b"1"})
        reads: list[dict[str, Any]] = [
            {"version": 2},
            {"commit_id": "never"},
            {"version": 2, "commit_id": first},
        ]
        for wrong in reads:
            with pytest.raises(VersionNotFoundError):
                backend.get_many("store", [b"a"], **wrong)
            with pytest.raises(VersionNotFoundError):
                backend.scan("store", **wrong)
        wrong_versions: tuple[Any, ...] = (-1, True, "1", 1.0)
        for version in wrong_versions:
            with pytest.raises(ConfigError):
                backend.get_many("store", [b"a"], version=version)
        with pytest.raises(VersionNotFoundError):
            backend.commit("store", 2, {b"a": b"2"}, base="never-made")
        assert ids(backend) == [first]
        assert state(backend) == {b"a": b"1"}

    def test_commit_ids(self, backend: Backend) -> None:
        chosen = backend.commit("store", 1, {b"a": b"1"}, commit_id="attempt/1:7~x")
        assert chosen == "attempt/1:7~x"
        made = backend.commit("store", 2, {b"a": b"2"})
        longest = backend.commit("store", 3, {b"a": b"3"}, commit_id="i" * 128)
        assert ids(backend) == [chosen, made, longest]
        with pytest.raises(ConfigError):
            backend.commit("store", 4, {b"a": b"4"}, commit_id=chosen)
        assert ids(backend) == [chosen, made, longest]
        assert backend.commit("other", 1, {b"a": b"1"}, commit_id=chosen) == chosen
        assert state(backend, commit_id=chosen) == {b"a": b"1"}
        assert state(backend) == {b"a": b"3"}

    def test_versions_describes_the_commits(self, backend: Backend) -> None:
        first = backend.commit("store", 3, {b"a": b"1"})
        second = backend.commit("store", 9, {b"a": b"2"})
        listed = backend.versions("store")
        assert [(c.id, c.version, c.base, c.replaces) for c in listed] == [
            (first, 3, None, False),
            (second, 9, first, False),
        ]
        assert listed[0].sequence < listed[1].sequence

    def test_a_retry_replaces_and_what_it_replaced_is_garbage(self, backend: Backend) -> None:
        first = backend.commit("store", 1, {b"a": b"1"})
        second = backend.commit("store", 2, {b"a": b"old", b"only old": b"x"})
        third = backend.commit("store", 3, {b"b": b"old"})
        again = backend.commit("store", 2, {b"a": b"new"})
        assert state(backend) == state(backend, 2) == {b"a": b"new"}
        assert state(backend, 1) == {b"a": b"1"}
        assert ids(backend) == [first, again]
        for gone in (second, third):
            with pytest.raises(VersionNotFoundError):
                backend.scan("store", commit_id=gone)
        with pytest.raises(VersionNotFoundError):
            backend.scan("store", version=3)
        backend.commit("store", 3, {b"c": b"3"})
        assert state(backend) == {b"a": b"new", b"c": b"3"}

    def test_replacing_the_first_version_starts_again(self, backend: Backend) -> None:
        backend.commit("store", 2, {b"a": b"old", b"b": b"old"})
        backend.commit("store", 1, {b"a": b"new"})
        assert state(backend) == {b"a": b"new"}
        assert len(ids(backend)) == 1

    def test_a_branch_is_read_by_its_id(self, backend: Backend) -> None:
        one = backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
        left = backend.commit("store", 2, {b"a": b"left"}, base=one)
        right = backend.commit("store", 2, {b"a": b"right"}, deletes=[b"b"], base=one)
        assert state(backend) == state(backend, commit_id=left) == {b"a": b"left", b"b": b"1"}
        assert state(backend, commit_id=right) == {b"a": b"right"}
        assert state(backend, 1, right) == {b"a": b"1", b"b": b"1"}
        on_right = backend.commit("store", 3, {b"c": b"3"}, base=right)
        assert state(backend) == state(backend, commit_id=on_right) == {b"a": b"right", b"c": b"3"}
        assert state(backend, 2) == {b"a": b"right"}
        assert state(backend, 2, left) == {b"a": b"left", b"b": b"1"}
        assert sorted(ids(backend)) == sorted([one, left, right, on_right])

    def test_a_zombie_is_a_branch_that_nobody_follows(self, backend: Backend) -> None:
        one = backend.commit("store", 1, {b"a": b"1"})
        two = backend.commit("store", 2, {b"a": b"2"}, base=one)
        three = backend.commit("store", 3, {b"a": b"3"}, base=two)
        zombie = backend.commit("store", 2, {b"a": b"zombie"}, base=one)
        assert state(backend) == {b"a": b"3"}
        assert state(backend, 2) == {b"a": b"2"}
        assert state(backend, commit_id=zombie) == {b"a": b"zombie"}
        four = backend.commit("store", 4, {b"b": b"4"})
        assert state(backend) == {b"a": b"3", b"b": b"4"}
        assert ids(backend) == [one, two, zombie, three, four]

    def test_a_commit_builds_on_a_lower_version(self, backend: Backend) -> None:
        one = backend.commit("store", 3, {b"a": b"1"})
        for version in (1, 2, 3):
            with pytest.raises(ConfigError):
                backend.commit("store", version, {b"a": b"2"}, base=one)
        assert ids(backend) == [one]

    def test_an_empty_commit_is_a_version(self, backend: Backend) -> None:
        backend.commit("store", 1, {})
        assert state(backend) == {}
        assert backend.namespaces() == ["store"]
        backend.commit("store", 2, {b"a": b"1"})
        backend.commit("store", 3, {})
        assert state(backend, 1) == {}
        assert state(backend, 3) == {b"a": b"1"}

    def test_plain_writes_to_a_versioned_namespace_are_refused(self, backend: Backend) -> None:
        backend.commit("store", 1, {b"a": b"1"})
        with pytest.raises(UnsupportedError):
            backend.put_many("store", {b"a": b"2"})
        with pytest.raises(UnsupportedError):
            backend.delete_many("store", [b"a"])
        with pytest.raises(UnsupportedError):
            backend.write_many({"store": Changes({b"a": b"2"})})
        assert state(backend) == {b"a": b"1"}

    def test_an_emptied_plain_namespace_may_become_versioned(self, backend: Backend) -> None:
        backend.put_many("store", {b"a": b"plain"})
        backend.delete_many("store", [b"a"])
        backend.commit("store", 1, {b"b": b"1"})
        assert state(backend) == {b"b": b"1"}

    def test_a_dropped_versioned_namespace_may_become_plain(self, backend: Backend) -> None:
        first = backend.commit("store", 4, {b"a": b"1"})
        backend.drop("store")
        assert backend.namespaces() == []
        assert backend.versions("store") == []
        assert list(backend.scan("store")) == []
        backend.put_many("store", {b"b": b"plain"})
        assert dict(backend.scan("store")) == {b"b": b"plain"}
        backend.drop("store")
        backend.commit("store", 1, {b"c": b"1"}, commit_id=first)
        assert state(backend) == {b"c": b"1"}

    def test_hostile_keys_in_a_commit(self, backend: Backend) -> None:
        items = {key: b"value %d" % number for number, key in enumerate(HOSTILE_KEYS)}
        backend.commit("store", 1, items)
        assert state(backend) == items
        gone = HOSTILE_KEYS[::2]
        backend.commit("store", 2, {}, deletes=gone)
        assert state(backend) == {key: value for key, value in items.items() if key not in gone}
        assert state(backend, 1) == items

    def test_a_commit_of_ten_thousand_keys_and_a_big_value(self, backend: Backend) -> None:
        items = {**numbered(10_000), b"big": bytes(1 << 20), b"empty": b""}
        backend.commit("store", 1, items)
        backend.commit("store", 2, {b"key-000007": b"new"}, deletes=[b"big"])
        assert state(backend, 1) == items
        expected = {**items, b"key-000007": b"new"}
        del expected[b"big"]
        assert state(backend) == expected

    def test_scan_of_a_version_by_prefix(self, backend: Backend) -> None:
        backend.commit("store", 1, {b"aa": b"1", b"ab": b"1", b"b": b"1"})
        backend.commit("store", 2, {b"ac": b"2"}, deletes=[b"aa"])
        assert dict(backend.scan("store", prefix=b"a")) == {b"ab": b"1", b"ac": b"2"}
        assert dict(backend.scan("store", prefix=b"a", version=1)) == {b"aa": b"1", b"ab": b"1"}
        if backend.capabilities.ordered_scan:
            assert [key for key, _ in backend.scan("store")] == [b"ab", b"ac", b"b"]

    def test_truncate_forgets_old_versions_and_nothing_else(self, backend: Backend) -> None:
        for version in range(1, 7):
            backend.commit("store", version, {b"v%d" % version: b"1", b"all": b"%d" % version})
        backend.commit("store", 7, {}, deletes=[b"v1"])
        before = {version: state(backend, version) for version in range(4, 8)}
        backend.truncate("store", 4)
        assert {version: state(backend, version) for version in range(4, 8)} == before
        assert [commit.version for commit in backend.versions("store")] == [4, 5, 6, 7]
        for version in (0, 1, 3):
            with pytest.raises(VersionNotFoundError):
                backend.scan("store", version=version)
        backend.truncate("store", 4)
        backend.truncate("store", 2)
        assert {version: state(backend, version) for version in range(4, 8)} == before

    def test_truncate_between_versions_keeps_the_floor(self, backend: Backend) -> None:
        backend.commit("store", 2, {b"a": b"2", b"b": b"2"})
        backend.commit("store", 4, {b"a": b"4"})
        backend.commit("store", 9, {b"a": b"9"})
        backend.truncate("store", 6)
        for version in (6, 7, 8):
            assert state(backend, version) == {b"a": b"4", b"b": b"2"}
        assert state(backend) == {b"a": b"9", b"b": b"2"}
        with pytest.raises(VersionNotFoundError):
            backend.scan("store", version=5)
        with pytest.raises(VersionNotFoundError):
            backend.commit("store", 5, {b"a": b"5"})
        assert state(backend) == {b"a": b"9", b"b": b"2"}

    def test_truncate_beyond_the_tip_is_refused(self, backend: Backend) -> None:
        backend.commit("store", 2, {b"a": b"2"})
        with pytest.raises(VersionNotFoundError):
            backend.truncate("store", 3)
        with pytest.raises(VersionNotFoundError):
            backend.truncate("nowhere", 1)
        wrong_versions: tuple[Any, ...] = (-1, True, "2")
        for wrong in wrong_versions:
            with pytest.raises(ConfigError):
                backend.truncate("store", wrong)
        assert state(backend, 2) == {b"a": b"2"}

    def test_truncate_removes_garbage_and_keeps_branches(self, backend: Backend) -> None:
        one = backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
        backend.commit("store", 2, {b"a": b"replaced"})
        two = backend.commit("store", 2, {b"a": b"2"})
        branch = backend.commit("store", 3, {b"a": b"branch"}, base=one)
        three = backend.commit("store", 4, {b"c": b"4"}, base=two)
        backend.truncate("store", 2)
        assert state(backend) == {b"a": b"2", b"b": b"1", b"c": b"4"}
        assert state(backend, commit_id=branch) == {b"a": b"branch", b"b": b"1"}
        assert state(backend, 2, branch) == {b"a": b"1", b"b": b"1"}
        assert set(ids(backend)) == {one, two, branch, three}

    def test_truncating_to_the_tip_leaves_one_commit(self, backend: Backend) -> None:
        for version in range(1, 5):
            backend.commit("store", version, {b"v%d" % version: b"1"}, deletes=[b"v%d" % (version - 1)])
        backend.truncate("store", 4)
        assert state(backend) == {b"v4": b"1"}
        assert len(ids(backend)) == 1
        with pytest.raises(VersionNotFoundError):
            backend.commit("store", 4, {b"again": b"1"})
        backend.commit("store", 5, {b"v5": b"1"})
        assert state(backend) == {b"v4": b"1", b"v5": b"1"}
        assert state(backend, 4) == {b"v4": b"1"}

    def test_truncated_commits_cannot_be_named(self, backend: Backend) -> None:
        old = backend.commit("store", 1, {b"a": b"1"})
        backend.commit("store", 2, {b"a": b"2"})
        backend.truncate("store", 2)
        with pytest.raises(VersionNotFoundError):
            backend.scan("store", commit_id=old)
        with pytest.raises(VersionNotFoundError):
            backend.commit("store", 3, {b"a": b"3"}, base=old)
        assert state(backend) == {b"a": b"2"}

    def test_a_scan_keeps_its_version_whatever_happens(self, backend: Backend) -> None:
        expected = numbered(200)
        backend.commit("store", 1, expected)
        scan = backend.scan("store", version=1)
        tip = backend.scan("store")
        seen = [next(scan), next(scan)]
        backend.commit("store", 2, dict.fromkeys(expected, b"later"))
        backend.commit("store", 3, {b"more": b"3"}, deletes=list(expected)[::2])
        backend.truncate("store", 3)
        if isinstance(backend, Compacts):
            backend.compact()
        seen += scan
        assert dict(seen) == expected
        assert len(seen) == len(expected)
        assert dict(tip) == expected

    def test_history_survives_reopening(self, backend: Backend) -> None:
        one = backend.commit("store", 1, {b"a": b"1"})
        backend.commit("store", 2, {b"a": b"replaced"})
        two = backend.commit("store", 2, {b"a": b"2"})
        zombie = backend.commit("store", 2, {b"a": b"zombie"}, base=one)
        before = backend.versions("store")
        again = self.reopened(backend)
        assert again.versions("store") == before
        assert state(again) == {b"a": b"2"}
        assert state(again, commit_id=zombie) == {b"a": b"zombie"}
        with pytest.raises(UnsupportedError):
            again.put_many("store", {b"a": b"plain"})
        three = again.commit("store", 3, {b"b": b"3"})
        assert next(c for c in again.versions("store") if c.id == three).base == two
        assert state(again) == {b"a": b"2", b"b": b"3"}

    def test_truncation_survives_reopening(self, backend: Backend) -> None:
        """The branch that lost to a replaced commit must not become the tip when that commit is gone."""
        backend.commit("store", 1, {b"a": b"1"}, commit_id="one")
        backend.commit("store", 2, {b"a": b"2"}, commit_id="two")
        backend.commit("store", 3, {b"a": b"replaced"}, commit_id="replaced")
        backend.commit("store", 3, {b"a": b"branch"}, base="two", commit_id="branch")
        backend.commit("store", 3, {b"a": b"3"}, commit_id="three")
        backend.truncate("store", 2)
        before = backend.versions("store")
        again = self.reopened(backend)
        assert again.versions("store") == before
        assert ids(again) == ["two", "branch", "three"]
        assert state(again) == {b"a": b"3"}
        assert state(again, 2) == {b"a": b"2"}
        assert state(again, commit_id="branch") == {b"a": b"branch"}
        with pytest.raises(VersionNotFoundError):
            again.scan("store", version=1)

    def test_threads_commit_to_their_own_namespaces_at_once(self, backend: Backend) -> None:
        start = threading.Barrier(8)

        def work(thread: int) -> None:
            start.wait()
            for version in range(1, 8):
                backend.commit(f"store-{thread}", version, {b"v": b"%d" % version, b"t": b"%d" % thread})
                assert backend.get_many(f"store-{thread}", [b"v"]) == {b"v": b"%d" % version}
            backend.truncate(f"store-{thread}", 5)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, thread) for thread in range(8)]:
                done.result()
        for thread in range(8):
            assert dict(backend.scan(f"store-{thread}")) == {b"v": b"7", b"t": b"%d" % thread}
            assert [c.version for c in backend.versions(f"store-{thread}")] == [5, 6, 7]

    def test_threads_commit_branches_of_one_namespace_at_once(self, backend: Backend) -> None:
        base = backend.commit("store", 1, {b"base": b"1"})

        def work(thread: int) -> str:
            return backend.commit("store", 2, {b"t": b"%d" % thread}, base=base)

        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(work, range(8)))
        assert sorted(ids(backend)) == sorted([base, *made])
        for thread, commit_id in enumerate(made):
            assert state(backend, commit_id=commit_id) == {b"base": b"1", b"t": b"%d" % thread}
        assert len({commit.sequence for commit in backend.versions("store")}) == 9

    def test_readers_see_whole_versions_while_others_commit_and_truncate(self, backend: Backend) -> None:
        keys = [b"key-%d" % number for number in range(20)]
        backend.commit("store", 1, dict.fromkeys(keys, b"1"))
        over = threading.Event()

        def write() -> None:
            try:
                for version in range(2, 41):
                    backend.commit("store", version, dict.fromkeys(keys, b"%d" % version))
                    if version % 3 == 0:
                        backend.truncate("store", version - 1)
            finally:
                over.set()

        def read() -> int:
            newest = 0
            while not over.is_set():
                for found in (dict(backend.scan("store")), backend.get_many("store", keys)):
                    assert sorted(found) == sorted(keys)
                    (version,) = set(found.values())
                    assert int(version) >= newest
                    newest = int(version)
            return newest

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            pool.submit(write).result()
            for reader in readers:
                reader.result()
        assert state(backend) == dict.fromkeys(keys, b"40")
