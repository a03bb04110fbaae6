"""The gate judges times and takes true samples; the proof leaves no test out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import effort, gate, prove


def test_tests_of_a_file_share_a_worker(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@tests/packaging/test_gate.py"), "pytest-xdist sees the group"


@pytest.fixture
def seed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(effort, "PROVING", False)
    return monkeypatch


def test_a_test_that_takes_half_as_long_again_is_named() -> None:
    took_s, budget_s = {"quick": 14.0, "slow": 31.0}, {"quick": 10.0, "slow": 20.0}
    (line,) = gate.over_budget(took_s, budget_s, gate.REFERENCE_GAUGE_S)
    assert line == "slow took 31 s; its budget is 20 s, here 30 s"


def test_a_machine_that_is_slower_has_more_time_and_a_faster_one_no_less() -> None:
    took_s, budget_s = {"slow": 59.0}, {"slow": 20.0}
    assert gate.over_budget(took_s, budget_s, 2 * gate.REFERENCE_GAUGE_S) == []
    assert gate.over_budget({"slow": 29.0}, budget_s, gate.REFERENCE_GAUGE_S / 9) == []


@given(length=st.integers(0, 300), size=st.integers(1, 40), number=st.integers(0, 10**6))
def test_a_sample_has_one_of_each_stretch(length: int, size: int, number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effort, "PROVING", False)
        patch.setattr(effort, "SEED", number)
        taken = effort.sample(range(length), size)
    assert len(taken) == min(length, size)
    assert taken == sorted(set(taken))
    assert length <= size or [n * size // length for n in taken] == pytest.approx(range(size), abs=1)


def test_samples_of_several_runs_reach_everything(seed: pytest.MonkeyPatch) -> None:
    reached = set()
    for number in range(7):
        seed.setattr(effort, "SEED", number)
        reached |= set(range(100)[effort.nth(7)])
    assert reached == set(range(100))


def test_the_proof_takes_everything(seed: pytest.MonkeyPatch) -> None:
    seed.setattr(effort, "PROVING", True)
    assert effort.sample(range(100), 3) == list(range(100))
    assert range(100)[effort.nth(7)] == range(100)
    assert effort.effort(3, 300) == 300


def test_every_test_belongs_to_one_part_of_the_proof() -> None:
    proved = Counter(file for part in prove.PARTS for file in prove.files_of(part))
    there = {str(path) for path in (Path(prove.ROOT) / "tests").rglob("test_*.py")}
    assert set(proved) == there
    assert set(proved.values()) == {1}
    assert all(prove.files_of(part) for part in prove.PARTS)


def test_the_table_of_a_proof_has_its_counts_and_its_failures() -> None:
    kills = {"what": "trust/test_kill.py::test_a_log_survives_kills", "rounds": 1000, "lost": 0}
    log = {"passed": 5, "failed": 1, "exit": 1, "whole_s": 130, "commit": "abc", "date": "2026-11-18"}
    rows = list(prove.rows({"log": {**log, "proofs": [kills]}}))
    assert rows[2] == "| **log** | 5 tests passed, 1 failed, 2 min |  |  |  |  | abc, 2026-11-18 |"
    assert rows[3] == "| | trust/test_kill.py::test_a_log_survives_kills | 1,000 |  |  | 0 | |"
