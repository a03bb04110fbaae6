"""HBase, the real server: the whole contract, and a model to agree with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import happybase
import pytest

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend
from ckpt.testing import BackendConformance, ManualClock, backend_machine
from ckpt_backends.hbase.rows import row_of
from tests.effort import effort

_ADDRESS: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _address(hbase_table: str) -> None:
    _ADDRESS[:] = [hbase_table]


def store_in(directory: str | os.PathLike[str], **extra: object) -> Backend:
    """A store of its own for each directory: a table takes a second to make, a prefix takes nothing."""
    return ckpt.open_backend(_ADDRESS[0], prefix=hashlib.sha256(os.fsencode(directory)).hexdigest(), **extra)


class TestHBase(BackendConformance):
    scheme = "hbase"

    def open_backend(self) -> Backend:
        return store_in(self.directory, clock=self.clock)

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestHBaseMachine(backend_machine(store_in, max_examples=effort(3, 60))):
    pass


def test_a_batch_of_values_in_parts_comes_back_whole(tmp_path: Path) -> None:
    sizes = [0, 1, 32 << 10, (32 << 10) + 1, 1 << 20, (1 << 20) + 1, 12 << 20]
    values = {b"key-%d" % size: os.urandom(size) for size in sizes}
    with store_in(tmp_path) as backend:
        backend.put_many("words", values)
        assert backend.get_many("words", list(values)) == values
        assert dict(backend.scan("words")) == values
        smaller = dict.fromkeys(values, b"small")
        backend.put_many("words", smaller)
        assert dict(backend.scan("words")) == smaller
        backend.commit("store", 1, values)
        backend.commit("store", 2, smaller)
        assert dict(backend.scan("store", version=1)) == values
        assert backend.get_many("store", list(values), version=1) == values
        assert dict(backend.scan("store")) == smaller


def test_keys_beyond_the_longest_row_are_scanned_in_order(tmp_path: Path) -> None:
    # They differ behind the part of the key that fits into a row.
    keys = [b"k" * length + tail for length in (29_999, 30_000, 40_000) for tail in (b"", b"a", b"b", b"c")]
    with store_in(tmp_path) as backend:
        backend.put_many("words", {key: key[-20:] for key in keys})
        backend.commit("store", 1, {key: key[-20:] for key in keys})
        for namespace in ("words", "store"):
            assert [key for key, _ in backend.scan(namespace)] == sorted(keys)
            beyond = [key for key, _ in backend.scan(namespace, prefix=b"k" * 40_000)]
            assert beyond == [key for key in sorted(keys) if key.startswith(b"k" * 40_000)]


def test_leftovers_of_a_crashed_commit_are_invisible_and_removed_in_time(
    hbase_table: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    with store_in(tmp_path, clock=clock, grace_s=1.0) as backend:
        backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
        # As far as a commit comes that is killed before it is in the ledger.
        server = backend._server
        server.write_cells("store", server.new_stamp("store", 0), {b"a": b"lost", b"lost": b"l" * 100_000})
        assert dict(backend.scan("store")) == {b"a": b"1", b"b": b"1"}
        assert backend.get_many("store", [b"a", b"lost"]) == {b"a": b"1"}
        for version in (2, 3):
            backend.commit("store", version, {b"a": b"%d" % version})
        assert b"lost" in stored_keys(hbase_table, backend)
        backend.truncate("store", 3)
        clock.advance(2)
        backend.compact()
        assert dict(backend.scan("store")) == {b"a": b"3", b"b": b"1"}
        assert stored_keys(hbase_table, backend) == {b"a", b"b"}


def stored_keys(address: str, backend: Backend) -> set[bytes]:
    """The keys of which HBase holds anything, as an operator finds them."""
    location, _, table = parse_address(address).location.partition("/")
    host, _, port = location.partition(":")
    start = backend._server._names.data("store")
    connection = happybase.Connection(host, int(port))
    found = {row[len(start) :] for row, _ in connection.table(table).scan(row_prefix=start)}
    connection.close()
    return found


@pytest.mark.parametrize("size", [10, 100_000], ids=["simple", "in parts"])
@pytest.mark.parametrize("key", [b"key", b"k" * 40_000], ids=["short", "long"])
@pytest.mark.parametrize("namespace", ["words", "store"])
def test_a_changed_byte_is_reported_with_its_key_and_hits_no_other(
    hbase_table: str, tmp_path: Path, namespace: str, key: bytes, size: int
) -> None:
    with store_in(tmp_path) as backend:
        items = {b"before": b"1", key: b"v" * size, b"other": b"2"}
        if namespace == "words":
            backend.put_many("words", items)
        else:
            backend.commit("store", 1, items)
        change_cells(hbase_table, row_of(backend._server._names.data(namespace), key))
        for read in (lambda: backend.get_many(namespace, [key]), lambda: list(backend.scan(namespace))):
            with pytest.raises(ckpt.CorruptRecordError, match=namespace):
                read()
        assert backend.get_many(namespace, [b"before", b"other"]) == {b"before": b"1", b"other": b"2"}
        (bad,) = backend.verify()
        assert bad.namespace == namespace
        assert len(key) > 1000 or bad.key == key


def change_cells(address: str, row: bytes) -> None:
    """Change the last byte of every cell of a row, under the timestamp it has."""
    location, _, table = parse_address(address).location.partition("/")
    host, _, port = location.partition(":")
    connection = happybase.Connection(host, int(port))
    for column, (cell, timestamp) in connection.table(table).row(row, include_timestamp=True).items():
        changed = cell[:-1] + bytes([cell[-1] ^ 1])
        connection.table(table).put(row, {column: changed}, timestamp=timestamp)
    connection.close()


def test_stores_of_one_table_do_not_see_each_other(hbase_table: str, tmp_path: Path) -> None:
    base = hashlib.sha256(os.fsencode(tmp_path)).hexdigest()[:16]
    stores = [ckpt.open_backend(hbase_table, prefix=base + tail) for tail in ("", "\0", "\0\0", "x")]
    for number, store in enumerate(stores):
        store.put_many("words", {b"number": b"%d" % number})
    for number, store in enumerate(stores):
        assert dict(store.scan("words")) == {b"number": b"%d" % number}
        assert store.namespaces() == ["words"]
        store.close()
