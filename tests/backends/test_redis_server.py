"""What the contract asks of Redis, asked directly: fences, late requests, stamps, cells, short pages."""

from __future__ import annotations

import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt.contract.addresses import parse_address
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.testing.servers import server_address
from ckpt_backends.cells import NotNowError
from ckpt_backends.cells.access import read_location
from ckpt_backends.redis import RedisOptions
from ckpt_backends.redis import requests as redis_requests
from ckpt_backends.redis.info import ask_info
from ckpt_backends.redis.layout import RedisLayout, RowPlace, cell_name, split_cell_name, starting_with
from ckpt_backends.redis.link import Command, RedisLink, ServerLink, packed
from ckpt_backends.redis.options import read_target
from ckpt_backends.redis.server import RedisCellServer
from tests.effort import effort


class HoldingLink(RedisLink):
    """Sends requests on, unless told to hold a transaction: nobody answers, and it may be delivered later."""

    def __init__(self, inner: RedisLink) -> None:
        super().__init__(inner.at)
        self._inner = inner
        self.hold_next, self.holds = False, b"MULTI"
        self.held: list[tuple[bytes, tuple[Command, ...]]] = []
        self.round_trips = 0

    def ask(self, key: bytes, *commands: Command) -> list[Any]:
        if self.hold_next and commands[0][0] == self.holds:
            self.hold_next = False
            self.held.append((key, commands))
            raise NotNowError("nobody answered")
        self.round_trips += 1
        return self._inner.ask(key, *commands)

    def deliver(self) -> None:
        """What was held arrives at last; who sent it has gone."""
        while self.held:
            key, commands = self.held.pop(0)
            self._inner.ask(key, *commands)

    def _pool(self, key: bytes) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._inner.close()


class Store:
    """One prefix on the shared server, and handles on it."""

    def __init__(self) -> None:
        self.prefix = f"test-{uuid.uuid4().hex[:16]}"
        self.client = redis.Redis.from_url(server_address("redis"))
        self._open: list[RedisCellServer] = []

    def handle(self) -> tuple[RedisCellServer, HoldingLink]:
        options = RedisOptions(prefix=self.prefix, retry_s=0)
        target = read_target(read_location(parse_address(server_address("redis"))), options)
        link = HoldingLink(ServerLink(target, options))
        server = RedisCellServer(link, options, ask_info(link, b""))
        self._open.append(server)
        return server, link

    def redis_keys(self) -> set[str]:
        return {
            key.decode().removeprefix(self.prefix) for key in self.client.scan_iter(match=f"{self.prefix}*")
        }

    def close(self) -> None:
        for server in self._open:
            server.close()
        for key in self.client.scan_iter(match=f"{self.prefix}*", count=1000):
            self.client.unlink(key)
        self.client.close()


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store()
    yield opened
    opened.close()


@pytest.fixture
def server(store: Store) -> RedisCellServer:
    return store.handle()[0]


def write(server: RedisCellServer, puts: dict[bytes, bytes], fence: int = 0, **more: Any) -> bool:
    given = {"deletes": (), "ttl_s": None, "exclusive": False, **more}
    return server.write_plain("words", puts, given.pop("deletes"), fence=fence, **given)


def rows(server: RedisCellServer) -> dict[bytes, bytes]:
    return dict(server.scan_plain("words", b""))


# -- plain rows ----------------------------------------------------------------------------------


def test_a_batch_is_one_round_trip_each_way(store: Store) -> None:
    server, link = store.handle()
    write(server, {b"warm": b"up"})
    link.round_trips = 0
    write(server, {b"key-%d" % n: b"value" for n in range(1000)}, deletes=[b"warm"])
    assert link.round_trips == 1
    assert len(server.read_plain("words", [b"key-%d" % n for n in range(1000)])) == 1000
    assert link.round_trips == 2


def test_a_commit_is_one_round_trip(store: Store) -> None:
    server, link = store.handle()
    stamp = server.new_stamp("words", 0)
    link.round_trips = 0
    assert server.commit("words", 1, b"record", stamp, {b"key-%d" % n: b"value" for n in range(1000)})
    assert server.new_stamp("words", stamp) > stamp
    assert link.round_trips == 1


def test_a_lower_or_higher_fence_changes_nothing(store: Store) -> None:
    server, _ = store.handle()
    other, _ = store.handle()
    assert write(server, {b"a": b"1"})
    other.fence("words", 3, exclusive=True)
    before = store.redis_keys()
    assert not write(server, {b"a": b"2", b"b": b"2"})
    assert not write(server, {b"a": b"2"}, fence=7)
    assert not write(server, {}, deletes=[b"a"])
    assert write(other, {b"c": b"3"}, fence=3)
    assert rows(server) == rows(other) == {b"a": b"1", b"c": b"3"}
    assert store.redis_keys() == before


def test_a_fence_never_goes_down(store: Store) -> None:
    server, _ = store.handle()
    other, _ = store.handle()
    server.fence("words", 5, exclusive=True)
    other.fence("words", 4, exclusive=True)
    assert not write(other, {b"a": b"1"}, fence=4)
    assert write(server, {b"a": b"1"}, fence=5)


def test_a_write_that_arrives_after_a_fence_is_never_seen(store: Store) -> None:
    server, link = store.handle()
    other, _ = store.handle()
    write(server, {b"a": b"old"})
    link.hold_next = True
    with pytest.raises(NotNowError):
        write(server, {b"a": b"late", b"b": b"late"})
    other.fence("words", 1, exclusive=True)
    write(other, {b"a": b"new"}, fence=1)
    before = store.redis_keys()
    link.deliver()
    assert rows(other) == {b"a": b"new"}
    assert store.redis_keys() == before


def test_a_write_without_an_answer_never_overtakes_the_next_one(store: Store) -> None:
    server, link = store.handle()
    other, _ = store.handle()
    write(server, {b"a": b"1"})
    rows(other)
    link.hold_next = True
    with pytest.raises(NotNowError):
        write(server, {b"a": b"2"})
    assert write(server, {b"a": b"3"})
    link.deliver()
    assert rows(server) == {b"a": b"3"}
    # Another handle, which knows the rows where they were, finds them too.
    assert other.read_plain("words", [b"a"]) == {b"a": b"3"}
    assert write(other, {b"b": b"4"})
    assert rows(server) == {b"a": b"3", b"b": b"4"}


def test_what_another_thread_has_heard_before_does_not_end_a_doubt(store: Store) -> None:
    server, link = store.handle()
    for value in (b"1", b"2"):
        link.hold_next = True
        with pytest.raises(NotNowError):
            write(server, {b"a": value})
    # As if an answer from before the rows were moved had been waiting for the processor until now.
    assert server._rows._places["words"] > RowPlace(0, 0)
    server._rows._places["words"] = RowPlace(0, 0)
    assert write(server, {b"a": b"3"})
    link.deliver()
    assert rows(server) == {b"a": b"3"}


def test_a_clearing_that_arrives_late_clears_nothing(store: Store) -> None:
    server, link = store.handle()
    write(server, {b"a": b"1"})
    server.read_plain("words", [b"a"])
    link.hold_next, link.holds = True, b"EVAL"
    with pytest.raises(NotNowError):
        server.clear_plain("words")
    server.clear_plain("words")
    write(server, {b"b": b"2"})
    link.deliver()
    assert rows(server) == {b"b": b"2"}


def test_clearing_leaves_no_redis_key_of_the_rows(store: Store) -> None:
    server, _ = store.handle()
    write(server, {b"a": b"1"}, ttl_s=10)
    server.clear_plain("words")
    assert rows(server) == {}
    assert store.redis_keys() == {":{words}:ledger"}


def test_deletes_leave_no_trace(store: Store) -> None:
    server, _ = store.handle()
    write(server, {b"a": b"1", b"b": b"2"}, ttl_s=100)
    write(server, {}, deletes=[b"a", b"b", b"never"])
    assert rows(server) == {}
    assert not any("rows" in key or "order" in key or "expiry" in key for key in store.redis_keys())


def sweep_all(store: Store) -> None:
    """As if an hour had passed: everything that can expire has."""
    for key in store.client.scan_iter(match=f"{store.prefix}*expiry*"):
        for member in store.client.zrange(key, 0, -1):
            store.client.zadd(key, {member: 1})


def test_expired_rows_are_swept_a_few_with_each_write(store: Store) -> None:
    server, _ = store.handle()
    write(server, {b"key-%d" % n: b"value" for n in range(500)}, ttl_s=1)
    write(server, {b"stays": b"1"})
    sweep_all(store)
    for n in range(3):
        write(server, {b"other-%d" % n: b"1"})
    assert set(rows(server)) == {b"stays", b"other-0", b"other-1", b"other-2"}
    assert not any("expiry" in key for key in store.redis_keys())


def test_a_row_written_again_without_a_time_to_live_is_not_swept(store: Store) -> None:
    server, _ = store.handle()
    other, _ = store.handle()
    write(other, {b"other": b"1"})
    write(server, {b"a": b"1", b"b": b"1", b"c": b"1"}, ttl_s=1)
    sweep_all(store)
    # This handle does not know yet that rows expire here; what it writes is due for sweeping.
    write(other, {b"a": b"2"})
    write(server, {b"b": b"2"}, ttl_s=1000)
    write(other, {b"d": b"2"})
    assert rows(server) == {b"a": b"2", b"b": b"2", b"d": b"2", b"other": b"1"}


def test_a_commit_beyond_what_one_request_takes_is_split(
    server: RedisCellServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_requests, "_LARGEST_REQUEST_BYTES", 1000)
    puts = {b"key-%02d" % n: bytes(90) for n in range(50)}
    stamp = server.new_stamp("store", 0)
    assert server.commit("store", 1, b"record", stamp, puts)
    assert not server.commit("store", 1, b"record", stamp + 1, puts)
    assert {key: raw for key, _, raw in server.scan_cells("store", b"", stamp + 1)} == puts
    assert all(found == stamp for _, found, _ in server.scan_cells("store", b"", stamp + 1))


def test_plain_puts_beyond_one_request_are_refused_as_a_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis declares `atomic_put`: in two requests, a crash between them would leave half of the puts."""
    monkeypatch.setattr(redis_requests, "_LARGEST_REQUEST_BYTES", 1000)
    server, link = store.handle()
    link.round_trips = 0
    with pytest.raises(ConfigError, match=r"2 puts to namespace 'words' .* 1,004 bytes.*1,000.*fewer"):
        write(server, {b"be": bytes(500), b"or": bytes(500)}, deletes=[b"none"])
    assert link.round_trips == 0
    assert write(server, {b"be": bytes(2000)}), "a single value is whole at any size that the server takes"


def test_a_value_that_is_too_large_is_named_before_anything_is_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, link = store.handle()
    server._requests._largest_value_bytes = 1000
    link.round_trips = 0
    with pytest.raises(ConfigError, match=r"key b'big' of namespace 'words' has 1,000 bytes.*split"):
        write(server, {b"a": b"1", b"big": bytes(1000)})
    assert link.round_trips == 0


def test_scanning_takes_no_more_memory_for_more_rows(server: RedisCellServer) -> None:
    def peak_bytes(count: int) -> int:
        for start in range(0, count, 5000):
            write(server, {b"key-%06d" % n: bytes(300) for n in range(start, start + 5000)})
        tracemalloc.start()
        seen = sum(1 for _ in server.scan_plain("words", b""))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seen == count
        return peak

    small, large = peak_bytes(5000), peak_bytes(30_000)
    assert large < 1.5 * small < 8 << 20


def test_a_page_of_large_values_is_short(store: Store) -> None:
    server, link = store.handle()
    for n in range(6):
        write(server, {b"%d" % n: bytes(1 << 20)})
    link.round_trips = 0
    assert len(rows(server)) == 6
    assert link.round_trips >= 6


def test_a_scan_goes_on_where_it_was_when_the_rows_move(store: Store) -> None:
    server, _ = store.handle()
    other, _ = store.handle()
    puts = {b"key-%04d" % n: b"%d" % n for n in range(2000)}
    write(server, puts)
    scan = server.scan_plain("words", b"")
    seen = [next(scan) for _ in range(100)]
    other.fence("words", 9, exclusive=True)
    assert seen + list(scan) == sorted(puts.items())


@pytest.mark.parametrize("prefix", [b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"\x00", b"b"])
def test_prefixes_find_exactly_what_starts_with_them(server: RedisCellServer, prefix: bytes) -> None:
    keys = [b"", b"\0", b"\0a", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"ab", b"b", b"\xff", b"\xff\xff\x01"]
    write(server, dict.fromkeys(keys, b"1"))
    stamp = server.new_stamp("words", 0)
    server.write_cells("words", stamp, dict.fromkeys(keys, b"1"))
    expected = sorted(key for key in keys if key.startswith(prefix))
    assert [key for key, _ in server.scan_plain("words", prefix)] == expected
    assert [key for key, _, _ in server.scan_cells("words", prefix, stamp)] == expected


# -- the ledger ----------------------------------------------------------------------------------


def test_records_are_added_one_after_the_other(server: RedisCellServer) -> None:
    assert server.load("words", 0) == []
    assert not server.append("words", 2, b"two", fences=False)
    assert server.append("words", 1, b"one", fences=False)
    assert not server.append("words", 1, b"one again", fences=False)
    assert server.append("words", 2, b"two", fences=False)
    assert server.load("words", 0) == [(1, b"one"), (2, b"two")]
    assert server.load("words", 1) == [(2, b"two")]
    assert server.load("words", 2) == []
    with pytest.raises(BackendUnavailableError, match="lost records of namespace 'words'"):
        server.load("words", 3)


def test_what_was_forgotten_still_counts(server: RedisCellServer) -> None:
    for number in range(1, 2501):
        server.append("words", number, b"%d" % number, fences=False)
    server.forget("words", 2499)
    assert server.load("words", 0) == [(2499, b"2499"), (2500, b"2500")]
    server.forget("words", 7)
    server.forget("words", 9999)
    assert server.load("words", 0) == []
    assert not server.append("words", 1, b"one", fences=False)
    assert server.append("words", 2501, b"next", fences=False)
    assert server.load("words", 0) == [(2501, b"next")]


def test_one_of_many_adds_the_next_record(store: Store) -> None:
    won: list[int] = []

    def append(number: int) -> None:
        server, _ = store.handle()
        if server.append("words", 1, b"%d" % number, fences=False):
            won.append(number)

    threads = [threading.Thread(target=append, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = won
    assert store.handle()[0].load("words", 0) == [(1, b"%d" % winner)]


def test_stamps_are_given_once(store: Store) -> None:
    one, _ = store.handle()
    other, _ = store.handle()
    given: list[int] = []
    for n in range(30):
        given.append(one.new_stamp("words", 0))
        given.append(other.new_stamp("words", 0))
        given.append(one.new_stamp("words", given[-1] if n % 5 == 0 else 0))
    assert len(set(given)) == len(given)
    high = given[-1] + 10_000_000_000
    assert other.new_stamp("words", high) > high
    assert one.new_stamp("words", given[-1]) > given[-1]


# -- cells ---------------------------------------------------------------------------------------


def test_a_refused_commit_leaves_nothing(store: Store) -> None:
    server, _ = store.handle()
    first, second = server.new_stamp("words", 0), server.new_stamp("words", 0)
    assert server.commit("words", 1, b"one", first, {b"a": b"1"})
    before = store.redis_keys()
    assert not server.commit("words", 1, b"other", second, {b"a": b"2", b"b": b"2"})
    assert not server.commit("words", 3, b"other", second, {b"a": b"2", b"b": b"2"})
    assert list(server.scan_cells("words", b"", second)) == [(b"a", first, b"1")]
    assert server.load("words", 0) == [(1, b"one")]
    assert store.redis_keys() == before
    assert store.client.hlen(f"{store.prefix}:{{words}}:cells") == 1


def test_a_second_attempt_at_a_commit_that_counts_takes_nothing_away(store: Store) -> None:
    server, _ = store.handle()
    stamp = server.new_stamp("words", 0)
    assert server.commit("words", 1, b"one", stamp, {b"a": b"1"})
    assert not server.commit("words", 1, b"one", stamp, {b"a": b"1"})
    assert server.newest_cells("words", {b"a": stamp}) == {b"a": (stamp, b"1")}


def test_a_commit_that_arrives_after_its_cells_were_cleaned_brings_nothing_back(store: Store) -> None:
    server, link = store.handle()
    stamp = server.new_stamp("words", 0)
    link.hold_next = True
    with pytest.raises(NotNowError):
        server.commit("words", 1, b"one", stamp, {b"a": b"1"})
    assert server.commit("words", 1, b"one", stamp, {b"a": b"1"})
    server.remove_cells("words", {b"a": stamp})
    link.deliver()
    assert list(server.scan_cells("words", b"", stamp)) == []


def test_cells_are_cleared_up_to_a_stamp(store: Store) -> None:
    server, _ = store.handle()
    old, new = server.new_stamp("words", 0), server.new_stamp("words", 0)
    server.write_cells("words", old, {b"key-%d" % n: b"1" for n in range(3000)})
    server.write_cells("words", new, {b"a": b"2"})
    server.clear_cells("words", old)
    assert list(server.scan_cells("words", b"", new)) == [(b"a", new, b"2")]
    server.clear_cells("words", new)
    assert list(server.scan_cells("words", b"", new)) == []
    assert not any("cell" in key for key in store.redis_keys())


keys = st.binary(max_size=4) | st.sampled_from([b"", b"\0", b"\0\1", b"\0\xff", b"a", b"a\0", b"ab"])


@settings(
    max_examples=effort(15, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.tuples(st.just("write"), st.dictionaries(keys, st.binary(max_size=3), max_size=5))
        | st.tuples(st.just("remove"), st.dictionaries(keys, st.integers(1, 30), max_size=5))
        | st.tuples(st.just("clear"), st.integers(1, 30)),
        max_size=12,
    ),
    bound=st.integers(1, 30),
    prefix=st.binary(max_size=2),
)
def test_cells_agree_with_a_model(store: Store, steps: list[Any], bound: int, prefix: bytes) -> None:
    server, _ = store.handle()
    namespace = uuid.uuid4().hex
    model: dict[bytes, dict[int, bytes]] = {}
    for stamp, (kind, what) in enumerate(steps, 1):
        if kind == "write":
            server.write_cells(namespace, stamp, what)
            for key, value in what.items():
                model.setdefault(key, {})[stamp] = value
        else:
            through = dict.fromkeys(model, what) if kind == "clear" else what
            if kind == "clear":
                server.clear_cells(namespace, what)
            else:
                server.remove_cells(namespace, what)
            for key, last in through.items():
                model[key] = {s: v for s, v in model.get(key, {}).items() if s > last}
    expected = [
        (key, stamp, model[key][stamp])
        for key in sorted(model)
        if key.startswith(prefix)
        for stamp in sorted(model[key], reverse=True)
        if stamp <= bound
    ]
    assert list(server.scan_cells(namespace, prefix, bound)) == expected
    newest = {key: (stamp, value) for key, stamp, value in reversed(expected)}
    found = server.newest_cells(namespace, dict.fromkeys(model, bound))
    assert {key: cell for key, cell in found.items() if key.startswith(prefix)} == newest


# -- names ---------------------------------------------------------------------------------------


@given(key=st.binary(), stamp=st.integers(1, 2**63), other=st.binary(), later=st.integers(1, 2**63))
def test_cell_names_sort_by_key_and_then_newest_first(
    key: bytes, stamp: int, other: bytes, later: int
) -> None:
    assert split_cell_name(cell_name(key, stamp)) == (key, stamp)
    assert (cell_name(key, stamp) < cell_name(other, later)) == ((key, -stamp) < (other, -later))


@given(prefix=st.binary(max_size=3), key=st.binary(max_size=5))
def test_ranges_hold_what_starts_with_the_prefix(prefix: bytes, key: bytes) -> None:
    low, high = starting_with(prefix)
    above = low == b"-" or key >= low[1:]
    below = high == b"+" or key < high[1:]
    assert (above and below) == key.startswith(prefix)


@given(namespace=st.text(min_size=1))
def test_every_key_of_a_namespace_has_one_hash_tag(namespace: str) -> None:
    layout = RedisLayout("ckpt")
    names = [
        layout.ledger(namespace),
        *layout.rows(namespace, RowPlace(3, 4)),
        *layout.cells(namespace),
        *layout.parked_cells(namespace),
    ]
    tags = {name[name.index(b"{") + 1 : name.index(b"}")] for name in names}
    assert len(tags) == 1
    assert tags != {b""}


@given(commands=st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=5), min_size=1, max_size=4))
def test_commands_are_packed_as_the_driver_packs_them(commands: list[list[bytes]]) -> None:
    named = [[b"GET", *arguments] for arguments in commands]
    assert b"".join(packed(named)) == b"".join(redis.Connection().pack_commands(named))
