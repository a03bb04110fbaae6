"""`demo` on Spark: killed in the middle of a batch, exact at the end, and honest if it is not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import ckpt
import ckpt.spark.demo
from ckpt.cli import main
from ckpt.cli.demo_results import SparkPlot
from ckpt.errors import ConfigError
from ckpt.spark.demo import DemoError, Outcome, Settings, Step
from ckpt.spark.demo.messages import Done
from tests.spark.small import JAVA_OPTIONS

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

EXACT = Outcome(
    settings=Settings(events=20_000),
    spark="4.3.0",
    words=2,
    recovered=2,
    committed=17,
    restart_s=6.0,
    spark_start_s=4.5,
    wrong=(),
    top=(("be", 3, 3), ("or", 1, 1)),
    batch_ms={"ckpt": [500.0, 400.0, 600.0], "default": [1000.0, 1200.0, 1400.0]},
)


def demo(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["demo", *args], prog_name="ckpt")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts an outcome, or an error, in the place of a run."""

    def put(outcome: Outcome | Exception) -> None:
        def run(_address: str | None, _settings: Settings, on_step: Any) -> Outcome:
            on_step(Step("batch 1", Done("ckpt", 0, 500.0, 2)))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(ckpt.spark.demo, "run", run)
        monkeypatch.setattr(ckpt.spark.demo, "require_spark", lambda: "4.3.0")

    return put


@pytest.mark.budget(60)
def test_killed_in_the_middle_of_a_batch_and_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    address = f"log://{tmp_path}/log"
    done = demo("--events", "10000", "--batches", "4", "--partitions", "6", "--address", address, "--json")
    shown = msgspec.json.decode(done.stdout)
    assert shown["exact"] is True
    assert shown["wrong_words"] == 0
    assert shown["killed_in_batch"] == 2
    assert 2 <= shown["committed_partitions"] <= 6
    assert 0 < shown["recovered_words"] < shown["words"]
    with ckpt.open_backend(address) as backend:  # and nobody else has it open any more
        assert len(backend.namespaces()) == 6


def test_medians_are_shown_as_bars_and_their_ratio(ends_with: Any) -> None:
    ends_with(EXACT)
    shown = demo().stdout
    bars = {line.split()[0]: line.count("█") for line in shown.splitlines() if "█" in line}
    assert 2 * bars["ckpt"] < bars["Spark's"] <= 3 * bars["ckpt"]
    assert "2.40" in shown
    assert "17 of 40 partitions had committed" in shown
    assert "every word counted exactly once" in shown
    assert "exact: 2 of 2 words" in shown
    assert "ckpt.spark.configure" in shown


def test_a_line_for_each_batch_that_both_have_done() -> None:
    plot = SparkPlot()
    assert plot.row(Done("ckpt", 0, 9000.0, 2), warm=False) is None
    cold = plot.row(Done("default", 0, 4000.0, 2), warm=False)
    assert cold is not None
    assert "█" not in cold.plain
    assert plot.row(Done("default", 1, 1200.0, 2), warm=True) is None
    warm = plot.row(Done("ckpt", 1, 400.0, 2), warm=True)
    assert warm is not None
    ours, theirs = warm.plain.split("ckpt 0.4 s")
    assert 2 * ours.count("█") < theirs.count("█")
    assert "default 1.2 s" in theirs


def test_the_document_is_for_scripts(ends_with: Any) -> None:
    ends_with(EXACT)
    shown = msgspec.json.decode(demo("--json").stdout)
    assert shown["median_batch_ms"] == {"ckpt": 500.0, "default": 1200.0}
    assert shown["ratio"] == 2.4


def test_a_wrong_count_is_shown_and_fails(ends_with: Any) -> None:
    ends_with(replace(EXACT, wrong=("or",)))
    shown = demo(code=1).stdout
    assert "WRONG COUNTS" in shown
    assert "wrong: or" in shown
    assert "Next:" not in shown


def test_what_spark_said_is_shown_if_it_fails(ends_with: Any) -> None:
    ends_with(DemoError("the demo's Spark application failed: no space left", "line one\nline two"))
    shown = demo(code=2).stderr
    assert "line one\nline two" in shown
    assert shown.splitlines()[-1] == "ckpt: the demo's Spark application failed: no space left"


def test_a_spark_that_does_not_start_is_one_line_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ckpt.spark.provider_jar()  # with a Java that works
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:NoSuchOption")
    shown = demo("--events", "10000", "--batches", "4", code=2).stderr.splitlines()
    assert any("NoSuchOption" in line for line in shown[:-1])
    assert shown[-1].startswith("ckpt: the demo's Spark application failed: ")


def test_state_that_does_not_outlive_a_process_is_refused() -> None:
    assert "does not outlive a process" in demo("--address", "memory://", code=2).stderr


@pytest.mark.parametrize("wrong", [{"batches": 3}, {"events": 5}, {"partitions": 1}])
def test_too_little_to_show(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="the demo needs at least"):
        Settings(**wrong)


def test_java_is_looked_for_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt.dev.tools.SYSTEM_JAVAS", f"{tmp_path}/*")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or later; install it"):
        ckpt.spark.demo.require_spark()
