"""Percentiles and files are HdrHistogram's: compared with what its Python port made of the same values."""

from __future__ import annotations

import base64
import io
import re
import struct
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_bench.ycsb.hdrfiles import IntervalLog, compressed, distribution
from ckpt_bench.ycsb.histogram import HIGHEST_US, LatencyHistogram

COUNTS = {0: 3, 1: 1, 5: 200, 2047: 1, 2048: 7, 5000: 70_000, 123_456: 1, 10**9: 2, HIGHEST_US: 1}
GOLDEN = "HISTFAAAADh4nJNpmSzMwMAgwQABzFCaEYjl/wOB/QeIABsT6wTmj/JMfAeFHxzlOO3FdPE8I8vUIiYAZFwOsw=="
"""What hdrhistogram 0.10.8 encodes these counts to, with three digits and the same greatest value."""


def histogram_of(counts: dict[int, int]) -> LatencyHistogram:
    made = LatencyHistogram()
    made.record(np.repeat(np.array(list(counts)), list(counts.values())))
    return made


def test_the_same_bytes_as_hdrhistogram() -> None:
    ours, theirs = (base64.b64decode(text) for text in (compressed(histogram_of(COUNTS)), GOLDEN))
    for made in (ours, theirs):
        cookie, length = struct.unpack(">ii", made[:8])
        assert (cookie, length) == (0x1C849314, len(made) - 8)
    assert zlib.decompress(ours[8:]) == zlib.decompress(theirs[8:])


def test_the_same_statistics_as_hdrhistogram() -> None:
    made = histogram_of(COUNTS)
    assert made.total == 70_216
    assert [made.percentile_us(p) for p in (50, 99, 99.9, 100)] == [5003, 5003, 5003, 137_438_953_471]
    assert made.mean_us == pytest.approx(1990370.26659166)
    assert made.deviation_us == pytest.approx(518567817.8687584)
    assert (made.min_us, made.max_us) == (0, HIGHEST_US)


def test_a_percentile_is_off_by_less_than_a_thousandth() -> None:
    values = np.random.default_rng(1).lognormal(8, 3, 100_000).astype(np.int64)
    made = LatencyHistogram()
    made.record(values)
    values.sort()
    for rank in (1000, 25_000, 50_000, 75_000, 90_000, 99_000, 99_900, 99_990):
        exact, percentile = values[rank - 1], rank / 1000
        assert exact <= made.percentile_us(percentile) <= exact * 1.001 + 1


def test_intervals_add_up() -> None:
    one, other = histogram_of({5: 3, 10_000: 1}), histogram_of({5: 1})
    one.add(other)
    assert compressed(one) == compressed(histogram_of({5: 4, 10_000: 1}))


def test_values_beyond_the_range_count_as_its_end() -> None:
    made = histogram_of({HIGHEST_US * 2: 1, -5: 1})
    assert (made.min_us, made.max_us, made.total) == (0, HIGHEST_US, 2)


def test_nothing_recorded_is_nothing_and_no_error() -> None:
    made = LatencyHistogram()
    made.record(np.zeros(0, np.int64))
    assert (made.total, made.mean_us, made.deviation_us, made.percentile_us(99)) == (0, 0.0, 0.0, 0)
    assert zlib.decompress(base64.b64decode(compressed(made))[8:])[4:8] == bytes(4)


def test_an_interval_log_has_the_lines_that_readers_look_for() -> None:
    out = io.StringIO()
    log = IntervalLog(out, "READ", 1_700_000_000.0)
    log.write(histogram_of({5: 1, 2000: 1}), 1_700_000_000.0, 1_700_000_001.5)
    *head, legend, line = out.getvalue().splitlines()
    assert head[1] == "#[Histogram log format version 1.2]"
    assert head[2].startswith(
        "#[StartTime: 1700000000.000 (seconds since epoch), Tue Nov 14 22:13:20 UTC 2023"
    )
    assert legend.startswith('"StartTimestamp","Interval_Length","Interval_Max"')
    assert line == f"0.000,1.500,2.000,{compressed(histogram_of({5: 1, 2000: 1}))}"


def test_a_distribution_rises_to_one_and_ends_with_the_summary() -> None:
    values = np.random.default_rng(1).lognormal(5, 1, 20_000).astype(np.int64)
    made = LatencyHistogram()
    made.record(values)
    lines = list(distribution(made))
    rows = [[float(cell) for cell in line.split()] for line in lines[2:] if not line.startswith("#")]
    assert len(rows) > 40
    assert [row[:3] for row in rows] == sorted(row[:3] for row in rows)
    assert rows[-1] == [made.max_us, 1.0, 20_000]
    for value, share, count, *_ in rows:
        assert np.count_nonzero(values <= value) == count
        assert share == pytest.approx(count / 20_000)
    assert re.fullmatch(r"#\[Mean +=  *[\d.]+, StdDeviation +=  *[\d.]+\]", lines[-3])


def test_intervals_begin_with_the_run(bench: Callable[..., Any], tmp_path: Path) -> None:
    """What is first seen when a second is over happened within it, not after it."""
    before_s = time.time()
    bench(
        *(
            "run",
            "memory://",
            "-P",
            "workloadc",
            "-p",
            "hdrhistogram.fileoutput=true",
            "-s",
            "--target",
            "400",
        ),
        *("-p", "status.interval=1", "-p", f"hdrhistogram.output.path={tmp_path}/"),
    )
    lines = (tmp_path / "READ.hdr").read_text().splitlines()
    started_s = float(re.search(r"StartTime: ([\d.]+)", "\n".join(lines))[1])  # type: ignore[index]
    intervals = [[float(cell) for cell in line.split(",")[:2]] for line in lines if line[0].isdigit()]
    assert before_s <= started_s < time.time() - 2.4, "the start of the run, not of its first interval"
    assert intervals[0][0] == 0
    assert intervals[0][1] >= 1
    for (begun_s, length_s), (next_s, _) in pairwise(intervals):
        assert next_s == pytest.approx(begun_s + length_s, abs=0.002)


def test_a_run_writes_files_for_each_operation(bench: Callable[..., Any], tmp_path: Path) -> None:
    bench(
        *("run", "memory://", "-P", "workloada", "-p", "hdrhistogram.fileoutput=true", "-s"),
        *("-p", f"hdrhistogram.output.path={tmp_path}/run-"),
    )
    for name in ("READ", "UPDATE"):
        lines = (tmp_path / f"run-{name}.hdr").read_text().splitlines()
        intervals = [line for line in lines if line[0].isdigit()]
        assert any(",HISTF" in line for line in intervals)
        assert (tmp_path / f"run-{name}.hgrm").read_text().splitlines()[0].split()[0] == "Value"
