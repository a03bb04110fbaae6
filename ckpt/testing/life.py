"""The contract of a handle's life: capabilities, closing, reopening, time to live, verify, stats."""

from __future__ import annotations

import builtins
import os
import socket
import threading

import pytest

from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend, Capabilities, Compacts, Repairs
from ckpt.contract.registry import open_backend, schemes
from ckpt.errors import BackendUnavailableError, ConfigError, CorruptRecordError, UnsupportedError
from ckpt.testing.harness import BackendHarness, numbered
from ckpt.types import Changes


class LifeConformance(BackendHarness):
    """What is acknowledged is there after a reopen, and a closed handle says so."""

    def test_it_says_what_it_is(self, backend: Backend) -> None:
        assert type(backend).scheme == self.scheme
        assert isinstance(backend.capabilities, Capabilities)
        assert parse_address(backend.address).scheme.split("+")[0] == self.scheme
        assert backend.address in repr(backend)

    def test_with_closes(self) -> None:
        with self.handle() as backend:
            backend.put_many("words", {b"be": b"1"})
        with pytest.raises(BackendUnavailableError):
            backend.flush()

    def test_every_call_on_a_closed_handle_raises(self, backend: Backend) -> None:
        backend.put_many("words", {b"be": b"1"})
        backend.close()
        backend.close()
        calls = (
            lambda: backend.put_many("words", {b"be": b"1"}),
            lambda: backend.get_many("words", [b"be"]),
            lambda: backend.delete_many("words", [b"be"]),
            lambda: backend.write_many({"words": Changes({b"be": b"1"})}),
            lambda: backend.scan("words"),
            lambda: backend.commit("store", 1, {}),
            lambda: backend.versions("words"),
            lambda: backend.truncate("store", 1),
            backend.namespaces,
            lambda: backend.drop("words"),
            lambda: backend.claim("words"),
            lambda: backend.release("words"),
            backend.flush,
            backend.stats,
            lambda: list(backend.verify()),
        )
        for call in calls:
            with pytest.raises(BackendUnavailableError, match="closed"):
                call()
        backend.close()

    def test_closing_from_several_threads_at_once(self, backend: Backend) -> None:
        backend.put_many("words", numbered(20))
        threads = [threading.Thread(target=backend.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(BackendUnavailableError):
            backend.flush()

    def test_closing_under_load_loses_no_acknowledged_write(self, backend: Backend) -> None:
        acknowledged: dict[bytes, bytes] = {}
        busy = threading.Barrier(5)

        def write(thread: int) -> None:
            for turn in range(10_000):
                key, value = b"%d-%d" % (thread, turn), b"%d" % turn
                try:
                    backend.put_many("words", {key: value})
                except BackendUnavailableError:
                    return
                acknowledged[key] = value
                if turn == 2:
                    busy.wait()

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        busy.wait()
        backend.close()
        for thread in threads:
            thread.join()
        again = self.reopened(backend)
        found = dict(again.scan("words"))
        assert {key: found.get(key) for key in acknowledged} == acknowledged

    def test_acknowledged_writes_survive_reopening(self, backend: Backend) -> None:
        backend.put_many("words", numbered(100))
        backend.delete_many("words", list(numbered(10)))
        backend.put_many("gone", {b"x": b"1"})
        backend.drop("gone")
        expected = dict(backend.scan("words"))
        again = self.reopened(backend)
        assert dict(again.scan("words")) == expected == dict([*numbered(100).items()][10:])
        assert again.namespaces() == ["words"]
        again.put_many("words", {b"more": b"1"})
        third = self.reopened(again)
        assert dict(third.scan("words")) == {**expected, b"more": b"1"}

    def test_the_address_opens_the_store_again(self, backend: Backend) -> None:
        if not backend.capabilities.persistent or self.scheme not in schemes():
            pytest.skip("nothing to open by address")
        backend.put_many("words", numbered(3))
        backend.close()
        with open_backend(backend.address) as again:
            assert dict(again.scan("words")) == numbered(3)
            assert again.address == backend.address

    def test_flush_is_a_barrier_that_may_be_repeated(self, backend: Backend) -> None:
        backend.flush()
        backend.put_many("words", {b"be": b"1"})
        backend.flush()
        backend.flush()
        assert backend.get_many("words", [b"be"]) == {b"be": b"1"}

    def test_reads_in_process_ask_nobody(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        if not backend.capabilities.reads_in_process:
            pytest.skip("a read may wait, as declared")
        backend.put_many("words", {b"be": b"1"})
        assert backend.get_many("words", [b"be"]) == {b"be": b"1"}  # what is opened once is open now

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("get_many asked the system or a server, where a SafeKeeper has no timeout")

        with monkeypatch.context() as patched:
            patched.setattr(builtins, "open", refuse)
            for owner, names in ((os, ("open", "read", "pread", "preadv")), (socket, ("socket",))):
                for name in names:
                    patched.setattr(owner, name, refuse)
            found = backend.get_many("words", [b"be", b"or"])
        assert found == {b"be": b"1"}

    # -- time to live ----------------------------------------------------------------------------

    def test_ttl_is_honoured_or_refused(self, backend: Backend) -> None:
        if not backend.capabilities.ttl:
            with pytest.raises(UnsupportedError):
                backend.put_many("words", {b"be": b"1"}, ttl_s=60)
            with pytest.raises(UnsupportedError):
                backend.write_many({"words": Changes({b"be": b"1"}, ttl_s=60)})
            assert backend.namespaces() == []
            return
        backend.put_many("words", {b"short": b"1", b"renewed": b"1", b"made lasting": b"1"}, ttl_s=0.05)
        backend.put_many("words", {b"long": b"1"}, ttl_s=3600)
        backend.put_many("words", {b"ever": b"1"})
        backend.put_many("words", {b"renewed": b"2"}, ttl_s=3600)
        backend.put_many("words", {b"made lasting": b"2"})
        backend.put_many("brief", {b"x": b"1"}, ttl_s=0.05)
        self.let_time_pass(0.1)
        expected = {b"long": b"1", b"ever": b"1", b"renewed": b"2", b"made lasting": b"2"}
        assert dict(backend.scan("words")) == expected
        assert backend.get_many("words", [b"short", *expected]) == expected
        assert backend.namespaces() == ["words"]
        backend.put_many("words", {b"short": b"again"})
        assert backend.get_many("words", [b"short"]) == {b"short": b"again"}

    def test_ttl_survives_reopening(self, backend: Backend) -> None:
        if not backend.capabilities.ttl:
            pytest.skip("no time to live")
        backend.put_many("words", {b"short": b"1"}, ttl_s=0.05)
        backend.put_many("words", {b"long": b"1"}, ttl_s=3600)
        again = self.reopened(backend)
        self.let_time_pass(0.1)
        assert dict(again.scan("words")) == {b"long": b"1"}

    def test_a_namespace_of_expired_keys_may_become_versioned(self, backend: Backend) -> None:
        if not backend.capabilities.ttl:
            pytest.skip("no time to live")
        backend.put_many("words", {b"short": b"1"}, ttl_s=0.05)
        self.let_time_pass(0.1)
        backend.commit("words", 1, {b"a": b"1"})
        assert dict(backend.scan("words")) == {b"a": b"1"}

    @pytest.mark.parametrize("wrong", [0, -1, float("nan"), True, "60"])
    def test_a_wrong_ttl_is_refused(self, backend: Backend, wrong: float) -> None:
        with pytest.raises((ConfigError, UnsupportedError)):
            backend.put_many("words", {b"be": b"1"}, ttl_s=wrong)
        assert backend.namespaces() == []

    # -- care ------------------------------------------------------------------------------------

    def test_a_sound_store_verifies_clean(self, backend: Backend) -> None:
        assert list(backend.verify()) == []
        backend.put_many("words", numbered(30))
        backend.put_many("words", numbered(10, b"again"))
        backend.commit("store", 1, numbered(5))
        backend.commit("store", 2, {}, deletes=list(numbered(2)))
        backend.truncate("store", 2)
        assert list(backend.verify()) == []

    def test_a_changed_byte_is_reported_and_hurts_no_other_key(self, backend: Backend) -> None:
        """Looks for a value in the files below `self.directory` and changes one byte of it there."""
        if not backend.capabilities.detects_corruption:
            pytest.skip("damage goes unnoticed, as declared")
        needle = b"a needle that stands nowhere else in this store"
        backend.put_many("words", {b"before": b"1"})
        backend.put_many("words", {b"hit": needle})
        backend.put_many("words", {b"after": b"1"})
        backend.put_many("others", numbered(5))
        backend.close()
        changed = 0
        for path in self.directory.rglob("*"):
            if path.is_file() and needle in (data := path.read_bytes()):
                path.write_bytes(data.replace(needle, needle.swapcase()))
                changed += 1
        if not changed:
            pytest.skip("values are not stored as they are below the directory")
        again = self.handle()
        with pytest.raises(CorruptRecordError, match=r"hit.*words|words.*hit") as raised:
            again.get_many("words", [b"hit"])
        assert "needle" not in str(raised.value).lower()
        assert again.get_many("words", [b"before", b"after"]) == {b"before": b"1", b"after": b"1"}
        assert dict(again.scan("others")) == numbered(5)
        with pytest.raises(CorruptRecordError):
            list(again.scan("words"))
        assert len(list(again.verify())) >= 1
        if isinstance(again, Repairs):
            report = again.repair()
            assert report.quarantined
            assert list(again.verify()) == []
            assert dict(again.scan("others")) == numbered(5)

    def test_stats_count(self, backend: Backend) -> None:
        assert backend.stats().namespaces == ()
        backend.put_many("words", numbered(7))
        backend.delete_many("words", [b"key-000001"])
        backend.commit("store", 3, {b"a": b"1", b"b": b"1"})
        backend.commit("store", 4, {}, deletes=[b"a"])
        backend.flush()
        stats = backend.stats()
        assert stats.address == backend.address
        rows = {row.name: row for row in stats.namespaces}
        assert set(rows) == {"words", "store"}
        assert (rows["words"].keys, rows["words"].versioned, rows["words"].tip) == (6, False, None)
        assert rows["store"].keys == 1
        assert (rows["store"].versioned, rows["store"].tip, rows["store"].commits) == (True, 4, 2)
        assert stats.stored_bytes > 0

    def test_compaction_changes_no_answer(self, backend: Backend) -> None:
        if not isinstance(backend, Compacts):
            pytest.skip("nothing to compact")
        for turn in range(5):
            backend.put_many("words", numbered(50, b"turn %d" % turn))
            backend.commit("store", turn + 1, numbered(20, b"turn %d" % turn))
        backend.delete_many("words", list(numbered(20)))
        backend.truncate("store", 4)
        expected = dict(backend.scan("words"))
        report = backend.compact()
        assert report.seconds >= 0
        assert dict(backend.scan("words")) == expected
        for version in (4, 5):
            assert dict(backend.scan("store", version=version)) == numbered(20, b"turn %d" % (version - 1))
        again = self.reopened(backend)
        assert dict(again.scan("words")) == expected

    def test_repairing_a_sound_store_changes_no_answer(self, backend: Backend) -> None:
        if not isinstance(backend, Repairs):
            pytest.skip("nothing to repair")
        backend.put_many("words", numbered(20))
        backend.commit("store", 1, numbered(5))
        report = backend.repair()
        assert report.quarantined == ()
        assert report.kept_records >= 25
        assert dict(backend.scan("words")) == numbered(20)
        assert dict(backend.scan("store", version=1)) == numbered(5)
