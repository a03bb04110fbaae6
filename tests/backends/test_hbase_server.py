"""What HBase promises as a server of rows, cells, ledgers and fences, also when answers are lost."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import happybase
import pytest

from ckpt.contract.addresses import parse_address
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt_backends.cells import NotNowError
from ckpt_backends.hbase.connections import Connections, Endpoint
from ckpt_backends.hbase.options import HBaseOptions
from ckpt_backends.hbase.server import HBaseCellServer

WRITES = {"mutateRow", "mutateRowsTs", "checkAndPut", "atomicIncrement"}


class Interceptor(Connections):
    """Lets a test do something before and after each request."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda method: None
        self.after: Callable[[str], None] = lambda method: None
        """What it raises is the answer, although the request was done."""

    def call(self, method: str, *arguments: object) -> Any:
        self.before(method)
        self.asked.append(method)
        answer = super().call(method, *arguments)
        self.after(method)
        return answer


class Handle(HBaseCellServer):
    """A server whose requests a test can watch and disturb."""

    def __init__(self, host: str, port: int, table: str, options: HBaseOptions) -> None:
        self.requests = Interceptor(Endpoint.of(host, port, options))
        super().__init__(self.requests, table, options)
        self.ensure_store()

    def put(self, puts: dict[bytes, bytes], *, fence: int = 0, deletes: list[bytes] | None = None) -> bool:
        return self.write_plain("n", puts, deletes or [], ttl_s=None, fence=fence, exclusive=fence > 0)

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.scan_plain("n", b""))


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def open_handle(hbase_table: str, prefix: str) -> Iterator[Callable[[], Handle]]:
    location, _, table = parse_address(hbase_table).location.partition("/")
    host, _, port = location.partition(":")
    opened: list[Handle] = []

    def open_one() -> Handle:
        opened.append(Handle(host, int(port), table, HBaseOptions(prefix=prefix)))
        return opened[-1]

    yield open_one
    for handle in opened:
        handle.requests.before = handle.requests.after = lambda method: None
        handle.close()


@pytest.fixture
def stored(hbase_table: str, prefix: str) -> Iterator[Callable[[], dict[bytes, set[bytes]]]]:
    """Row to columns, of everything below the prefix, as an operator finds it."""
    location, _, table = parse_address(hbase_table).location.partition("/")
    host, _, port = location.partition(":")
    connection = happybase.Connection(host, int(port))
    start = f"D{prefix}".encode()
    yield lambda: {row: set(cells) for row, cells in connection.table(table).scan(row_prefix=start)}
    connection.close()


# -- the ledger ----------------------------------------------------------------------------------


def test_only_one_of_many_adds_the_next_record(open_handle: Callable[[], Handle]) -> None:
    handles = [open_handle() for _ in range(4)]
    start = threading.Barrier(len(handles))

    def race(number: int) -> list[int]:
        won = []
        start.wait()
        for next_number in range(1, 6):
            record = b"%d-%d" % (number, next_number)
            if handles[number].append("n", next_number, record, fences=False):
                won.append(next_number)
        return won

    with ThreadPoolExecutor(len(handles)) as pool:
        won = [one for wins in pool.map(race, range(len(handles))) for one in wins]
    assert len(won) == len(set(won))
    records = [handle.load("n", 0) for handle in handles]
    assert all(one == records[0] for one in records)
    assert [number for number, _ in records[0]] == sorted(won)


def test_a_ledger_of_many_records_is_read_whole_and_forgotten(open_handle: Callable[[], Handle]) -> None:
    one, other = open_handle(), open_handle()
    expected = [(number, b"record %d" % number) for number in range(1, 101)]
    for number, record in expected:
        assert one.append("n", number, record, fences=False)
    for after in (0, 10, 40, 99, 100):
        assert other.load("n", after) == expected[after:]
    assert not other.append("n", 50, b"late", fences=False)
    one.forget("n", 90)
    assert other.load("n", 0) == other.load("n", 60) == expected[89:]
    assert not open_handle().append("n", 50, b"late", fences=False)
    assert open_handle().append("n", 101, b"next", fences=False)


def test_a_record_that_lost_is_not_seen_and_is_removed(
    open_handle: Callable[[], Handle], hbase_table: str, prefix: str
) -> None:
    loser, winner = open_handle(), open_handle()

    def overtaken(method: str) -> None:
        if method == "checkAndPut":
            loser.requests.before = lambda method: None
            assert winner.append("n", 1, b"first", fences=False)

    loser.requests.before = overtaken
    assert not loser.append("n", 1, b"second", fences=False)
    assert loser.load("n", 0) == [(1, b"first")]
    winner.forget("n", 1)
    location, _, table = parse_address(hbase_table).location.partition("/")
    connection = happybase.Connection(location.partition(":")[0], int(location.partition(":")[2]))
    (row,) = [cells for _, cells in connection.table(table).scan(row_prefix=f"M{prefix}".encode())]
    connection.close()
    assert [value[8:] for column, value in row.items() if column.startswith(b"meta:r")] == [b"first"]


@pytest.mark.parametrize("others", [0, 3])
def test_a_record_whose_answer_was_lost_is_added_once(open_handle: Callable[[], Handle], others: int) -> None:
    one, other = open_handle(), open_handle()
    assert one.append("n", 1, b"1", fences=False)
    one.requests.after = lose("checkAndPut")
    with pytest.raises(NotNowError):
        one.append("n", 2, b"2", fences=False)
    one.requests.after = lambda method: None
    for number in range(3, 3 + others):
        assert other.append("n", number, b"other", fences=False)
    assert one.append("n", 2, b"2", fences=False)
    assert [number for number, _ in other.load("n", 0)] == list(range(1, 3 + others))


def lose(method: str) -> Callable[[str], None]:
    """Loses the answers to one kind of request."""

    def after(asked: str) -> None:
        if asked == method:
            raise NotNowError("the answer was lost")

    return after


def lose_nth(number: int) -> Callable[[str], None]:
    """Loses the answer to one request that writes, counted from 0."""
    left = iter(range(number))

    def after(asked: str) -> None:
        if asked in WRITES and next(left, None) is None:
            raise NotNowError("the answer was lost")

    return after


# -- stamps and cells ----------------------------------------------------------------------------


def test_stamps_are_unique_and_high_enough(open_handle: Callable[[], Handle]) -> None:
    handles = [open_handle() for _ in range(4)]
    with ThreadPoolExecutor(len(handles)) as pool:
        drawn = list(pool.map(lambda n: handles[n % 4].new_stamp("n", 50 * (n % 3)), range(60)))
    assert len(set(drawn)) == len(drawn)
    assert all(stamp > 50 * (n % 3) for n, stamp in enumerate(drawn))


def test_cells_are_found_by_stamp_and_removed_below_one(open_handle: Callable[[], Handle]) -> None:
    server = open_handle()
    big = b"b" * (3 << 20)
    for stamp, cells in {
        3: {b"a": b"a3", b"b": big},
        5: {b"a": b"a5"},
        9: {b"a": b"a9", b"c": b"c9"},
    }.items():
        server.write_cells("n", stamp, cells)
    assert server.newest_cells("n", {b"a": 8, b"b": 3, b"c": 8}) == {b"a": (5, b"a5"), b"b": (3, big)}
    assert list(server.scan_cells("n", b"", 4)) == [(b"a", 3, b"a3"), (b"b", 3, big)]
    assert list(server.scan_cells("n", b"c", 9)) == [(b"c", 9, b"c9")]
    server.remove_cells("n", {b"a": 5, b"b": 3})
    assert list(server.scan_cells("n", b"", 8)) == []
    assert list(server.scan_cells("n", b"", 9)) == [(b"a", 9, b"a9"), (b"c", 9, b"c9")]
    server.write_cells("n", 12, {b"a": b"a12", b"b": b"b12"})
    server.clear_cells("n", 9)
    assert list(server.scan_cells("n", b"", 99)) == [(b"a", 12, b"a12"), (b"b", 12, b"b12")]


# -- plain rows under a fence --------------------------------------------------------------------


def test_a_batch_is_not_seen_before_it_is_acknowledged(open_handle: Callable[[], Handle]) -> None:
    writer, reader = open_handle(), open_handle()
    assert writer.put({b"a": b"1", b"b": b"1"})
    seen: list[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = []

    def look(method: str) -> None:
        if method == "checkAndPut":
            seen.append((reader.rows(), reader.read_plain("n", [b"a", b"b", b"c"])))

    writer.requests.before = look
    assert writer.put({b"a": b"2", b"c": b"2"}, deletes=[b"b"])
    assert seen[-1] == ({b"a": b"1", b"b": b"1"}, {b"a": b"1", b"b": b"1"})
    assert reader.rows() == reader.read_plain("n", [b"a", b"b", b"c"]) == {b"a": b"2", b"c": b"2"}


@pytest.mark.parametrize("moment", ["mutateRowsTs", "checkAndPut"])
@pytest.mark.parametrize("exclusive", [True, False], ids=["claimed", "unclaimed"])
@pytest.mark.parametrize("earlier", [1, 4], ids=["first", "later"])
def test_rows_that_arrive_behind_a_fence_are_never_seen(
    open_handle: Callable[[], Handle], moment: str, exclusive: bool, earlier: int
) -> None:
    zombie, owner = open_handle(), open_handle()
    zombie.fence("n", 1, exclusive=exclusive)
    for _ in range(earlier):
        assert zombie.put({b"a": b"old", b"gone": b"old"}, fence=1)

    def overtaken(method: str) -> None:
        if method == moment and zombie.requests.asked.count("mutateRowsTs") >= earlier:
            zombie.requests.before = lambda method: None
            owner.fence("n", 2, exclusive=True)
            assert owner.put({b"b": b"new"}, fence=2)

    zombie.requests.before = overtaken
    assert not zombie.put({b"a": b"late", b"b": b"late", b"c": b"late"}, deletes=[b"gone"], fence=1)
    expected = {b"a": b"old", b"b": b"new", b"gone": b"old"}
    for handle in (zombie, owner, open_handle()):
        assert handle.rows() == expected
        assert handle.read_plain("n", [b"a", b"b", b"c", b"gone"]) == expected
    assert not zombie.put({b"d": b"later still"}, fence=1)
    assert owner.put({b"c": b"new"}, fence=2)
    assert owner.rows() == {**expected, b"c": b"new"}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("earlier", [0, 3], ids=["first", "later"])
def test_a_lost_answer_changes_nothing_about_a_batch(
    open_handle: Callable[[], Handle], earlier: int, number: int
) -> None:
    writer, reader = open_handle(), open_handle()
    for _ in range(earlier):
        assert writer.put({b"a": b"0", b"gone": b"0"})
    writer.requests.after = lose_nth(number)
    puts, deletes = {b"a": b"1"}, [b"gone"]

    def write() -> bool:
        return writer.write_plain("n", puts, deletes, ttl_s=None, fence=0, exclusive=False)

    try:
        assert write()
    except NotNowError:
        writer.requests.after = lambda method: None
        assert write()
    assert reader.rows() == {b"a": b"1"}
    writer.requests.after = lambda method: None
    assert writer.put({b"b": b"2"})
    assert reader.rows() == {b"a": b"1", b"b": b"2"}


def test_a_batch_that_failed_is_finished_before_the_next(open_handle: Callable[[], Handle]) -> None:
    writer, reader = open_handle(), open_handle()
    assert writer.put({b"a": b"0", b"b": b"0"})
    writer.requests.after = lose("mutateRowsTs")
    with pytest.raises(NotNowError):
        writer.put({b"a": b"1", b"b": b"1"})
    assert reader.rows() == {b"a": b"0", b"b": b"0"}
    writer.requests.after = lambda method: None
    assert writer.put({b"a": b"2"})
    assert reader.rows() == {b"a": b"2", b"b": b"1"}


def test_a_batch_that_can_never_be_written_does_not_block_the_next(open_handle: Callable[[], Handle]) -> None:
    writer = open_handle()

    def refuse(method: str) -> None:
        if method == "mutateRowsTs":
            raise ConfigError("too large")

    writer.requests.before = refuse
    with pytest.raises(ConfigError):
        writer.put({b"a": b"1"})
    writer.requests.before = lambda method: None
    assert writer.put({b"b": b"2"})
    assert writer.rows() == {b"b": b"2"}


def test_the_last_write_wins_whoever_makes_it(open_handle: Callable[[], Handle]) -> None:
    one, other, reader = open_handle(), open_handle(), open_handle()
    for number in range(4):
        assert one.put({b"a": b"one %d" % number})
    for number in range(6):
        writer = (other, one, one)[number % 3]
        assert writer.put({b"a": b"%d" % number, b"b": b"%d" % number})
        assert reader.rows() == {b"a": b"%d" % number, b"b": b"%d" % number}
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda n: (one, other)[n % 2].put({b"a": b"%d" % n, b"n%d" % n: b""}), range(40)))
    rows = reader.rows()
    assert len(rows) == 42
    assert reader.read_plain("n", [b"a"]) == {b"a": rows[b"a"]}


def test_a_batch_takes_two_requests_where_nobody_else_writes(open_handle: Callable[[], Handle]) -> None:
    writer = open_handle()
    for _ in range(3):
        assert writer.put({b"key-%d" % n: b"v" for n in range(1000)})
    writer.requests.asked.clear()
    assert writer.put({b"key-%d" % n: b"v" for n in range(1000)})
    assert writer.requests.asked == ["mutateRowsTs", "checkAndPut"]
    writer.requests.asked.clear()
    assert len(writer.read_plain("n", [b"key-%d" % n for n in range(1000)])) == 1000
    assert writer.requests.asked == ["getRowsWithColumns"]


def test_what_is_deleted_or_replaced_leaves_nothing_behind(
    open_handle: Callable[[], Handle], stored: Callable[[], dict[bytes, set[bytes]]]
) -> None:
    server = open_handle()
    assert server.put({b"gone": b"1", b"big": b"b" * (5 << 20)})
    assert server.put({b"big": b"small"}, deletes=[b"gone"])
    (left,) = stored().values()
    assert left == {b"data:checkpoint"}
    server.fence("n", 1, exclusive=False)
    server.clear_plain("n")
    assert server.rows() == {}
    assert stored() == {}
    assert server.put({b"big": b"again"}, fence=1)
    assert server.rows() == {b"big": b"again"}


def test_what_arrives_after_a_drop_is_never_seen(open_handle: Callable[[], Handle]) -> None:
    zombie, other = open_handle(), open_handle()

    def dropped(method: str) -> None:
        if method == "mutateRowsTs":
            zombie.requests.before = lambda method: None
            other.fence("n", 1, exclusive=False)
            other.clear_plain("n")

    zombie.requests.before = dropped
    assert not zombie.put({b"a": b"late"})
    assert other.rows() == other.read_plain("n", [b"a"]) == {}


def test_what_counts_survives_below_what_dead_writers_left(
    open_handle: Callable[[], Handle], hbase_table: str
) -> None:
    """HBase forgets old versions when it writes its memory to disk, which disabling a table makes it do."""
    owner = open_handle()
    owner.fence("n", 1, exclusive=True)
    big = b"b" * (2 << 20)
    assert owner.put({b"a": b"acknowledged", b"big": big, b"deleted": b"1"}, fence=1)
    assert owner.put({}, deletes=[b"deleted"], fence=1)
    for number in range(2, 14):
        dying = open_handle()
        dying.fence("n", number, exclusive=True)
        dying.requests.after = lose("mutateRowsTs")
        with pytest.raises(NotNowError):
            dying.put(dict.fromkeys([b"a", b"big", b"deleted", b"new"], b"unacknowledged"), fence=number)
    location, _, table = parse_address(hbase_table).location.partition("/")
    connection = happybase.Connection(location.partition(":")[0], int(location.partition(":")[2]))
    connection.disable_table(table)
    connection.enable_table(table)
    connection.compact_table(table, major=True)
    connection.close()
    assert owner.rows() == {b"a": b"acknowledged", b"big": big}
    assert owner.read_plain("n", [b"a", b"big", b"deleted", b"new"]) == owner.rows()


def test_a_closed_handle_leaves_no_stamp_registered(open_handle: Callable[[], Handle]) -> None:
    one, other = open_handle(), open_handle()
    for _ in range(4):
        assert one.put({b"a": b"1"})
    one.close()
    assert other.put({b"a": b"2"})
    assert other._head_writers.of("n").look().running == {}
    with pytest.raises(BackendUnavailableError, match="closed"):
        one.rows()


def test_what_a_dead_writer_left_is_missing_while_others_are_busy(open_handle: Callable[[], Handle]) -> None:
    dead, busy, reader = open_handle(), open_handle(), open_handle()
    dead.requests.after = lose("mutateRowsTs")
    with pytest.raises(NotNowError):
        dead.put({b"left": b"unacknowledged"})
    busy.fence("n", 1, exclusive=True)

    def write(method: str) -> None:
        if method == "getRowWithColumns":  # the head changes whenever it is looked at
            assert busy.put({b"a": b"1"}, fence=1)

    reader.requests.before = write
    assert reader.read_plain("n", [b"left", b"a"]) == {}
    assert reader.read_plain("n", [b"left", b"a"]) == reader.rows() == {b"a": b"1"}


@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_a_register_whatever_answers_are_lost(open_handle: Callable[[], Handle], seed: int) -> None:
    """Writers and readers of one row at once: nobody sees a value again after one that replaced it."""
    writers, readers = [open_handle() for _ in range(3)], [open_handle() for _ in range(2)]
    clock = itertools.count()
    spans: dict[bytes, tuple[int, int]] = {b"": (-1, -1)}
    seen: list[tuple[int, int, bytes]] = []

    def unreliable(handle: Handle, choose: random.Random) -> None:
        def perhaps(method: str) -> None:
            if method in WRITES and choose.random() < 0.15:
                raise NotNowError("lost")

        handle.requests.before = handle.requests.after = perhaps

    def write(number: int) -> None:
        unreliable(writers[number], random.Random(seed * 100 + number))
        for n in range(25):
            puts, value = {b"k": b"%d-%d" % (number, n), b"pad-%d" % number: b""}, b"%d-%d" % (number, n)
            started = next(clock)
            while True:
                try:
                    assert writers[number].write_plain("n", puts, [], ttl_s=None, fence=0, exclusive=False)
                    break
                except NotNowError:
                    pass
            spans[value] = (started, next(clock))

    def read(number: int) -> None:
        for n in range(60):
            started = next(clock)
            if n % 4:
                value = readers[number].read_plain("n", [b"k"]).get(b"k", b"")
            else:
                value = readers[number].rows().get(b"k", b"")
            seen.append((started, next(clock), value))

    with ThreadPoolExecutor(5) as pool:
        for call in [pool.submit(write, n) for n in range(3)] + [pool.submit(read, n) for n in range(2)]:
            call.result(timeout=120)
    final = readers[0].rows()[b"k"]
    seen.append((next(clock), next(clock), final))
    for started, ended, value in seen:
        assert spans[value][0] < ended, "read before it was written"
        replaced = [
            other for other, (begin, end) in spans.items() if spans[value][1] < begin and end < started
        ]
        assert not replaced, f"{value!r} was read after {replaced[-1]!r} had replaced it"
    for started, _, value in seen:
        for _, earlier_end, earlier in seen:
            if earlier_end < started:
                assert not spans[value][1] < spans[earlier][0], "an older value came back"
