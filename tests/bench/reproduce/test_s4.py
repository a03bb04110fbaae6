"""The checks of the S4 thesis' experiments: its own figures pass them, the opposite does not."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ckpt.errors import UnsupportedError
from ckpt_bench.reproduce.medium import Medium, filesystem
from ckpt_bench.reproduce.s4 import disk_writes, trade_offs
from ckpt_bench.reproduce.s4.crashes import OperatorError, crashed
from ckpt_bench.reproduce.s4.default_fs import open_store
from ckpt_bench.reproduce.s4.disk_writes import TABLE_5_1, DiskWrites
from ckpt_bench.reproduce.s4.index_rebuild import FIG_4_2, Rebuild, Rebuilds
from ckpt_bench.reproduce.s4.latency import FIG_4_5, FIG_4_6, Latencies, Latency, ServerLatencies
from ckpt_bench.reproduce.s4.queue_rates import FIG_4_7, QueueRates, Rate
from ckpt_bench.reproduce.s4.saturation import FIG_4_1, FIG_5_1, Flushed, Point, Saturation
from ckpt_bench.reproduce.s4.trade_offs import TABLE_5_2, TradeOffs


def curves(default: float, indexed: float) -> Saturation:
    return Saturation(
        "NFS",
        10_000,
        1000,
        10,
        {
            "Default FS": [Point(1, default / 2, 4.0), Point(32, default, 60.0)],
            "Indexed FS": [Point(1, indexed / 2, 2.0), Point(32, indexed, 20.0)],
        },
    )


def latencies(default: Latency, indexed: Latency) -> Latencies:
    return Latencies(10_000, 1000, 10, 0.1, {"NFS": {"Default FS": default, "Indexed FS": indexed}})


def servers(redis_ms: float, hbase_ms: float, hbase_read_ms: float) -> ServerLatencies:
    files = latencies(Latency(48.5, 30, 1, "NFS"), Latency(10, 10, 1, "NFS"))
    found = {"Redis": Latency(redis_ms, 1, 1, "os"), "HBase": Latency(hbase_ms, hbase_read_ms, 1, "os")}
    return ServerLatencies(found, {}, files)


def rates(default: tuple[float, float], indexed: tuple[float, float]) -> QueueRates:
    def two(values: tuple[float, float]) -> list[Rate]:
        return [Rate(1000, values[0], 0), Rate(1_000_000, values[1], 0)]

    events = {"Default FS": 1_000_000, "Indexed FS": 1_000_000}
    return QueueRates(events, 1000, 1, {"NFS": {"Default FS": two(default), "Indexed FS": two(indexed)}})


THESIS_WRITES = DiskWrites(
    disk_writes.THESIS_OPERATIONS,
    disk_writes.THESIS_S,
    {"local disk": {"seq": 4000.0, "rnd": 12_000.0}},
    True,
)
THESIS_TRADE_OFFS = TradeOffs(trade_offs.THESIS, {}, 1.0, 8.7, 1.2, {"Redis": 0.5, "HBase": 0.6}, {})

AS_IN_THE_THESIS = [
    (FIG_4_1, curves(700, 2100)),
    (
        FIG_4_2,
        Rebuilds(
            10, Rebuild(1, 0, 0, 1, 5), [Rebuild(10_000, 2.5, 2.5, 1, 5), Rebuild(1_000_000, 250, 250, 1, 5)]
        ),
    ),
    (FIG_4_5, latencies(Latency(48.5, 30, 1, "NFS"), Latency(10, 10, 1, "NFS"))),
    (FIG_4_6, servers(2.0, 2.5, 4.0)),
    (FIG_4_7, rates((400, 150), (1300, 1300))),
    (FIG_5_1, Flushed(curves(500, 700), curves(700, 2100))),
    (TABLE_5_1, THESIS_WRITES),
    (TABLE_5_2, THESIS_TRADE_OFFS),
]
THE_OPPOSITE = [
    (FIG_4_1, curves(2100, 700), 1),
    (
        FIG_4_2,
        Rebuilds(
            1, Rebuild(1, 99, 9, 1, 5), [Rebuild(10_000, 250, 250, 1, 5), Rebuild(1_000_000, 250, 250, 1, 50)]
        ),
        3,
    ),
    (FIG_4_5, latencies(Latency(10, 10, 1, "NFS"), Latency(48.5, 30, 1, "NFS")), 2),
    (FIG_4_6, servers(40.0, 20.5, 4.0), 4),
    (FIG_4_7, rates((1300, 1300), (400, 150)), 4),
    (FIG_5_1, Flushed(curves(700, 500), curves(500, 400)), 3),
    (
        TABLE_5_1,
        replace(
            THESIS_WRITES,
            seconds={"local disk": dict.fromkeys(("seq", "rnd", "seq fsync", "rnd fsync"), (1.0, 1.0, 1.0))},
            synced_each_us={"local disk": {"seq": 1.0, "rnd": 1.0}},
        ),
        4,
    ),
    (
        TABLE_5_2,
        replace(
            THESIS_TRADE_OFFS,
            properties={
                what: {name: not value for name, value in backends.items()}
                for what, backends in trade_offs.THESIS.items()
            },
            many_states_gain=0.1,
            few_states_loss=9.0,
            keeps_up_ms={"Redis": 9.0, "HBase": 9.0},
        ),
        16,
    ),
]


@pytest.mark.parametrize(
    ("experiment", "figures"), AS_IN_THE_THESIS, ids=lambda each: getattr(each, "name", "")
)
def test_the_figures_of_the_thesis_hold(experiment, figures):
    assert [claim for claim in experiment.check(figures) if not claim.holds] == []
    shown = experiment.show(figures)
    assert "<svg" in shown.chart
    assert all(len(row) == len(shown.header) for row in shown.rows)


@pytest.mark.parametrize(
    ("experiment", "figures", "failing"), THE_OPPOSITE, ids=lambda each: getattr(each, "name", "")
)
def test_the_opposite_does_not_hold_and_says_why(experiment, figures, failing):
    refuted = [claim for claim in experiment.check(figures) if claim.holds is False]
    assert len(refuted) == failing
    assert all(claim.why for claim in refuted)


def test_a_fixed_cost_does_not_hide_that_recovery_grows():
    empty, few, many = (
        Rebuild(n, ms, ms, 1, 5) for n, ms in ((1, 100.0), (100_000, 170.0), (300_000, 310.0))
    )
    assert Rebuilds(1, empty, [few, many]).growth("open_ms") == pytest.approx(1.0)


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
