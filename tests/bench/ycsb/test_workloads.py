"""`ckpt bench load|run` carry out the workloads of YCSB and print what its scripts parse."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ckpt
from ckpt_bench.ycsb.command import workload_file
from ckpt_bench.ycsb.records import decode

WORKLOADS = Path(__file__).parents[3] / "configs" / "workloads"
Bench = Callable[..., Any]
MIXES = {
    "workloada": {"READ": 0.5, "UPDATE": 0.5},
    "workloadb": {"READ": 0.95, "UPDATE": 0.05},
    "workloadc": {"READ": 1.0},
    "workloadd": {"READ": 0.95, "INSERT": 0.05},
    "workloade": {"SCAN": 0.95, "INSERT": 0.05},
    "workloadf": {"READ": 1.0, "READ-MODIFY-WRITE": 0.5},
}


@pytest.mark.parametrize("name", MIXES)
def test_a_workload_of_ycsb(bench: Bench, name: str) -> None:
    operations = 200 if name == "workloade" else 1000
    done = bench(
        "run", "memory://", "-P", WORKLOADS / name, "-p", f"operationcount={operations}", "-p", "seed=1"
    )
    found = done.figures
    for operation, share in MIXES[name].items():
        count = found[operation]["Operations"]
        assert count / operations == pytest.approx(share, abs=0.06)
        if operation != "READ-MODIFY-WRITE":
            assert found[operation]["Return=OK"] == count
    assert found["OVERALL"]["RunTime(ms)"] > 0
    assert found["OVERALL"]["Throughput(ops/sec)"] > 0
    assert not [metric for metric in found if metric.endswith("-FAILED")]


def test_load_then_run_on_a_store_that_lasts(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    loaded = bench("load", address, "-P", "workloada", "-p", "recordcount=300", "--threads", "3")
    assert loaded.figures["INSERT"]["Operations"] == loaded.figures["INSERT"]["Return=OK"] == 300
    with ckpt.open_backend(address) as backend:
        rows = dict(backend.scan("usertable"))
    assert len(rows) == 300
    record = decode(rows[b"user6284781860667377211"])
    assert {name: len(value) for name, value in record.items()} == {f"field{n}": 100 for n in range(10)}
    ran = bench("run", address, "-P", "workloada", "-p", "recordcount=300", "--threads", "3")
    assert ran.figures["READ"]["Return=OK"] + ran.figures["UPDATE"]["Return=OK"] == 1000


def test_the_shape_of_the_text_is_ycsbs(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloada", "-p", "hdrhistogram.percentiles=50,91,99.9")
    lines = done.out.splitlines()
    assert [line.rsplit(", ", 1)[0] for line in lines[:2]] == [
        "[OVERALL], RunTime(ms)",
        "[OVERALL], Throughput(ops/sec)",
    ]
    assert [line.rsplit(", ", 1)[0] for line in lines if line.startswith("[READ],")] == [
        "[READ], Operations",
        "[READ], AverageLatency(us)",
        "[READ], MinLatency(us)",
        "[READ], MaxLatency(us)",
        "[READ], 50thPercentileLatency(us)",
        "[READ], 91stPercentileLatency(us)",
        "[READ], 99.9PercentileLatency(us)",
        "[READ], Return=OK",
    ]


def test_parts_of_a_load_are_one_table(bench: Bench, tmp_path: Path) -> None:
    address = f"file://{tmp_path}/store?durability=os"
    common = ("-p", "recordcount=40", "-p", "insertorder=ordered", "-p", "zeropadding=4")
    bench("load", address, *common, "-p", "insertstart=0", "-p", "insertcount=25", "-p", "batchsize=10")
    bench("load", address, *common, "-p", "insertstart=25", "-p", "insertcount=15", "-p", "table=usertable")
    with ckpt.open_backend(address) as backend:
        assert [key for key, _ in backend.scan("usertable")] == [b"user%04d" % n for n in range(40)]


def test_integrity_is_checked_and_a_changed_record_found(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    common = ("-P", "workloada", "-p", "recordcount=20", "-p", "dataintegrity=true", "-p", "seed=1")
    bench("load", address, *common)
    found = bench("run", address, *common, "-p", "operationcount=300").figures
    assert found["VERIFY"]["Return=OK"] == found["READ"]["Operations"]
    with ckpt.open_backend(address) as backend:
        rows = dict(backend.scan("usertable"))
        first, second = sorted(rows)[:2]
        backend.put_many("usertable", {first: rows[second]})
    again = bench("run", address, *common, "-p", "readproportion=1", "-p", "updateproportion=0", code=1)
    assert again.figures["VERIFY"]["Return=UNEXPECTED_STATE"] > 0
    assert "VERIFY: " in again.err
    assert "UNEXPECTED_STATE" in again.err


def test_what_is_missing_is_counted_shown_and_sets_the_exit_code(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-P", "workloada", "-p", "recordcount=10")
    done = bench("run", address, "-P", "workloada", code=1)
    missing = done.figures["READ"]["Return=NOT_FOUND"]
    assert done.figures["READ-FAILED"]["Operations"] == missing > 0
    assert f"READ: {missing:.0f} NOT_FOUND (was it loaded with this recordcount" in done.err
    each = bench("run", address, "-P", "workloada", "-p", "reportlatencyforeacherror=true", code=1)
    assert "READ-NOT_FOUND" in each.figures


def test_one_field_is_read_and_one_is_written(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    common = ("-p", "recordcount=1", "-p", "fieldcount=3", "-p", "fieldlength=8", "-p", "fieldnameprefix=f")
    bench("load", address, *common)
    with ckpt.open_backend(address) as backend:
        [(key, before)] = backend.scan("usertable")
    changes = ("-p", "readproportion=0", "-p", "updateproportion=1", "-p", "operationcount=1")
    bench("run", address, *common, *changes)
    with ckpt.open_backend(address) as backend:
        after = backend.get_many("usertable", [key])[key]
    old, new = decode(before), decode(after)
    assert list(new) == ["f0", "f1", "f2"]
    assert sum(old[name] != new[name] for name in old) == 1


@pytest.mark.parametrize("keeper", ["true", "false"])
def test_a_field_that_was_never_loaded_is_missing_and_no_bug(
    bench: Bench, tmp_path: Path, keeper: str
) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    loaded = ("-P", "workloadc", "-p", "recordcount=10", "-p", f"safekeeper={keeper}")
    bench("load", address, *loaded, "-p", "fieldcount=1")
    done = bench("run", address, *loaded, "-p", "fieldcount=4", "-p", "readallfields=false", code=1)
    reads = done.figures["READ"]
    assert reads["Return=OK"] + reads["Return=NOT_FOUND"] == 1000
    assert reads["Return=NOT_FOUND"] == pytest.approx(750, abs=100)
    assert re.search(r"READ: \d+ NOT_FOUND \(was it loaded with this .*fieldcount\?\)", done.err)


def test_a_record_that_was_loaded_without_integrity_asks_for_that(bench: Bench, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/store?durability=os"
    bench("load", address, "-P", "workloadc", "-p", "recordcount=10")
    done = bench(
        "run", address, "-P", "workloadc", "-p", "recordcount=10", "-p", "dataintegrity=true", code=1
    )
    assert "VERIFY: 1000 UNEXPECTED_STATE (was it loaded with dataintegrity=true" in done.err


def test_scans_begin_at_a_key_and_go_on_in_order(bench: Bench, tmp_path: Path) -> None:
    """On a store with ordered scans and on one without; what they read is checked with their number."""
    for address in (f"file://{tmp_path}/file?durability=os", f"log://{tmp_path}/log?durability=os"):
        common = ("-p", "recordcount=50", "-p", "insertorder=ordered", "-p", "zeropadding=3")
        bench("load", address, *common)
        scans = ("-p", "readproportion=0", "-p", "updateproportion=0", "-p", "scanproportion=1")
        lengths = ("-p", "minscanlength=5", "-p", "maxscanlength=5", "-p", "operationcount=30")
        done = bench("run", address, *common, *scans, *lengths)
        assert done.figures["SCAN"]["Return=OK"] == 30
        assert done.figures["SCAN-LATENCY-PER-RECORD"]["Operations"] == 30
        assert "SCAN walks the table" in done.err


def test_results_as_json_as_an_array_as_csv_and_in_a_file(bench: Bench, tmp_path: Path) -> None:
    run = ("run", "memory://", "-P", "workloadc", "-p", "operationcount=50")
    rows = [json.loads(line) for line in bench(*run, "--json").out.splitlines()]
    assert {"metric": "READ", "measurement": "Operations", "value": 50} in rows
    exporter = "site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter"
    whole = json.loads(bench(*run, "-p", f"exporter={exporter}").out)
    assert {"metric": "READ", "measurement": "Return=OK", "value": 50} in whole
    written = tmp_path / "results.csv"
    done = bench(*run, "-p", "exporter=csv", "-p", f"exportfile={written}")
    assert done.out == ""
    assert ["READ", "Operations", "50"] in list(csv.reader(written.read_text().splitlines()))


def test_a_page_has_every_figure(bench: Bench, tmp_path: Path) -> None:
    html = tmp_path / "run.html"
    done = bench("run", "memory://", "-P", "workloada", "--html", html)
    text = html.read_text()
    assert text.count("<svg") >= 2
    assert "95thPercentileLatency(us)" in text
    assert "[READ], Operations" in done.out


def test_a_page_shows_throughput_against_latency(bench: Bench, tmp_path: Path) -> None:
    html = tmp_path / "run.html"
    bench("run", "memory://", "-P", "workloadc", "--html", html, "--target", "800")
    text = html.read_text()
    assert "<title>Throughput against latency</title>" in text
    chart = text.partition("<title>Throughput against latency</title>")[2].partition("</svg>")[0]
    assert len(re.findall(r"<title>READ: [\d.]+ [µm]s at [\d.,]+</title>", chart)) == 2, "two parts of a run"


def test_the_summary_of_a_page_has_no_series(bench: Bench, tmp_path: Path) -> None:
    html = tmp_path / "run.html"
    bench("run", "memory://", "-P", "workloadc", "-p", "measurementtype=timeseries", "--html", html)
    summary = html.read_text().partition("<h2>Summary</h2>")[2].partition("</section>")[0]
    assert "READ: 0" not in summary
    assert "throughput" in summary


def test_a_page_shows_the_last_part_of_a_second_too(bench: Bench, tmp_path: Path) -> None:
    html = tmp_path / "run.html"
    bench("run", "memory://", "-P", "workloadc", "--html", html, "--target", "700")
    over_time = html.read_text().partition("<title>Throughput over time</title>")[2].partition("</desc>")[0]
    assert " at 1 s" in over_time


def test_the_time_that_is_left_is_at_most_the_limit(bench: Bench) -> None:
    limit = ("-p", "operationcount=100000000", "-p", "maxexecutiontime=2")
    done = bench("run", "memory://", "-P", "workloadc", "-s", "-p", "status.interval=1", *limit)
    (left,) = [line for line in done.err.splitlines() if " 1 sec: " in line and "READ" in line]
    assert "est completion in 1 second " in left


def test_status_lines_have_ycsbs_shape(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloadc", "-s", "-p", "label=mine ")
    lines = [line for line in done.err.splitlines() if " sec: " in line]
    assert lines[0].startswith("mine ")
    assert "0 sec: 0 operations;" in lines[0]
    assert "1000 operations; " in lines[-1]
    for part in ("current ops/sec; ", "[READ: Count=1000, Max=", ", Min=", ", Avg=", ", 99.99="):
        assert part in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-P", "workloadx"), "no workload file 'workloadx'"),
        (
            ("-p", "workload=site.ycsb.workloads.TimeSeriesWorkload"),
            "TimeSeriesWorkload is not one that runs",
        ),
        (("-p", "operationcount=10"), "no records to choose from"),
        (("-p", "recordcount=10"), "the run has no end"),
        (("-p", "readpropotion=1"), "did you mean 'readproportion'"),
        (("-P", "workloadc", "-p", "readproportion=0"), "no operation has a proportion"),
    ],
)
def test_wrong_use_is_one_line(bench: Bench, arguments: tuple[str, ...], message: str) -> None:
    assert message in bench("run", "memory://", *arguments, code=2).err


def test_workloads_are_found_by_name_in_a_wheel_too() -> None:
    """A wheel has no configs folder; its workloads are put beside the module that looks for them."""
    build = tomllib.loads((WORKLOADS.parents[1] / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"configs/workloads": "ckpt_bench/ycsb/workloads"}
    for name in (*MIXES, "checkpoint"):
        assert Path(workload_file(name)).read_text() == (WORKLOADS / name).read_text()


def test_the_time_is_a_limit(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloadc", "-p", "operationcount=0", "-p", "maxexecutiontime=1")
    assert done.figures["READ"]["Operations"] > 0
