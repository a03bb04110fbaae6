"""The workload of the thesis, and what is beyond YCSB: recovery, garbage collection, migration, crashes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt.contract.backend import CompactionReport
from ckpt_backends.log import LogBackend
from ckpt_bench.ycsb import crash, upkeep
from ckpt_bench.ycsb.victim import crash_key, crash_value

Bench = Callable[..., Any]


@pytest.fixture
def loaded(bench: Bench, tmp_path: Path) -> str:
    """The address of a log with 200 records."""
    address = f"log://{tmp_path}/store"
    bench("load", address, "-P", "workloada", "-p", "recordcount=200", "-p", "batchsize=100")
    return address


def test_saves_and_what_became_of_them(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store"
    bench("load", address, "-P", "checkpoint")
    found = bench("run", address, "-P", "checkpoint", "-p", "seed=1", "--threads", "2").figures
    saves, reads = found["SAVE"]["Operations"], found["READ"]["Operations"]
    assert saves + reads == 10_000
    assert saves / 10_000 == pytest.approx(0.9, abs=0.02)
    accounts = found["SAFEKEEPER"]
    assert accounts["Submitted"] == saves == accounts["Durable"] + accounts["Coalesced"]
    assert accounts["Dropped"] == accounts["Failed"] == accounts["Pending"] == 0
    assert found["DURABLE"]["Operations"] == found["DURABLE"]["Return=OK"] == saves
    assert found["DURABLE"]["AverageLatency(us)"] > found["SAVE"]["AverageLatency(us)"]
    with ckpt.SafeKeeper(address) as keeper:
        state = keeper.namespace("usertable").load("user999")
    assert [len(value) for value in state.values()] == [1024]


def test_dropped_saves_are_counted_and_are_no_errors(bench: Bench, tmp_path: Path) -> None:
    found = bench(
        *("run", "memory://", "-P", "checkpoint", "-p", "operationcount=3000", "-p", "readproportion=0"),
        *("-p", "safekeeper.overflow=drop-oldest", "-p", "safekeeper.queue_saves=1"),
    ).figures
    accounts = found["SAFEKEEPER"]
    assert accounts["Submitted"] == 3000
    assert accounts["Dropped"] > 0
    assert accounts["Submitted"] == accounts["Durable"] + accounts["Coalesced"] + accounts["Dropped"]
    assert found["DURABLE"]["Operations"] <= accounts["Durable"] + accounts["Coalesced"]


@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-new"])
def test_what_drops_saves_in_a_run_drops_no_record_of_its_load(
    bench: Bench, tmp_path: Path, overflow: str
) -> None:
    """Properties are the same for both, as in YCSB, and the run reads what was loaded."""
    checkpoint = ("-P", "checkpoint", "-p", "operationcount=2000", "-p", "safekeeper.queue_saves=1")
    drops = (*checkpoint, "-p", f"safekeeper.overflow={overflow}")
    address = f"log://{tmp_path}/store?durability=os"
    loaded = bench("load", address, *drops).figures["SAFEKEEPER"]
    assert (loaded["Submitted"], loaded["Durable"], loaded["Dropped"]) == (1000, 1000, 0)
    for store in (address, "memory://"):
        found = bench("run", store, *drops).figures
        assert found["SAFEKEEPER"]["Dropped"] > 0
        assert found["READ"]["Return=OK"] == found["READ"]["Operations"]


def test_options_of_a_safekeeper_that_is_not_used_are_refused(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloada", "-p", "safekeeper.overflow=block", code=2)
    assert "safekeeper=true" in done.err
    done = bench("run", "memory://", "-P", "checkpoint", "-p", "safekeeper.overfow=block", code=2)
    assert "did you mean 'overflow'" in done.err


def test_recovery_garbage_collection_and_migration_during_a_run(
    bench: Bench, loaded: str, tmp_path: Path
) -> None:
    target = f"file://{tmp_path}/copy?durability=os"
    done = bench(
        *(
            "run",
            loaded,
            "-P",
            "workloada",
            "-p",
            "recordcount=200",
            "-p",
            "recovercount=2",
            "-p",
            "gccount=1",
        ),
        *("-p", "migratecount=1", "-p", f"migrate.to={target}", "--html", tmp_path / "page.html"),
    )
    found = done.figures
    assert found["RECOVER"]["Return=OK"] == found["RECOVER-FIRST-READ"]["Operations"] == 2
    assert found["RECOVER"]["Records"] == 400
    assert found["RECOVER"]["MaxLatency(us)"] >= found["RECOVER-FIRST-READ"]["MinLatency(us)"]
    assert found["GC"]["Return=OK"] == 1
    assert found["GC"]["Written(bytes)"] >= 0
    assert found["MIGRATE"]["Copied(records)"] == 200
    assert found["READ"]["Return=OK"] + found["UPDATE"]["Return=OK"] == 1000
    html = (tmp_path / "page.html").read_text()
    assert "Throughput over time" in html
    for event in ("RECOVER", "GC", "MIGRATE"):
        assert html.count(event) > 1
    with ckpt.open_backend(target) as copy:
        assert len(list(copy.scan("usertable"))) == 200


def test_a_recovery_alone_needs_no_operations(bench: Bench, loaded: str) -> None:
    found = bench("run", loaded, "-p", "recovercount=1").figures
    assert found["RECOVER"]["Records"] == 200
    assert "READ" not in found


@pytest.mark.parametrize("way", ["false", "true"])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(bench: Bench, loaded: str, way: str) -> None:
    done = bench(
        *("run", loaded, "-p", "crashcount=2", "-p", "crash.seconds=0.2", "-p", f"safekeeper={way}"),
        *("-p", "seed=1"),
    )
    found = done.figures["CRASH"]
    assert found["Acknowledged"] >= 2
    assert found["Lost"] == found["Altered"] == 0
    assert found["Return=OK"] == 2
    assert "crash 2 of 2: killed after " in done.err
    with ckpt.open_backend(loaded) as backend:
        assert backend.namespaces() == ["usertable"]


def test_a_limit_of_time_is_one_for_operations_only(bench: Bench, loaded: str) -> None:
    run = ("run", loaded, "-P", "workloadc", "-p", "recordcount=200", "-p", "operationcount=0")
    found = bench(*run, "-p", "maxexecutiontime=1", "-p", "crashcount=1", "-p", "crash.seconds=0.1").figures
    assert found["READ"]["Operations"] > 0
    assert found["CRASH"]["Return=OK"] == 1


def test_no_operations_are_none_if_there_is_something_else_to_do(bench: Bench, loaded: str) -> None:
    """In YCSB `operationcount=0` is without end, which only a limit of time makes sense of."""
    run = ("run", loaded, "-P", "workloada", "-p", "recordcount=200", "-p", "operationcount=0")
    found = bench(*run, "-p", "recovercount=1", "-p", "crashcount=1", "-p", "crash.seconds=0.1").figures
    assert found["RECOVER"]["Return=OK"] == found["CRASH"]["Return=OK"] == 1
    assert "READ" not in found
    assert "the run has no end; set operationcount or maxexecutiontime" in bench(*run, code=2).err


def test_what_was_asked_for_is_done_when_the_time_of_operations_is_over(
    bench: Bench, loaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover = upkeep.Upkeep._recover

    def slowly(self: upkeep.Upkeep, started_ns: int) -> None:
        time.sleep(0.6)
        recover(self, started_ns)

    monkeypatch.setattr(upkeep.Upkeep, "_recover", slowly)
    done = bench(
        *("run", loaded, "-P", "workloadc", "-p", "recordcount=200", "-p", "operationcount=0"),
        *("-p", "maxexecutiontime=1", "-p", "recovercount=3", "-p", "migratecount=1"),
        *("-p", f"migrate.to=file://{tmp_path}/copy?durability=os"),
    )
    assert done.figures["RECOVER"]["Return=OK"] == 3
    assert done.figures["MIGRATE"]["Return=OK"] == 1


def test_what_goes_on_after_the_operations_is_told(
    bench: Bench, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover = upkeep.Upkeep._recover

    def until_it_is_told(self: upkeep.Upkeep, started_ns: int) -> None:
        say, told = self._say, threading.Event()

        def tell(line: str) -> None:
            say(line)
            told.set()

        monkeypatch.setattr(self, "_say", tell)
        assert told.wait(60)
        monkeypatch.setattr(self, "_say", say)
        recover(self, started_ns)

    monkeypatch.setattr(upkeep.Upkeep, "_recover", until_it_is_told)
    monkeypatch.setattr(upkeep, "_PATIENCE_S", 0.01)
    done = bench("run", loaded, "-p", "recovercount=1", "-p", "gccount=1")
    assert "not done yet: 1 RECOVER, 1 GC\n" in done.err
    assert done.figures["RECOVER"]["Return=OK"] == 1


def test_nothing_is_reclaimed_rather_than_less(
    bench: Bench, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write while garbage is collected, so that a store may be larger afterwards."""
    monkeypatch.setattr(LogBackend, "compact", lambda self: CompactionReport(1000, 1768, 0, 0.1))
    assert bench("run", loaded, "-p", "gccount=1").figures["GC"]["Reclaimed(bytes)"] == 0


def test_the_same_on_a_server(bench: Bench, dev_server: Callable[[str], str]) -> None:
    """Ordered scans, a SafeKeeper, and a killed owner whose claim outlives it."""
    pytest.importorskip("redis")
    address = f"{dev_server('redis')}?prefix=ycsb-{uuid.uuid4().hex}"
    common = ("-p", "recordcount=100", "-p", "operationcount=100", "--threads", "2")
    bench("load", address, "-P", "workloade", *common, "-p", "batchsize=50")
    scans = bench("run", address, "-P", "workloade", *common).figures
    assert scans["SCAN"]["Return=OK"] + scans["INSERT"]["Return=OK"] == 100
    bench("load", address, "-P", "checkpoint", "-p", "table=states", "-p", "recordcount=100")
    states = (
        "-P",
        "checkpoint",
        "-p",
        "table=states",
        *common,
        "-p",
        "crashcount=1",
        "-p",
        "crash.seconds=0.2",
    )
    found = bench("run", address, *states).figures
    assert found["SAFEKEEPER"]["Submitted"] == found["DURABLE"]["Return=OK"]
    assert found["CRASH"]["Acknowledged"] > 0
    assert found["CRASH"]["Lost"] == found["CRASH"]["Altered"] == 0
    with ckpt.open_backend(address) as backend:
        for name in backend.namespaces():
            backend.drop(name)


def test_a_loss_is_an_error(bench: Bench, loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of a victim that never was: acknowledged 0 to 9, but only some of them are there."""

    def pretend(self: crash.Crashes) -> list[int]:
        with ckpt.open_backend(loaded) as backend:
            backend.put_many("usertable.crash", {crash_key(n): crash_value(n, 1000) for n in range(8)})
            backend.put_many("usertable.crash", {crash_key(3): crash_value(4, 1000)})
        return list(range(10))

    monkeypatch.setattr(crash.Crashes, "_killed", pretend)
    done = bench("run", loaded, "-p", "crashcount=1", code=1)
    assert (done.figures["CRASH"]["Lost"], done.figures["CRASH"]["Altered"]) == (2, 1)
    assert "3 of 10 acknowledged writes were lost or altered" in done.err
    monkeypatch.setattr(crash, "crash_value", lambda n, size: crash_value(4 if n == 3 else n, size))
    bench("run", f"{loaded}?durability=queued", "-p", "crashcount=1")


def test_a_victim_that_cannot_write_is_an_error_and_says_why(
    bench: Bench, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash.sys, "executable", "/bin/false")
    done = bench("run", loaded, "-p", "crashcount=1", code=1)
    assert "ended by itself" in done.err
    assert done.figures["CRASH"]["Return=SERVICE_UNAVAILABLE"] == 1


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (("recovercount=1",), "keeps nothing that could be recovered"),
        (("crashcount=1",), "keeps nothing that could survive"),
        (("gccount=1",), "no garbage"),
    ],
)
def test_what_a_store_cannot_do_is_said_before_the_run(
    bench: Bench, properties: tuple[str, ...], message: str
) -> None:
    assert message in bench("run", "memory://", "-P", "workloadc", "-p", *properties, code=2).err


def test_a_store_is_not_copied_onto_itself(bench: Bench, loaded: str) -> None:
    done = bench("run", loaded, "-p", "migratecount=1", "-p", f"migrate.to={loaded}", code=2)
    assert "are one store" in done.err
