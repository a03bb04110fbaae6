"""`demo` without Spark: killed in the middle, exact at the end, and honest if it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

import ckpt.spark.demo
from ckpt.demo import plain
from ckpt.demo.plain import WordCountResult, WorkerReport, count
from ckpt.demo.words import counts, stream
from ckpt.errors import ConfigError

Run = Callable[..., Result]

EXACT = WordCountResult(
    events=2000, words=2, killed_at=1000, resumed_at=0, skipped=9, wrong=(), top=(("be", 1, 1), ("or", 1, 1))
)


@given(seed=st.integers(0, 5), cuts=st.tuples(st.integers(0, 3500), st.integers(0, 3500)))
def test_the_stream_is_the_same_from_every_offset(seed: int, cuts: tuple[int, int]) -> None:
    start, stop = sorted(cuts)
    whole = [word for block in stream(seed, 0, 3500) for word in block]
    assert [word for block in stream(seed, start, stop) for word in block] == whole[start:stop]


def test_the_stream_is_skewed() -> None:
    counts = Counter(word for block in stream(1, 0, 50_000) for word in block)
    assert counts.most_common(1)[0][1] > 50_000 / 20
    assert len(counts) > 1000


def test_killed_and_exact(run_json: Callable[..., list[Any]]) -> None:
    [shown] = run_json("demo", "--without-spark", "--events", "30000", "--seed", "3")
    assert shown["exact"] is True
    assert shown["wrong_words"] == 0
    assert 15_000 <= shown["killed_at"] < 30_000
    assert shown["resumed_at"] == 10_000
    assert shown["skipped"] > 0


def test_the_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "run", lambda *_, **__: EXACT)
    shown = run("demo", "--without-spark").stdout
    assert "every word counted exactly once" in shown
    assert "exact: 2 of 2 words" in shown


def test_a_wrong_count_is_shown_and_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "run", lambda *_, **__: replace(EXACT, wrong=("or",)))
    shown = run("demo", "--without-spark", code=1).stdout
    assert "WRONG COUNTS" in shown
    assert "wrong: or" in shown


def test_where_spark_is_missing_it_says_so_and_counts_without(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise ConfigError("pyspark is not installed; install it with: pip install 'ckpt[spark]'")

    monkeypatch.setattr(ckpt.spark.demo, "require_spark", missing)
    monkeypatch.setattr(plain, "run", lambda *_, **__: EXACT)
    shown = run("demo")
    assert shown.stderr.splitlines() == [
        "without Spark, because pyspark is not installed; install it with: pip install 'ckpt[spark]'"
    ]
    assert "exact: 2 of 2 words" in shown.stdout


def test_a_given_address_keeps_the_checkpoints(run: Run, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/demo"
    run("demo", "--without-spark", "--events", "10000", "--address", address)
    assert run("ls", address).stdout == "ckpt-demo-position\nckpt-demo-words\nckpt.hot\n"
    refused = run("demo", "--without-spark", "--events", "10000", "--address", address, code=2).stderr
    assert "of an earlier demo" in refused


@pytest.mark.parametrize(
    ("address", "says"), [("memory://", "does not outlive a process"), ("lgo:///x", "did you mean 'log'")]
)
def test_wrong_addresses(run: Run, address: str, says: str) -> None:
    assert says in run("demo", "--without-spark", "--address", address, code=2).stderr


def test_a_worker_that_stops_between_barriers_is_continued_exactly(tmp_path: Path) -> None:
    """Without a process: the first worker ends by an error at an offset that is not a safe position."""
    address = f"log://{tmp_path}/demo"
    seen: list[WorkerReport] = []

    class StoppedError(Exception):
        pass

    def stop(report: WorkerReport) -> None:
        if report.offset >= 7000:
            raise StoppedError

    with pytest.raises(StoppedError):
        count(address, 5, 12_000, stop)
    count(address, 5, 12_000, seen.append)
    assert seen[0].offset == 0
    assert seen[-1].skipped > 0
    assert plain._counts(address) == counts(5, 12_000)
