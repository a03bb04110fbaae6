"""The contract of plain namespaces: put, get, delete, scan, batches, hostile keys, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError, UnsupportedError
from ckpt.testing.harness import HOSTILE_KEYS, HOSTILE_NAMESPACES, BackendHarness, numbered
from ckpt.types import Changes

_TEXT: Any = "text"
_NONE: Any = None
_PAIRS: Any = [(b"good", b"1")]
_ONE_KEY: Any = b"kept"

BAD_WRITES: dict[str, Callable[[Backend], Any]] = {
    "text key": lambda b: b.put_many("words", {b"good": b"1", _TEXT: b"2"}),
    "text value": lambda b: b.put_many("words", {b"good": b"1", b"bad": _TEXT}),
    "no value": lambda b: b.put_many("words", {b"good": b"1", b"bad": _NONE}),
    "list for puts": lambda b: b.put_many("words", _PAIRS),
    "empty namespace": lambda b: b.put_many("", {b"good": b"1"}),
    "long namespace": lambda b: b.put_many("n" * 1025, {b"good": b"1"}),
    "lone surrogate": lambda b: b.put_many("\ud800", {b"good": b"1"}),
    "text key to delete": lambda b: b.delete_many("words", [b"kept", _TEXT]),
    "one key to delete": lambda b: b.delete_many("words", _ONE_KEY),
    "write_many, bad second": lambda b: b.write_many(
        {"words": Changes({b"good": b"1"}, [b"kept"]), "others": Changes({b"bad": _TEXT})}
    ),
    "write_many, overlap": lambda b: b.write_many({"words": Changes({b"kept": b"2"}, [b"kept"])}),
    "write_many, bad namespace": lambda b: b.write_many(
        {"words": Changes({b"good": b"1"}), "": Changes({b"good": b"1"})}
    ),
    "commit, version 0": lambda b: b.commit("store", 0, {b"good": b"1"}),
    "commit, negative version": lambda b: b.commit("store", -1, {b"good": b"1"}),
    "commit, true version": lambda b: b.commit("store", True, {b"good": b"1"}),
    "commit, huge version": lambda b: b.commit("store", 2**63, {b"good": b"1"}),
    "commit, overlap": lambda b: b.commit("store", 1, {b"good": b"1"}, [b"good"]),
    "commit, text key": lambda b: b.commit("store", 1, {_TEXT: b"1"}),
    "commit, text delete": lambda b: b.commit("store", 1, {}, [_TEXT]),
    "commit, id with a space": lambda b: b.commit("store", 1, {}, commit_id="a b"),
    "commit, empty id": lambda b: b.commit("store", 1, {}, commit_id=""),
    "commit, long id": lambda b: b.commit("store", 1, {}, commit_id="i" * 129),
}
"""Calls that must raise before anything is written, on a store that holds `words: kept`."""


class PlainConformance(BackendHarness):
    """A missing key is omitted, the last write wins, and any bytes are a key."""

    def test_put_then_get(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"2", b"or": b"1"})
        assert backend.get_many("words", [b"be", b"or"]) == {b"be": b"2", b"or": b"1"}

    def test_missing_keys_are_omitted(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"2"})
        assert backend.get_many("words", [b"be", b"not"]) == {b"be": b"2"}
        assert backend.get_many("nowhere", [b"be"]) == {}
        assert list(backend.scan("nowhere")) == []

    def test_the_last_write_wins(self, backend: Backend) -> None:
        for value in (b"1", b"", b"a much longer value than before", b"2"):
            backend.put_many("words", {b"be": value})
            assert backend.get_many("words", [b"be"]) == {b"be": value}

    def test_an_empty_value_is_not_missing(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b""})
        assert backend.get_many("words", [b"be"]) == {b"be": b""}
        assert list(backend.scan("words")) == [(b"be", b"")]

    def test_delete(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"2", b"or": b"1"})
        backend.delete_many("words", [b"be", b"never there"])
        assert backend.get_many("words", [b"be", b"or"]) == {b"or": b"1"}
        backend.delete_many("nowhere", [b"be"])
        backend.put_many("words", {b"be": b"3"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"3"}

    def test_empty_batches_do_nothing(self, backend: Backend) -> None:
        backend.put_many("words", {})
        backend.delete_many("words", [])
        backend.write_many({})
        backend.write_many({"words": Changes()})
        assert backend.get_many("words", []) == {}
        assert backend.namespaces() == []

    def test_keys_may_come_from_any_iterable_and_repeat(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"2"})
        assert backend.get_many("words", iter([b"be", b"be"])) == {b"be": b"2"}
        backend.delete_many("words", (key for key in [b"be", b"be"]))
        assert backend.get_many("words", {b"be"}) == {}

    def test_values_may_be_views_and_are_copied(self, backend: Backend) -> None:
        mutable = bytearray(b"before")
        views: Any = {b"a": mutable, b"b": memoryview(b"xyz")[1:]}
        backend.put_many("words", views)
        mutable[:] = b"after!"
        found = backend.get_many("words", [b"a", b"b"])
        assert found == {b"a": b"before", b"b": b"yz"}
        assert {type(value) for value in found.values()} == {bytes}

    def test_a_big_value(self, backend: Backend) -> None:
        big = bytes(range(256)) * 4096
        backend.put_many("words", {b"big": big, b"small": b"1"})
        assert backend.get_many("words", [b"big"]) == {b"big": big}
        assert dict(backend.scan("words")) == {b"big": big, b"small": b"1"}

    def test_hostile_keys_are_just_keys(self, backend: Backend) -> None:
        items = {key: b"value %d" % number for number, key in enumerate(HOSTILE_KEYS)}
        backend.put_many("words", items)
        assert backend.get_many("words", HOSTILE_KEYS) == items
        assert dict(backend.scan("words")) == items
        for key in HOSTILE_KEYS:
            backend.delete_many("words", [key])
            del items[key]
            assert backend.get_many("words", HOSTILE_KEYS) == items

    def test_hostile_namespaces_are_just_names(self, backend: Backend) -> None:
        for name in HOSTILE_NAMESPACES:
            backend.put_many(name, {b"key": name.encode()})
        assert backend.namespaces() == sorted(HOSTILE_NAMESPACES)
        for name in HOSTILE_NAMESPACES:
            assert list(backend.scan(name)) == [(b"key", name.encode())]

    def test_ten_thousand_keys(self, backend: Backend) -> None:
        items = numbered(10_000)
        backend.put_many("words", items)
        assert backend.get_many("words", items) == items
        scanned = list(backend.scan("words"))
        assert len(scanned) == len(items)
        assert dict(scanned) == items

    def test_namespaces_do_not_share_keys(self, backend: Backend) -> None:
        backend.put_many("a", {b"key": b"of a"})
        backend.put_many("b", {b"key": b"of b"})
        backend.delete_many("a", [b"key"])
        assert backend.get_many("a", [b"key"]) == {}
        assert backend.get_many("b", [b"key"]) == {b"key": b"of b"}

    def test_scan_by_prefix(self, backend: Backend) -> None:
        items = {
            b"": b"0",
            b"a": b"1",
            b"ab": b"2",
            b"ac": b"3",
            b"b": b"4",
            b"\xff": b"5",
            b"\xff\xff": b"6",
        }
        backend.put_many("words", items)
        for prefix in (b"", b"a", b"ab", b"abc", b"b", b"\xff", b"\xff\xff", b"c"):
            expected = {key: value for key, value in items.items() if key.startswith(prefix)}
            assert dict(backend.scan("words", prefix=prefix)) == expected

    def test_scan_order_is_as_declared(self, backend: Backend) -> None:
        backend.put_many("words", dict.fromkeys(HOSTILE_KEYS, b"v"))
        backend.put_many("words", numbered(50))
        keys = [key for key, _ in backend.scan("words")]
        assert len(keys) == len(set(keys)) == len(HOSTILE_KEYS) + 50
        if backend.capabilities.ordered_scan:
            assert keys == sorted(keys)

    def test_scan_checks_its_arguments_when_called(self, backend: Backend) -> None:
        with pytest.raises(ConfigError):
            backend.scan("")
        with pytest.raises(TypeError):
            backend.scan("words", prefix=_TEXT)

    def test_a_scan_yields_untouched_keys_once_during_writes(self, backend: Backend) -> None:
        kept = numbered(300)
        backend.put_many("words", kept)
        seen: list[bytes] = []
        for number, (key, _) in enumerate(backend.scan("words")):
            seen.append(key)
            if number % 10 == 0:
                backend.put_many("words", {b"new-%d" % number: b"n"})
                backend.delete_many("words", [b"new-%d" % (number - 10)])
        assert sorted(key for key in seen if key in kept) == sorted(kept)

    def test_scans_may_be_left_unfinished(self, backend: Backend) -> None:
        backend.put_many("words", numbered(20))
        for _ in range(50):
            next(iter(backend.scan("words")))
        backend.put_many("words", {b"more": b"1"})
        backend.drop("words")
        assert backend.namespaces() == []

    def test_write_many_changes_several_namespaces(self, backend: Backend) -> None:
        backend.put_many("a", {b"old": b"1", b"kept": b"1"})
        backend.write_many(
            {
                "a": Changes({b"new": b"2"}, deletes=[b"old", b"never there"]),
                "b": Changes({b"x": b"3", b"y": b"4"}),
                "c": Changes(deletes=[b"never there"]),
            }
        )
        assert dict(backend.scan("a")) == {b"kept": b"1", b"new": b"2"}
        assert dict(backend.scan("b")) == {b"x": b"3", b"y": b"4"}
        assert backend.namespaces() == ["a", "b"]

    @pytest.mark.parametrize("wrong", BAD_WRITES)
    def test_bad_arguments_write_nothing(self, backend: Backend, wrong: str) -> None:
        backend.put_many("words", {b"kept": b"1"})
        with pytest.raises((ConfigError, TypeError)):
            BAD_WRITES[wrong](backend)
        assert backend.namespaces() == ["words"]
        assert list(backend.scan("words")) == [(b"kept", b"1")]
        backend.put_many("words", {b"kept": b"2"})
        assert backend.get_many("words", [b"kept"]) == {b"kept": b"2"}

    def test_bad_reads_are_refused(self, backend: Backend) -> None:
        for namespace in ("", "n" * 1025, "\ud800"):
            for call in (backend.versions, backend.drop, backend.claim, backend.release, backend.scan):
                with pytest.raises(ConfigError):
                    call(namespace)
        with pytest.raises(TypeError):
            backend.get_many("words", [_TEXT])
        with pytest.raises(TypeError):
            backend.get_many("words", _ONE_KEY)

    def test_drop_removes_everything_and_frees_the_name(self, backend: Backend) -> None:
        backend.put_many("words", numbered(30))
        backend.put_many("others", {b"kept": b"1"})
        backend.drop("words")
        backend.drop("words")
        backend.drop("nowhere")
        assert backend.namespaces() == ["others"]
        assert list(backend.scan("words")) == []
        assert backend.get_many("words", [b"key-000001"]) == {}
        backend.put_many("words", {b"new": b"1"})
        assert list(backend.scan("words")) == [(b"new", b"1")]

    def test_namespaces_holds_those_with_keys_sorted(self, backend: Backend) -> None:
        assert backend.namespaces() == []
        for name in ("b", "a", "c"):
            backend.put_many(name, {b"key": b"1"})
        backend.delete_many("b", [b"key"])
        assert backend.namespaces() == ["a", "c"]

    def test_threads_write_and_read_at_once(self, backend: Backend) -> None:
        """Each thread's own keys end with its own last value, and no read sees a value never written."""
        start = threading.Barrier(8)

        def work(thread: int) -> None:
            start.wait()
            for turn in range(12):
                value = b"%d:%d" % (thread, turn)
                backend.put_many("words", {b"own-%d" % thread: value, b"shared": value})
                own = backend.get_many("words", [b"own-%d" % thread, b"shared"])
                assert own[b"own-%d" % thread] == value
                assert own[b"shared"].count(b":") == 1
                backend.put_many("words", {b"passing-%d" % thread: value})
                assert dict(backend.scan("words", prefix=b"own-%d" % thread)) == {b"own-%d" % thread: value}
                backend.delete_many("words", [b"passing-%d" % thread])

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, thread) for thread in range(8)]:
                done.result()
        found = dict(backend.scan("words"))
        shared = found.pop(b"shared")
        assert found == {b"own-%d" % thread: b"%d:11" % thread for thread in range(8)}
        assert shared.endswith(b":11")

    def test_plain_namespaces_have_no_versions(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"2"})
        assert backend.versions("words") == []
        assert backend.versions("nowhere") == []
        reads: tuple[dict[str, Any], ...] = ({"version": 1}, {"version": 0}, {"commit_id": "c"})
        for wrong in reads:
            with pytest.raises(UnsupportedError):
                backend.get_many("words", [b"be"], **wrong)
            with pytest.raises(UnsupportedError):
                backend.scan("words", **wrong)
        with pytest.raises(UnsupportedError):
            backend.truncate("words", 1)
        with pytest.raises(UnsupportedError):
            backend.commit("words", 1, {b"be": b"3"})
        assert list(backend.scan("words")) == [(b"be", b"2")]
        assert backend.versions("words") == []
