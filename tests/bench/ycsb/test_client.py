"""Rates, intended latency, errors, interruption: what a run does when things do not go smoothly."""

from __future__ import annotations

import functools
import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ckpt.errors import BackendUnavailableError
from ckpt_backends.memory import MemoryBackend
from ckpt_bench.ycsb import session
from ckpt_bench.ycsb.client import Client
from ckpt_bench.ycsb.records import Fields, encode, key_name
from ckpt_bench.ycsb.session import Phase, Results
from ckpt_bench.ycsb.settings import Settings, settings_of

Bench = Callable[..., Any]


class Moody(MemoryBackend):
    """A store that stalls or fails when it is told to."""

    stall_at = fail_every = 0
    stall_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = 0

    def get_many(self, namespace: str, keys: Iterable[bytes], **as_of: Any) -> dict[bytes, bytes]:
        self.reads += 1
        if self.reads == self.stall_at:
            time.sleep(self.stall_s)
        return super().get_many(namespace, keys, **as_of)

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.writes += 1
        if self.fail_every and self.writes % self.fail_every == 0:
            raise BackendUnavailableError("the store is moody; try again")
        super().put_many(namespace, items, ttl_s=ttl_s)


def phase_on(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch, **properties: object
) -> tuple[Phase, list[str]]:
    monkeypatch.setattr(session, "open_backend", lambda _: backend)
    monkeypatch.setattr(session, "open_used", lambda _: backend)
    told: list[str] = []
    settings = settings_of({name.replace("__", "."): str(v) for name, v in properties.items()}, told.append)
    return Phase("memory://", settings, told.append, io.StringIO()), told


def figures(results: Results) -> dict[tuple[str, str], float]:
    return {(metric, what): value for metric, what, value in results.rows}


def test_a_stall_shows_in_the_intended_latency_of_all_that_it_delayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 operations at 1,000 a second, of which one takes 100 ms: the others were on time, or were not."""
    backend = Moody()
    backend.stall_at, backend.stall_s = 20, 0.1
    properties = {"recordcount": 10, "operationcount": 100, "updateproportion": 0, "readproportion": 1}
    phase, _ = phase_on(backend, monkeypatch, **properties, target=1000, measurement__interval="both", seed=1)
    found = figures(phase.run())
    assert found["READ", "50thPercentileLatency(us)"] < 10_000 < found["READ", "MaxLatency(us)"]
    assert found["Intended-READ", "50thPercentileLatency(us)"] > 10_000
    assert found["READ", "Operations"] == found["Intended-READ", "Operations"] == 100


def test_an_operation_never_begins_before_it_is_due_and_a_stall_moves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deadlines are counted from the start: after a stall they are as they would have been without it."""
    backend = Moody()
    backend.stall_at, backend.stall_s = 10, 0.2
    properties = {"recordcount": 10, "operationcount": 100, "updateproportion": 0, "target": 500, "seed": 1}
    due: list[int] = []
    begun: list[int] = []
    sleep_until = Client._sleep_until

    def watched(self: Client, due_ns: int) -> None:
        due.append(due_ns)
        sleep_until(self, due_ns)
        begun.append(time.perf_counter_ns())

    monkeypatch.setattr(Client, "_sleep_until", watched)
    phase, _ = phase_on(backend, monkeypatch, **properties)
    phase.run()
    due, begun = due[1:], begun[1:]  # the first is a random pause before the start
    assert {later - earlier for earlier, later in pairwise(due)} == {2_000_000}
    assert all(at_ns >= due_ns for due_ns, at_ns in zip(due, begun, strict=True))


def test_a_save_is_late_from_when_it_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads stall, and the saves that follow are late: until they are durable is longer than it seems."""
    backend = Moody()
    backend.stall_at, backend.stall_s = 20, 0.2
    phase, _ = phase_on(
        backend,
        monkeypatch,
        recordcount=1000,
        operationcount=300,
        readproportion=0.5,
        updateproportion=0.5,
        writeallfields="true",
        safekeeper="true",
        target=1000,
        measurement__interval="both",
        seed=1,
    )
    found = figures(phase.run())
    gap = found["Intended-DURABLE", "AverageLatency(us)"] - found["DURABLE", "AverageLatency(us)"]
    assert gap == pytest.approx(
        found["Intended-SAVE", "AverageLatency(us)"] - found["SAVE", "AverageLatency(us)"], rel=0.1
    )
    assert gap > 1000


def test_what_is_due_at_no_certain_time_has_no_intended_latency(bench: Bench, tmp_path: Any) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-P", "workloada", "-p", "recordcount=10")
    upkeep = ("-p", "recovercount=1", "-p", "gccount=1", "-p", "crashcount=1", "-p", "crash.seconds=0.1")
    both = ("-P", "workloada", "-p", "recordcount=10", "-p", "measurement.interval=both", *upkeep)
    found = bench("run", address, *both).figures
    assert {"RECOVER", "RECOVER-FIRST-READ", "GC", "CRASH"} <= found.keys()
    assert {name for name in found if name.startswith("Intended-")} == {"Intended-READ", "Intended-UPDATE"}


def test_intended_alone_replaces_the_measured_latency(bench: Bench) -> None:
    found = bench("run", "memory://", "-P", "workloadc", "-p", "measurement.interval=intended").figures
    assert found["READ"]["Operations"] == 1000
    assert "Intended-READ" not in found


def test_failed_operations_are_counted_shown_and_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Moody()
    phase, _ = phase_on(
        backend, monkeypatch, recordcount=10, operationcount=100, readproportion=0, updateproportion=1, seed=1
    )
    monkeypatch.setattr(Moody, "fail_every", 4)
    monkeypatch.setattr(phase, "_load_first", lambda _: None)  # what it updates is there already
    record = encode({f"field{number}": b"x" * 100 for number in range(10)})
    MemoryBackend.put_many(backend, "usertable", {key_name(n, Settings()): record for n in range(10)})
    results = phase.run()
    found = figures(results)
    assert found["UPDATE", "Operations"] == found["UPDATE", "Return=OK"] == 75
    assert found["UPDATE", "Return=SERVICE_UNAVAILABLE"] == found["UPDATE-FAILED", "Operations"] == 25
    assert results.faults == ["UPDATE: 25 SERVICE_UNAVAILABLE; the first: the store is moody; try again"]


def test_what_fails_beside_operations_is_named_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(MemoryBackend):
        def flush(self) -> None:
            raise BackendUnavailableError("not all of it is on the disk; try again")

    phase, _ = phase_on(Forgetful(), monkeypatch, recordcount=10)
    assert phase.load().faults == ["flush: not all of it is on the disk; try again"]


@pytest.mark.parametrize(
    ("properties", "inserted", "failed"),
    [
        ({}, 4, 1),
        ({"core_workload_insertion_keep_going_on_error": "true"}, 16, 4),
        ({"core_workload_insertion_retry_limit": 1, "core_workload_insertion_retry_interval": 0}, 20, 4),
    ],
)
def test_a_load_ends_with_the_first_insert_that_fails_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, object], inserted: int, failed: int
) -> None:
    backend = Moody()
    backend.fail_every = 5
    phase, _ = phase_on(backend, monkeypatch, recordcount=20, **properties)
    results = phase.load()
    found = figures(results)
    assert found["INSERT", "Return=OK"] == inserted
    assert found["INSERT", "Return=SERVICE_UNAVAILABLE"] == failed
    assert results.faults


def test_a_bug_in_a_thread_ends_the_run_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(MemoryBackend):
        def get_many(self, namespace: str, keys: Iterable[bytes], **as_of: Any) -> dict[bytes, bytes]:
            raise RuntimeError("a bug")

    phase, _ = phase_on(Broken(), monkeypatch, recordcount=10, operationcount=1000, threadcount=3)
    with pytest.raises(RuntimeError, match="a bug"):
        phase.run()


@pytest.mark.parametrize(
    "kind", ["histogram", "timeseries", "raw", "hdrhistogram+histogram", "hdrhistogram+raw"]
)
def test_every_kind_of_measurement(bench: Bench, kind: str, tmp_path: Any) -> None:
    raw = tmp_path / "raw"
    done = bench(
        *("run", "memory://", "-P", "workloadc", "-p", f"measurementtype={kind}", "-s"),
        *("-p", f"measurement.raw.output_file={raw}", "-p", "measurement.histogram.verbose=true"),
    )
    if "raw" in kind:
        head, *points = raw.read_text().splitlines()
        name = "RawREAD" if "+" in kind else "READ"
        reads = [line.split(",") for line in points if line.startswith(f"{name},")]
        assert head == f"{name} latency raw data: op, timestamp(ms), latency(us)"
        assert len(reads) == 1000
        assert done.figures[name]["Total Operations"] == 1000
        assert done.figures[name]["p99"] == sorted(int(read[2]) for read in reads)[990]
        assert abs(int(reads[0][1]) / 1000 - time.time()) < 60
        assert f"{name} count: 1000, average latency(us): " in done.err
    if "histogram" in kind.split("+"):
        found = done.figures["BucketREAD" if "+" in kind else "READ"]
        assert found["Operations"] == 1000
        assert sum(found[str(bucket)] for bucket in range(1000)) + found[">1000"] == 1000
        assert {"LatencyVariance(us)", "95thPercentileLatency(us)", "99thPercentileLatency(us)"} <= set(found)
    if kind == "timeseries":
        assert done.figures["READ"]["Operations"] == 1000
        assert "0" in done.figures["READ"]


def test_ctrl_c_ends_with_the_results_so_far() -> None:
    command = [sys.executable, "-m", "ckpt", "bench", "run", "memory://", "-P", "workloada"]
    with subprocess.Popen(
        [*command, "-p", "operationcount=0", "-p", "maxexecutiontime=300", "-s", "-p", "status.interval=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that started these tests in the background has them ignore Ctrl-C.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "[READ: Count=" in line:
                break
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "interrupted" in err
    assert "[OVERALL], Throughput(ops/sec), " in out
    assert "[READ], Return=OK, " in out


def test_threads_share_the_operations(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloadc", "--threads", "7", "-p", "operationcount=1001")
    assert done.figures["READ"]["Operations"] == 1001
    few = bench("run", "memory://", "-P", "workloadc", "--threads", "7", "-p", "operationcount=3")
    assert few.figures["READ"]["Operations"] == 3


def test_threads_share_the_bytes_that_fields_are_cut_from() -> None:
    """Each had a megabyte of its own, and five hundred threads half a gigabyte."""
    settings = settings_of({}, pytest.fail)
    fields = [Fields(settings, np.random.default_rng(seed)) for seed in (1, 2)]
    assert fields[0]._pool is fields[1]._pool
    one, other = (each.all(b"user1")["field0"] for each in fields)
    assert len(one) == len(other) == 100
    assert one != other


def test_a_seed_makes_a_run_repeatable(bench: Bench) -> None:
    counts = [
        bench("run", "memory://", "-P", "workloadb", "-p", "seed=7").figures["UPDATE"]["Operations"]
        for _ in range(2)
    ]
    assert counts[0] == counts[1]
