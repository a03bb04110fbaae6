"""The checks of the S4 thesis' experiments: its own figures pass them, the opposite does not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ckpt.errors import UnsupportedError
from ckpt_backends.memory import MemoryBackend
from ckpt_bench.reproduce.claims import Verdict
from ckpt_bench.reproduce.medium import Medium, filesystem
from ckpt_bench.reproduce.s4 import disk_writes, operators, trade_offs
from ckpt_bench.reproduce.s4.crashes import OperatorError, crashed
from ckpt_bench.reproduce.s4.data_stores import FIG_4_6, ServerLatencies
from ckpt_bench.reproduce.s4.default_fs import DefaultFs, open_store
from ckpt_bench.reproduce.s4.disk_writes import TABLE_5_1, DiskWrites
from ckpt_bench.reproduce.s4.index_rebuild import FIG_4_2, Rebuild, Rebuilds
from ckpt_bench.reproduce.s4.latency import FIG_4_5, Latencies, Latency
from ckpt_bench.reproduce.s4.queue_rates import FIG_4_7, QueueRates, Rate
from ckpt_bench.reproduce.s4.saturation import FIG_4_1, FIG_5_1, Flushed, Point, Saturation, run_threads
from ckpt_bench.reproduce.s4.trade_offs import TABLE_5_2, TradeOffs
from ckpt_bench.reproduce.spread import spread

ROUNDS = 5


def each(value: float) -> list[float]:
    """Rounds that differ by a little."""
    return [value * by for by in (1.0, 0.99, 1.01, 0.98, 1.02)]


def name_of(what: object) -> str:
    return getattr(what, "name", "")


def curves(default: float, indexed: float, *, durable: bool = False) -> Saturation:
    return Saturation(
        "NFS" if durable else "page cache",
        durable,
        10_000,
        1000,
        ROUNDS,
        {
            "Default FS": [Point(1, each(default / 2), each(4.0)), Point(32, each(default), each(60.0))],
            "Indexed FS": [Point(1, each(indexed / 2), each(2.0)), Point(32, each(indexed), each(20.0))],
        },
    )


def latency(write_ms: float, read_ms: float = 1, *, behind_ms: float = 2) -> Latency:
    return Latency(each(write_ms), each(behind_ms), each(read_ms), each(1), "fsync")


def latencies(default: Latency, indexed: Latency, floor_ms: float = 0.1) -> Latencies:
    stores = {"NFS": {"Default FS": default, "Indexed FS": indexed}}
    return Latencies(10_000, 1000, ROUNDS, each(floor_ms), stores)


def servers(redis_ms: float, hbase_ms: float, hbase_read_ms: float, behind_ms: float = 2) -> ServerLatencies:
    files = latencies(latency(48.5, 30), latency(10, 10))
    hbase = latency(hbase_ms, hbase_read_ms, behind_ms=behind_ms)
    return ServerLatencies({"Redis": latency(redis_ms), "HBase": hbase}, {}, files)


def rates(default: tuple[float, float], indexed: tuple[float, float]) -> QueueRates:
    def two(values: tuple[float, float]) -> list[Rate]:
        return [Rate(1000, each(values[0]), 0), Rate(1_000_000, each(values[1]), 0)]

    events = {"Default FS": 1_000_000, "Indexed FS": 1_000_000}
    return QueueRates(events, 1000, ROUNDS, {"NFS": {"Default FS": two(default), "Indexed FS": two(indexed)}})


def rebuild(states: int, open_ms: float, rebuild_ms: float, read_us: float = 5) -> Rebuild:
    return Rebuild(states, each(open_ms), each(rebuild_ms), each(1), each(read_us))


THESIS_WRITES = DiskWrites(
    disk_writes.THESIS_OPERATIONS,
    ROUNDS,
    {
        medium: {way: [each(s) for s in seconds] for way, seconds in ways.items()}
        for medium, ways in disk_writes.THESIS_S.items()
    },
    {"local disk": {"seq": each(4000.0), "rnd": each(12_000.0)}},
    True,
)
THESIS_TRADE_OFFS = TradeOffs(
    trade_offs.THESIS[trade_offs.DEPENDENCY],
    {"Default FS": each(40), "Indexed FS": each(5), "Redis": each(0.5), "HBase": each(0.6)},
    {"Default FS": each(30), "Indexed FS": each(10), "Redis": each(0.4), "HBase": each(0.9)},
    spread(each(1.0)),
    spread(each(8.7)),
    spread(each(1.2)),
    {},
    {},
)

AS_IN_THE_THESIS = [
    (FIG_4_1, curves(700, 2101)),
    (
        FIG_4_2,
        Rebuilds(ROUNDS, rebuild(1, 0, 0), [rebuild(10_000, 2.5, 2.5), rebuild(1_000_000, 250, 250)]),
    ),
    (FIG_4_5, latencies(latency(49.5, 31), latency(10, 10))),
    (FIG_4_6, servers(2.0, 2.5, 4.0)),
    (FIG_4_7, rates((400, 149), (1301, 1301))),
    (FIG_5_1, Flushed(curves(500, 701, durable=True), curves(700, 2100))),
    (TABLE_5_1, THESIS_WRITES),
    (TABLE_5_2, THESIS_TRADE_OFFS),
]
THE_OPPOSITE = [
    (FIG_4_1, curves(2100, 700), 1),
    (
        FIG_4_2,
        Rebuilds(
            ROUNDS, rebuild(1, 99, 9), [rebuild(10_000, 250, 250), rebuild(1_000_000, 250, 250, read_us=50)]
        ),
        3,
    ),
    (FIG_4_5, latencies(latency(10, 10), latency(48.5, 30)), 2),
    (FIG_4_6, servers(40.0, 20.5, 4.0), 4),
    (FIG_4_7, rates((1300, 1300), (400, 150)), 4),
    (FIG_5_1, Flushed(curves(700, 500, durable=True), curves(500, 400)), 3),
    (
        TABLE_5_1,
        replace(
            THESIS_WRITES,
            seconds={"local disk": dict.fromkeys(("seq", "rnd", "seq fsync", "rnd fsync"), [each(1.0)] * 3)},
            synced_each_us={"local disk": {"seq": each(1.0), "rnd": each(1.0)}},
        ),
        4,
    ),
    (
        TABLE_5_2,
        replace(
            THESIS_TRADE_OFFS,
            dependencies={name: not value for name, value in THESIS_TRADE_OFFS.dependencies.items()},
            write_ms={"Default FS": each(1), "Indexed FS": each(9), "Redis": each(9), "HBase": each(9)},
            read_ms={"Default FS": each(9), "Indexed FS": each(1), "Redis": each(99), "HBase": each(1)},
            open_growth=spread(each(0.1)),
            many_states_gain=spread(each(0.1)),
            few_states_loss=spread(each(9.0)),
        ),
        13,
    ),
]


@pytest.mark.parametrize(("experiment", "figures"), AS_IN_THE_THESIS, ids=name_of)
def test_the_figures_of_the_thesis_hold(experiment, figures):
    verdicts = {claim.verdict for claim in experiment.check(figures)}
    assert verdicts <= {Verdict.HOLDS, Verdict.NOT_CHECKED}, verdicts
    shown = experiment.show(figures)
    assert "<svg" in shown.chart
    assert all(len(row) == len(shown.header) for row in shown.rows)


@pytest.mark.parametrize(("experiment", "figures", "failing"), THE_OPPOSITE, ids=name_of)
def test_the_opposite_does_not_hold_and_says_why(experiment, figures, failing):
    refuted = [claim for claim in experiment.check(figures) if claim.holds is False]
    assert len(refuted) == failing
    assert all(claim.why for claim in refuted)


def test_a_fixed_cost_does_not_hide_that_recovery_grows():
    empty, few, many = (rebuild(n, ms, ms) for n, ms in ((1, 100.0), (100_000, 170.0), (300_000, 310.0)))
    assert Rebuilds(ROUNDS, empty, [few, many]).growth("open_ms").median == pytest.approx(1.0)


def test_recovery_that_grows_faster_than_the_states_is_not_in_proportion():
    few, many = rebuild(10_000, 1.0, 1.0), rebuild(30_000, 30.0, 3.0)
    after_kill, without_index, _ = FIG_4_2.check(Rebuilds(ROUNDS, rebuild(1, 0, 0), [few, many]))
    assert after_kill.verdict is Verdict.FAILS
    assert "it was more" in after_kill.why
    assert without_index.verdict is Verdict.HOLDS


class TestQuartiles:
    """A verdict needs quartiles on one side of what is asserted."""

    def test_rounds_that_disagree_settle_nothing(self):
        torn = {
            "Default FS": [Point(32, [700] * 5, each(60.0))],
            "Indexed FS": [Point(32, [1000, 2000, 2200, 4000, 5000], each(20.0))],
        }
        claim = FIG_4_1.check(replace(curves(1, 1), curves=torn))[0]
        assert claim.verdict is Verdict.UNSETTLED
        assert claim.holds is None
        assert claim.ours == "3.14 [2.86 5.71]"

    def test_a_slow_round_of_both_does_not_count(self):
        by = [1, 1, 0.1, 1, 0.2]
        slowed = {
            name: [Point(32, [rate * slow for slow in by], each(ms))]
            for name, rate, ms in (("Default FS", 700, 60.0), ("Indexed FS", 2800, 20.0))
        }
        assert FIG_4_1.check(replace(curves(1, 1), curves=slowed))[0].ours == "4 [4 4]"

    @pytest.mark.parametrize(("experiment", "figures"), AS_IN_THE_THESIS, ids=name_of)
    def test_tables_print_them(self, experiment, figures):
        shown = experiment.show(figures)
        assert "[" in str(shown.rows) + str(shown.notes)


class TestBacklog:
    """The time of a save says something only of a store that keeps up with the rate."""

    def test_no_latency_is_reported(self):
        found = latencies(latency(945, 30, behind_ms=1900), latency(10, 10))
        save, read = FIG_4_5.check(found)
        assert save.verdict is Verdict.NOT_CHECKED
        assert (
            save.why == "Default FS could not keep up with 400/s (1,900 ms behind): saves waited for others"
        )
        assert read.verdict is Verdict.HOLDS
        shown = FIG_4_5.show(found)
        assert shown.rows[0][1] == "could not keep up with 400/s (1,900 ms behind)"
        assert "945" not in str(shown.rows) + shown.chart

    def test_nor_is_a_server_compared(self):
        claims = FIG_4_6.check(servers(2.0, 2.5, 4.0, behind_ms=900))
        assert [claim.verdict for claim in claims] == [Verdict.NOT_CHECKED] * 2 + [
            Verdict.HOLDS,
            Verdict.NOT_CHECKED,
        ]

    def test_and_it_is_not_made_for_frequent_checkpoints(self):
        kept_up = {name: ms for name, ms in THESIS_TRADE_OFFS.write_ms.items() if name != "HBase"}
        found = replace(THESIS_TRADE_OFFS, write_ms=kept_up, late={"HBase": "could not keep up"})
        of_hbase = {claim.says: claim for claim in TABLE_5_2.check(found) if claim.says.startswith("HBase")}
        assert of_hbase["HBase: favors writes: yes"].verdict is Verdict.NOT_CHECKED
        scenario = of_hbase["HBase: many states on a node, frequent checkpoints"]
        assert (scenario.verdict, scenario.ours) == (Verdict.FAILS, "could not keep up")

    @pytest.mark.parametrize(("took_s", "keeps_up"), [(0.0, True), (0.02, False)])
    def test_an_operator_tells(self, tmp_path, monkeypatch, took_s, keeps_up):
        clock = StoreClock()
        put_many = DefaultFs.put_many

        def timed(self, namespace, items, **options):
            put_many(self, namespace, items, **options)
            clock.put(len(items), took_s)

        told = []
        monkeypatch.setattr(DefaultFs, "put_many", timed)
        monkeypatch.setattr(operators, "time", clock)
        monkeypatch.setattr(operators, "_say", told.append)
        operators.count_words(f"s4://{tmp_path}?durability=os", "words", 40, 40, 400.0, 1)
        assert Latency([1], [told[0]["behind_ms"]], [1], [1], "os").kept_up is keeps_up


class StoreClock:
    """Time that passes while an operator sleeps and while its store puts, however busy the machine is."""

    def __init__(self):
        self.now_s = 0.0
        self.sleeps = 0
        self.puts = 0
        self.changed = threading.Condition()

    def perf_counter(self):
        return self.now_s

    def sleep(self, seconds):
        """The operator sleeps before each save; the ones before it are put by then."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.puts >= self.sleeps, timeout=60)
            self.sleeps += 1
            self.now_s += seconds

    def put(self, keys, took_s):
        with self.changed:
            self.puts += keys
            self.now_s += keys * took_s
            self.changed.notify_all()


def test_less_than_nothing_is_not_printed():
    save, _ = FIG_4_5.check(latencies(latency(1.3359), latency(2.0), floor_ms=1.337))
    assert "leaves nothing measurable of Default FS and 0.66 ms of Indexed FS" in save.why


@pytest.mark.parametrize("durable", [False, True])
def test_a_reason_fits_what_was_run(durable):
    found = curves(2100, 700, durable=durable)
    flat = {
        name: [replace(point, latency_ms=each(1.0)) for point in points]
        for name, points in found.curves.items()
    }
    advantage, steepness, _ = FIG_4_1.check(replace(found, curves=flat))
    assert steepness.verdict is Verdict.FAILS
    for claim in (advantage, steepness):
        assert ("sync" in claim.why) is durable, claim.why


def test_costly_recovery_is_claimed_only_of_what_was_measured():
    claims = [claim for claim in TABLE_5_2.check(THESIS_TRADE_OFFS) if "costly recovery" in claim.says]
    assert {claim.says.partition(":")[0]: str(claim.verdict) for claim in claims} == {
        "Default FS": "not checked",
        "Indexed FS": "holds",
        "Redis": "not checked",
        "HBase": "not checked",
    }
    row = next(row for row in TABLE_5_2.show(THESIS_TRADE_OFFS).rows if row[0] == "costly recovery")
    assert row[1:] == ["no / not measured", "yes / yes", "no / not measured", "no / not measured"]


class TestDefaultFs:
    @pytest.mark.parametrize("durability", ["fsync", "os"])
    def test_one_file_for_each_state(self, tmp_path, durability):
        with open_store(f"s4://{tmp_path}?durability={durability}") as backend:
            backend.put_many("words", {b"be": b"1", b"a/b\0": b"2"})
            backend.put_many("words", {b"be": b"3"})
        with open_store(f"s4://{tmp_path}") as again:
            assert dict(again.scan("words")) == {b"be": b"3", b"a/b\0": b"2"}
            assert again.get_many("words", [b"be", b"or"]) == {b"be": b"3"}
            assert again.namespaces() == ["words"]
            again.delete_many("words", [b"be", b"or"])
            assert dict(again.scan("words", prefix=b"a")) == {b"a/b\0": b"2"}
            again.drop("words")
            assert dict(again.scan("words")) == {}

    def test_it_has_no_versions(self, tmp_path):
        with open_store(f"s4://{tmp_path}") as backend, pytest.raises(UnsupportedError, match="'words'"):
            backend.commit("words", 1, {b"be": b"1"})


class TestCrashes:
    def test_what_was_durable_is_there_after_the_kill(self, tmp_path):
        address = Medium("disk", str(tmp_path), durable=True).address("log")
        told = {"namespace": "words", "events": 30, "words": 10, "rate": 1e6, "seed": 1}
        assert len(crashed("count_words", address, **told)["write_ms"]) == 30
        with open_store(address) as backend:
            assert len(list(backend.scan("words"))) == 10

    def test_an_operator_that_fails_says_why(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OperatorError, match=r"fill on log://.* failed; it said last: \S"):
            crashed("fill", f"log://{tmp_path}/file", namespace="words", words=1)


class TestFilesystem:
    def test_memory_is_not_mistaken_for_a_disk(self):
        if not os.path.isdir("/dev/shm"):
            pytest.skip("there is no /dev/shm")
        assert str(filesystem("/dev/shm")) == "tmpfs on memory"


def test_ctrl_c_waits_until_nobody_uses_the_store() -> None:
    class Deep(MemoryBackend):
        busy = False

        def put_many(
            self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None
        ) -> None:
            self.busy = True
            time.sleep(0.2)  # the main thread waits by then
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.3)
            super().put_many(namespace, items, ttl_s=ttl_s)
            self.busy = False

    store = Deep()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_threads(store, 1, 100, 10, seed=1)
        assert not store.busy
    finally:
        signal.signal(signal.SIGINT, before)
