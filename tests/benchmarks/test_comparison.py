"""What is marked is beyond the spread of the runs before, and the report says what it compares with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_bench.interleaved import Share
from tests.benchmarks.comparison import RUNS, Change, Run, changes, comparable, report

ROOT = Path(__file__).parents[2]
MACHINE = {"cpu": "one", "cores": 2}
GROUP, NAME = "get", "get[log]"

seconds = st.floats(1e-9, 1e3)
shares = st.lists(seconds, min_size=3, max_size=3).map(sorted).map(lambda found: Share(*found))


def stats(share: Share) -> dict[str, float]:
    """The part of pytest-benchmark's figures that counts."""
    return {"q1": share.low, "median": share.middle, "q3": share.high}


def row(share: Share, name: str = NAME) -> dict[str, Any]:
    """A benchmark of this run."""
    return {"group": GROUP, "name": f"test_{name}", "fullname": f"test_gets.py::test_{name}", **stats(share)}


def run(share: Share, name: str = NAME, **machine: Any) -> Run:
    """A stored run of one benchmark."""
    return {
        "machine_info": MACHINE | machine,
        "datetime": "2026-11-18T22:30:21.000000+00:00",
        "commit_info": {"id": "0123456789abcdef"},
        "benchmarks": [{"fullname": f"test_gets.py::test_{name}", "stats": stats(share)}],
    }


@pytest.mark.parametrize(
    ("now", "mark"),
    [
        ((2.1, 2.2, 2.3), "slower"),
        ((2.0, 2.2, 2.3), ""),
        ((1.4, 1.5, 1.6), ""),
        ((0.5, 3.0, 9.0), ""),
        ((0.5, 0.9, 1.0), ""),
        ((0.5, 0.9, 0.99), "faster"),
    ],
)
def test_a_mark_means_that_the_quartiles_do_not_overlap(now: tuple[float, float, float], mark: str) -> None:
    [change] = changes([row(Share(*now))], [run(Share(1.0, 1.5, 2.0))])
    assert change.mark == mark


@settings(deadline=None)
@given(before=shares, now=shares)
def test_the_other_way_round_slower_is_faster(before: Share, now: Share) -> None:
    there, back = Change(GROUP, NAME, before, now).mark, Change(GROUP, NAME, now, before).mark
    assert {there, back} in ({"slower", "faster"}, {""})


@settings(deadline=None)
@given(before=st.lists(shares, min_size=1, max_size=RUNS), number=st.integers(0, RUNS - 1))
def test_a_run_like_one_of_those_before_has_no_mark(before: list[Share], number: int) -> None:
    [change] = changes([row(before[number % len(before)])], [run(share) for share in before])
    assert change.mark == ""


def test_only_what_is_in_both_is_compared() -> None:
    share = Share(1.0, 1.5, 2.0)
    found = changes([row(share), row(share, "get[new]")], [run(share), run(share, "get[gone]")])
    assert [change.name for change in found] == [NAME]


def test_runs_on_other_machines_and_old_ones_do_not_count() -> None:
    here = [run(Share(n, n, n)) for n in range(RUNS + 2)]
    there = run(Share(0, 0, 0), cores=8)
    assert comparable([there, *here, there], MACHINE) == here[2:]


def test_the_report_has_before_and_now_in_one_line() -> None:
    runs = [run(Share(1e-6, 2e-6, 3e-6)), run(Share(2e-6, 4e-6, 5e-6))]
    first, group, line, last = report(changes([row(Share(5e-3, 6e-3, 7e-3))], runs), runs)
    assert first.startswith("runs before: 2, the last one of 2026-11-18T22:30:21, commit 0123456789;")
    assert group == GROUP
    assert " ".join(line.split()) == "get[log] 3 µs [1 µs, 5 µs] -> 6 ms [5 ms, 7 ms] 2000.00 slower"
    assert last.startswith("of 1 benchmarks 1 slower, 0 faster")


def test_a_run_is_compared_with_those_before(tmp_path: Path) -> None:
    def bench() -> str:
        command = [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
            *("tests/benchmarks/test_values.py", "-k", "test_decode and msgspec and counter"),
            "--benchmark-enable",
            "--benchmark-only",
            *("--benchmark-max-time=0.001", "--benchmark-autosave", "--benchmark-compare"),
            f"--benchmark-storage={tmp_path}",
        ]
        # as from a shell: pytest-benchmark times nothing in what it takes for a worker of pytest-xdist
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "no run on this machine is stored yet; the next one will be compared with this one" in bench()
    again = bench()
    assert "runs before: 1, the last one of 20" in again
    assert "of 1 benchmarks " in again
    assert again.count("decode[msgspec-counter] ") == 2, "in its table, and beside the run before"
