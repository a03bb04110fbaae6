"""What the contract asks of Cassandra, asked directly: large values, long keys, stamps, deleted rows."""

from __future__ import annotations

import os
import threading
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckpt
from ckpt.contract.addresses import parse_address
from ckpt.errors import ConfigError
from ckpt_backends.cassandra import CassandraBackend, CassandraOptions, parts
from ckpt_backends.cassandra.keys import (
    LONGEST,
    Intent,
    Parts,
    after_prefix,
    pack_intent,
    pack_value,
    stored_key,
    unpack_intent,
    unpack_value,
)
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, connect
from ckpt_backends.cassandra.options import read_target
from ckpt_backends.cassandra.schema import Cql, prepare
from ckpt_backends.cassandra.server import CassandraCellServer
from ckpt_backends.cells.access import read_location

Open = Callable[..., CassandraCellServer]


@pytest.fixture
def opened(cassandra_keyspace: str) -> Iterator[Open]:
    """Opens handles on one store of this test."""
    prefix = uuid.uuid4().hex
    servers: list[CassandraCellServer] = []

    def open_one(**given: object) -> CassandraCellServer:
        options = CassandraOptions(prefix=prefix, **given)
        link = connect(read_target(read_location(parse_address(cassandra_keyspace)), options), options)
        prepare(link, options)
        servers.append(CassandraCellServer(link, options))
        return servers[-1]

    yield open_one
    for server in servers:
        server.close()


@pytest.fixture
def backend(cassandra_keyspace: str) -> Iterator[ckpt.Backend]:
    with ckpt.open_backend(cassandra_keyspace, prefix=uuid.uuid4().hex, grace_s=0) as opened:
        yield opened


def put(server: CassandraCellServer, items: dict[bytes, bytes], deletes: tuple[bytes, ...] = ()) -> bool:
    return server.write_plain("words", items, deletes, ttl_s=None, fence=0, exclusive=False)


# -- keys and values -----------------------------------------------------------------------------


@given(
    st.binary(max_size=40),
    st.binary(max_size=40) | st.builds(Parts, st.binary(min_size=16, max_size=16), st.integers(0, 2**32 - 1)),
)
def test_values_come_back(key: bytes, value: bytes | Parts) -> None:
    assert unpack_value(stored_key(key), pack_value(key, value)) == (key, value)
    long = key + bytes(LONGEST + 1)
    assert unpack_value(stored_key(long), pack_value(long, value)) == (long, value)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.lists(st.binary(max_size=20)))
def test_announcements_come_back(fence: int, time: int, keys: list[bytes]) -> None:
    assert unpack_intent(pack_intent(fence, time, keys)) == Intent(fence, time, tuple(keys))


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_what_begins_with_a_prefix_is_between_its_bounds(prefix: bytes, key: bytes) -> None:
    end = after_prefix(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))


@given(st.lists(st.binary(max_size=2), max_size=4), st.integers(LONGEST - 2, LONGEST + 2))
def test_stored_keys_are_distinct_and_in_order(ends: list[bytes], length: int) -> None:
    keys = sorted({b"k" * length + end for end in ends})
    stored = [stored_key(key) for key in keys]
    assert len(set(stored)) == len(keys)
    cut = [form[:LONGEST] for form in stored]
    assert cut == sorted(cut)


def test_values_of_any_size_come_back_whole_and_leave_nothing_behind(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_PART_BYTES", 100_000)
    server = opened()
    server.register("words")
    sizes = [0, 1, parts.INLINE_BYTES, parts.INLINE_BYTES + 1, 200_000, 3_000_001]
    large = {b"key-%d" % size: os.urandom(size) for size in sizes}
    assert put(server, large)
    assert server.read_plain("words", list(large)) == large
    assert dict(server.scan_plain("words", b"")) == large
    assert count(server, "row_parts") == 1 + 2 + 31
    assert put(server, large | {b"key-200000": b"small now"}, (b"key-3000001",))
    assert count(server, "row_parts") == 1
    server.fence("words", 1, exclusive=True)
    server.clear_plain("words")
    assert count(server, "row_parts") == 0
    server.write_cells("words", 5, large)
    server.write_cells("words", 6, {b"key-200000": b"newer"})
    assert server.newest_cells("words", dict.fromkeys(large, 5)) == {k: (5, v) for k, v in large.items()}
    assert [value for _, stamp, value in server.scan_cells("words", b"", 5)] == [
        large[key] for key in sorted(large)
    ]
    server.remove_cells("words", {b"key-200000": 5})
    assert count(server, "cell_parts") == 1 + 31
    server.clear_cells("words", 6)
    assert count(server, "cell_parts") == 0
    assert list(server.scan_cells("words", b"", 9)) == []


def count(server: CassandraCellServer, table: str) -> int:
    prefix = server._names.place("words")[0].decode()
    rows = server._link.run(f"SELECT prefix FROM {{}}.{table} WHERE prefix='{prefix}' ALLOW FILTERING")
    return len(rows)


def test_a_value_that_is_too_large_is_refused_before_anything_is_written(
    backend: ckpt.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_LARGEST_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match=r"key b'big' of namespace 'words' has 1048\d+ bytes, .* split"):
        backend.put_many("words", {b"small": b"1", b"big": bytes(1 << 20)})
    with pytest.raises(ConfigError, match="split the state"):
        backend.commit("store", 1, {b"big": bytes(1 << 20)})
    assert backend.namespaces() == []


def test_very_long_keys_are_scanned_in_order(backend: ckpt.Backend) -> None:
    # They differ only behind what is stored of a key, where the order of the stored forms is another one.
    keys = sorted(b"k" * LONGEST + bytes([n]) * length for n in range(8) for length in (1, 40_000))
    items = {key: b"%d" % n for n, key in enumerate(keys)} | {b"k" * LONGEST: b"short", b"l": b"after"}
    backend.put_many("words", items)
    assert list(backend.scan("words")) == sorted(items.items())
    within = b"k" * LONGEST + b"\x03"
    assert dict(backend.scan("words", prefix=within)) == {
        k: v for k, v in items.items() if k.startswith(within)
    }
    backend.commit("store", 1, items)
    backend.commit("store", 2, dict.fromkeys(keys[:3], b"new"))
    assert list(backend.scan("store", version=1)) == sorted(items.items())
    backend.delete_many("words", keys)
    assert dict(backend.scan("words")) == {b"k" * LONGEST: b"short", b"l": b"after"}


# -- ledgers, stamps, buckets --------------------------------------------------------------------


def test_of_many_writers_one_adds_the_next_record(opened: Open) -> None:
    servers = [opened() for _ in range(3)]
    start = threading.Barrier(6)
    won: list[tuple[int, bytes]] = []

    def race(server: CassandraCellServer, name: bytes) -> None:
        start.wait()
        for number in range(1, 6):
            record = name + b" %d" % number
            if server.append("words", number, record, fences=False):
                won.append((number, record))
            while len(server.load("words", number - 1)) == 0:
                pass

    threads = [threading.Thread(target=race, args=(servers[n % 3], b"writer %d" % n)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert servers[0].load("words", 0) == sorted(won)
    assert [number for number, _ in sorted(won)] == [1, 2, 3, 4, 5]
    servers[1].forget("words", 4)
    assert [number for number, _ in servers[2].load("words", 0)] == [4, 5]
    assert servers[0].append("words", 5, b"again", fences=False) is False
    assert servers[0].append("words", 7, b"too early", fences=False) is False
    servers[1].forget("words", 6)
    assert servers[2].append("words", 6, b"next", fences=False) is True


def test_nobody_gets_a_stamp_twice(opened: Open) -> None:
    servers = [opened() for _ in range(2)]
    taken: list[int] = []

    def take(server: CassandraCellServer) -> None:
        for turn in range(40):
            above = max(taken, default=0) if turn % 7 == 0 else 0
            stamp = server.new_stamp("words", above)
            assert stamp > above
            taken.append(stamp)

    threads = [threading.Thread(target=take, args=(servers[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken) == 160
    assert opened().new_stamp("words", 10_000) > 10_000


def test_a_namespace_keeps_the_number_of_buckets_it_began_with(opened: Open) -> None:
    few, many = opened(buckets=2), opened(buckets=50)
    few.register("words")
    assert put(few, {b"%d" % n: b"1" for n in range(100)})
    many.register("words")
    assert put(many, {b"%d" % n: b"2" for n in range(50)})
    expected = {b"%d" % n: b"2" if n < 50 else b"1" for n in range(100)}
    assert dict(few.scan_plain("words", b"")) == expected == dict(many.scan_plain("words", b""))
    assert many.read_plain("words", list(expected)) == expected


def test_two_handles_register_and_create_at_once(cassandra_keyspace: str) -> None:
    address = parse_address(cassandra_keyspace)
    keyspace = f"race_{uuid.uuid4().hex[:8]}"
    target = f"cassandra://{address.location.partition('/')[0]}/{keyspace}"
    start = threading.Barrier(3)
    opened: list[ckpt.Backend] = []

    def open_one(number: int) -> None:
        start.wait()
        backend = ckpt.open_backend(target, buckets=number + 1)
        opened.append(backend)
        backend.put_many("words", {b"%d" % number: b"1"})

    threads = [threading.Thread(target=open_one, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 3
    for backend in opened:
        assert dict(backend.scan("words")) == {b"0": b"1", b"1": b"1", b"2": b"1"}
    assert isinstance(opened[0], CassandraBackend)
    opened[0]._server._link.run("DROP KEYSPACE {}")
    for backend in opened:
        backend.close()


# -- requests and memory -------------------------------------------------------------------------


def test_requests_do_not_grow_with_the_batch(opened: Open) -> None:
    """Announce, look, one batch for each bucket, look; and one that nobody waits for."""
    server = opened(buckets=4)
    server.register("words")
    sent: Counter[str] = Counter()
    link: CassandraLink = server._link
    send = link.send

    def counting(request: PartitionRequest) -> object:
        sent[Cql(request.statements[0][0]).name] += 1
        return send(request)

    link.send = counting
    assert put(server, {b"%d" % n: b"value" for n in range(2000)})
    assert sent == {"ANNOUNCE": 1, "LOOK": 2, "PUT": 4, "WITHDRAW": 1}
    sent.clear()
    assert len(server.read_plain("words", [b"%d" % n for n in range(800)])) == 800
    assert sent.keys() == {"GET"}
    assert sent["GET"] <= 8


def test_memory_does_not_grow_with_what_is_scanned(backend: ckpt.Backend) -> None:
    peaks = []
    for name, count in (("few", 3_000), ("many", 12_000)):
        for start in range(0, count, 3_000):
            items = {b"key-%07d" % n: bytes(300) for n in range(start, start + 3_000)}
            backend.put_many(name, items)
            backend.commit(f"{name} versions", start + 1, items)
        for scanned in (name, f"{name} versions"):
            tracemalloc.start()
            assert sum(1 for _ in backend.scan(scanned)) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    few, few_versions, many, many_versions = peaks
    assert many < 1.3 * few + 100_000
    assert many_versions < 1.3 * few_versions + 100_000


def test_a_scan_passes_over_more_deleted_rows_than_cassandra_has_tombstones_for(
    backend: ckpt.Backend,
) -> None:
    """A scan that met 100,000 tombstones in a row would fail."""
    total, batch = 110_000, 10_000
    for start in range(0, total, batch):
        keys = [b"key-%07d" % n for n in range(start, start + batch)]
        backend.put_many("words", dict.fromkeys(keys, b"v"))
        backend.delete_many("words", keys)
    backend.put_many("words", {b"a": b"first", b"z": b"last"})
    assert list(backend.scan("words")) == [(b"a", b"first"), (b"z", b"last")]
    assert list(islice(backend.scan("words", prefix=b"key"), 1)) == []
    assert backend.namespaces() == ["words"]


@pytest.mark.parametrize("ttl_s", [0.001, 300 * 86_400, 30 * 365 * 86_400, 1e12])
def test_any_time_to_live_is_taken(opened: Open, ttl_s: float) -> None:
    server = opened()
    server.register("words")
    assert server.write_plain("words", {b"a": b"1"}, (), ttl_s=ttl_s, fence=0, exclusive=False)
    large = {b"large": bytes(parts.INLINE_BYTES + 1)}
    assert server.write_plain("words", large, (), ttl_s=ttl_s, fence=0, exclusive=False)
    # Who reads decides by its own clock what has expired; the server only removes it some time later.
    assert dict(server.scan_plain("words", b"")) == {b"a": b"1"} | large


def test_a_namespace_is_dropped_and_filled_again_and_again(backend: ckpt.Backend) -> None:
    for turn in range(4):
        items = {b"%d" % n: b"%d" % turn for n in range(turn, 200)}
        backend.put_many("words", items)
        assert dict(backend.scan("words")) == items
        backend.drop("words")
        assert backend.namespaces() == []
        backend.commit("words", 1, items)
        assert dict(backend.scan("words")) == items
        backend.drop("words")
        assert list(backend.scan("words")) == []


def test_cells_of_crashed_commits_are_invisible_and_go_in_time(backend: ckpt.Backend) -> None:
    assert isinstance(backend, CassandraBackend)
    server = backend._server
    backend.commit("store", 1, {b"a": b"1", b"b": b"1"})
    left = server.new_stamp("store", 0)
    server.write_cells("store", left, {b"a": b"of a commit that never was", b"c": b"of it too"})
    assert (
        dict(backend.scan("store"))
        == {b"a": b"1", b"b": b"1"}
        == backend.get_many("store", [b"a", b"b", b"c"])
    )
    backend.commit("store", 2, {b"b": b"2"})
    backend.commit("store", 3, {b"a": b"3"})
    backend.truncate("store", 3)
    assert isinstance(backend, ckpt.contract.backend.Compacts)
    backend.compact()
    assert dict(backend.scan("store")) == {b"a": b"3", b"b": b"2"}
    stamps = {stamp for _, stamp, _ in server.scan_cells("store", b"", 1 << 60)}
    assert left not in stamps
    assert len(stamps) == 2
