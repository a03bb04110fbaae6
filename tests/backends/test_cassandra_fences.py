"""Requests that arrive late, however late: what was written under a lower fence is not seen."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cassandra import OperationTimedOut
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt.contract.addresses import parse_address
from ckpt_backends.cassandra import CassandraOptions
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, connect
from ckpt_backends.cassandra.options import read_target
from ckpt_backends.cassandra.schema import Cql, prepare
from ckpt_backends.cassandra.server import CassandraCellServer
from ckpt_backends.cells import NotNowError
from ckpt_backends.cells.access import read_location
from tests.effort import effort


class Holding:
    """Stands before a link: holds requests of one kind, which nobody answers, and delivers them later."""

    def __init__(self, link: CassandraLink) -> None:
        self._send = link.send
        self.holds: Callable[[Cql], bool] = lambda cql: False
        self.held: list[PartitionRequest] = []
        link.send = self.send

    def send(self, request: PartitionRequest) -> Any:
        if self.holds(request.statements[0][0]):
            self.held.append(request)
            raise OperationTimedOut
        return self._send(request)

    def deliver(self) -> None:
        """What was held arrives at last; who sent it has gone."""
        while self.held:
            self._send(self.held.pop(0)).result()


ROWS = frozenset({Cql.PUT, Cql.PUT_FOR})


def rows(cql: Cql) -> bool:
    return cql in ROWS


Open = Callable[[], tuple[CassandraCellServer, Holding]]


@pytest.fixture
def opened(cassandra_keyspace: str) -> Iterator[Open]:
    """Opens handles on one store of this test."""
    options = CassandraOptions(prefix=uuid.uuid4().hex)
    servers = []

    def open_one() -> tuple[CassandraCellServer, Holding]:
        link = connect(read_target(read_location(parse_address(cassandra_keyspace)), options), options)
        prepare(link, options)
        server = CassandraCellServer(link, options)
        servers.append(server)
        return server, Holding(link)

    yield open_one
    for server in servers:
        server.close()


def put(
    server: CassandraCellServer, fence: int, items: dict[bytes, bytes], deletes: tuple[bytes, ...] = ()
) -> bool:
    return server.write_plain("words", items, deletes, ttl_s=None, fence=fence, exclusive=False)


def seen(server: CassandraCellServer) -> dict[bytes, bytes]:
    return dict(server.scan_plain("words", b""))


def claim(server: CassandraCellServer, number: int) -> None:
    server.fence("words", number, exclusive=True)


def test_rows_that_arrive_after_a_fence_change_nothing(opened: Open) -> None:
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    assert put(old, 0, {b"kept": b"1", b"replaced": b"1", b"removed": b"1", b"dead": b"1"}, (b"gone",))
    assert put(old, 0, {}, (b"dead",))
    network.holds = rows
    with pytest.raises(NotNowError):
        put(
            old, 0, {b"kept": b"late", b"replaced": b"late", b"dead": b"late", b"new": b"late"}, (b"removed",)
        )
    claim(new, 1)
    before = {b"kept": b"1", b"replaced": b"1", b"removed": b"1"}
    assert seen(new) == before
    assert put(new, 1, {b"replaced": b"2"})
    network.deliver()
    assert seen(new) == before | {b"replaced": b"2"}
    assert new.read_plain("words", [b"kept", b"dead", b"new"]) == {b"kept": b"1"}
    network.holds = lambda _: False
    assert put(old, 0, {b"kept": b"later"}) is False
    assert seen(new) == before | {b"replaced": b"2"}


def test_an_announcement_that_arrives_after_a_fence_admits_nobody(opened: Open) -> None:
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    assert put(old, 0, {b"a": b"1"})
    network.holds = lambda cql: cql is Cql.ANNOUNCE
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"late"})
    claim(new, 1)
    network.deliver()
    network.holds = lambda _: False
    assert put(old, 0, {b"a": b"late"}) is False
    assert put(new, 1, {b"b": b"2"})
    assert seen(new) == {b"a": b"1", b"b": b"2"}


def test_a_write_is_not_acknowledged_if_a_fence_went_up_meanwhile(opened: Open) -> None:
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    claimed: list[int] = []

    def claim_between(cql: Cql) -> bool:
        if cql in ROWS and not claimed:
            claimed.append(1)
            claim(new, 1)
        return False

    network.holds = claim_between
    assert put(old, 0, {b"a": b"late"}) is False
    assert seen(new) == {}


def test_a_write_given_up_does_not_undo_a_later_one_of_the_same_handle(opened: Open) -> None:
    server, network = opened()
    server.register("words")
    network.holds = rows
    with pytest.raises(NotNowError):
        put(server, 0, {b"a": b"given up", b"b": b"given up"})
    network.holds = lambda _: False
    assert put(server, 0, {b"a": b"2"}, (b"b",))
    network.deliver()
    assert seen(server) == {b"a": b"2"}


def test_what_was_given_up_long_ago_is_still_feared(opened: Open) -> None:
    """Its announcement outlives later writes of the same handle to other keys."""
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    network.holds = rows
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"given up"})
    network.holds = lambda _: False
    for n in range(5):
        assert put(old, 0, {b"other": b"%d" % n})
    claim(new, 1)
    network.deliver()
    assert seen(new) == {b"other": b"4"}


def test_rows_that_arrive_after_a_drop_stay_dropped(opened: Open) -> None:
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    assert put(old, 0, {b"a": b"1"})
    network.holds = rows
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"late", b"b": b"late"})
    claim(new, 1)
    new.clear_plain("words")
    assert seen(new) == {}
    network.deliver()
    assert seen(new) == {}
    assert put(new, 1, {b"a": b"2"})
    new.clear_plain("words")
    assert seen(new) == {b"a": b"2"}, "a clear removes what was there when the fence went up, and no more"


def test_a_fence_that_nobody_has_settled_admits_nobody_until_it_is_put_up_again(opened: Open) -> None:
    (old, network), (crashing, trouble), (new, _) = opened(), opened(), opened()
    new.register("words")
    assert put(old, 0, {b"a": b"1"})
    network.holds = rows
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"late"})
    trouble.holds = lambda cql: cql is Cql.READ_INTENTS
    with pytest.raises(NotNowError):
        claim(crashing, 1)
    assert put(new, 1, {b"b": b"2"}) is False
    claim(new, 1)
    assert put(new, 1, {b"b": b"2"})
    network.deliver()
    assert seen(new) == {b"a": b"1", b"b": b"2"}


def test_a_rewrite_of_an_owner_that_was_taken_over_arrives_late(opened: Open) -> None:
    (old, network), (second, trouble), (third, _) = opened(), opened(), opened()
    third.register("words")
    assert put(old, 0, {b"a": b"1"})
    network.holds = rows
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"late", b"b": b"late"})
    trouble.holds = lambda cql: cql is Cql.PUT_AT
    with pytest.raises(NotNowError):
        claim(second, 1)
    claim(third, 2)
    assert put(third, 2, {b"a": b"3"})
    trouble.deliver()
    network.deliver()
    assert seen(third) == {b"a": b"3"}


def test_the_last_write_wins_whatever_the_clocks_say(opened: Open) -> None:
    (ahead, _), (behind, _) = opened(), opened()
    behind.register("words")
    ahead._rows._fences._clock.see(time.time_ns() // 1000 + 3_600_000_000)
    assert put(ahead, 0, {b"a": b"an hour ahead"})
    assert put(behind, 0, {b"a": b"last"})
    assert seen(ahead) == {b"a": b"last"}


def test_time_to_live_survives_a_rewrite(opened: Open) -> None:
    (old, network), (new, _) = opened(), opened()
    new.register("words")
    assert old.write_plain("words", {b"a": b"1"}, (), ttl_s=3600, fence=0, exclusive=False)
    network.holds = rows
    with pytest.raises(NotNowError):
        put(old, 0, {b"a": b"late"})
    claim(new, 1)
    assert seen(new) == {b"a": b"1"}
    (_, _, left_s), *_ = new._rows._buckets.named("words", Cql.GET_WITH_TTL, [b"a"])
    assert 3600 < left_s <= 2 * 3600 + 60


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.sets(KEYS, min_size=1)),
        st.tuples(st.just("delete"), st.integers(0, 1), st.sets(KEYS, min_size=1)),
        st.tuples(st.just("held"), st.integers(0, 1), st.sets(KEYS, min_size=1)),
        st.tuples(st.just("claim"), st.integers(0, 1), st.just(frozenset())),
        st.tuples(st.just("deliver"), st.integers(0, 1), st.just(frozenset())),
    ),
    max_size=14,
)


@settings(max_examples=effort(10, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_two_owners_in_turn_and_requests_that_linger(opened: Open, steps: list[tuple[str, int, Any]]) -> None:
    """What the newest owner sees changes only by what it writes itself, or still has under way itself."""
    handles = _two(opened)
    namespace = uuid.uuid4().hex
    for server, network in handles:
        network.held.clear()
        server.register(namespace)
    fence = 0
    model: dict[bytes, bytes] = {}
    own_doubts: set[bytes] = set()
    fences_of = [0, 0]
    for number, (step, who, keys) in enumerate(steps):
        server, network = handles[who]
        value = b"%d" % number
        puts = {} if step == "delete" else dict.fromkeys(keys, value)
        gone = sorted(keys) if step == "delete" else []

        def write() -> bool:
            return server.write_plain(namespace, puts, gone, ttl_s=None, fence=fences_of[who], exclusive=True)  # noqa: B023

        if step in ("write", "delete"):
            assert write() is (fences_of[who] == fence)
            if fences_of[who] == fence:
                model = {key: v for key, v in (model | puts).items() if key not in gone}
                own_doubts -= set(keys)
        elif step == "held":
            network.holds = rows
            if fences_of[who] == fence:
                with pytest.raises(NotNowError):
                    write()
                own_doubts |= set(keys)
            else:
                assert write() is False
            network.holds = lambda _: False
        elif step == "claim":
            fence += 1
            fences_of[who] = fence
            server.fence(namespace, fence, exclusive=True)
            model = dict(server.scan_plain(namespace, b""))
            own_doubts = set()
        else:
            network.deliver()
        found = dict(handles[0][0].scan_plain(namespace, b""))
        settled = {key: v for key, v in found.items() if key not in own_doubts}
        assert settled == {key: v for key, v in model.items() if key not in own_doubts}


_PAIRS: dict[int, list[tuple[CassandraCellServer, Holding]]] = {}


def _two(opened: Open) -> list[tuple[CassandraCellServer, Holding]]:
    """The same two handles for every example of one test: opening takes longer than all else."""
    if id(opened) not in _PAIRS:
        _PAIRS.clear()
        _PAIRS[id(opened)] = [opened(), opened()]
    return _PAIRS[id(opened)]
