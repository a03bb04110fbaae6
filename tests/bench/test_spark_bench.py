"""`ckpt bench spark` measures what it says, and shows it: tiny sizes, and nothing about speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ckpt.cli import main
from ckpt_bench.spark.contestants import CONTESTANTS, OURS
from ckpt_bench.spark.present import report, sections
from tests.effort import sample
from tests.spark.small import JAVA_OPTIONS

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")


def bench(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["bench", "spark", "--quick", "--master", "local[2]", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def batches_of(**took_ms: list[int]) -> dict[str, Any]:
    """Figures of the first part, as a run would have found them."""
    return {
        "partitions": 3,
        "rows": 10,
        "keys": 20,
        "batches": 4,
        "providers": {
            name: [{"took_ms": ms, "cpu_ms": 2 * ms, "commit_ms": 1, "files": 7} for ms in of]
            for name, of in took_ms.items()
        },
    }


TINY = ("--partitions", "2", "--rows", "100", "--keys", "200", "--batches", "1", "--warmup", "1")
OTHERS = [name for name in CONTESTANTS if name != OURS]
PARTS = {
    "restart": ["--restart-keys", "200"],
    "growth": ["--size", "100", "--size", "1000"],
    "memory": [],
    "files": [],
}


@pytest.fixture(autouse=True)
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the JVMs that a benchmark starts."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)


@pytest.mark.budget(60)
@pytest.mark.timeout(1800)
def test_batches_of_all_in_turn(tmp_path: Path) -> None:
    plot = tmp_path / "spark.html"
    compared = [OURS, *sample(OTHERS, 2, "contestants")]
    chosen = [word for name in compared for word in ("--provider", name)]
    found = json.loads(bench("batches", *TINY, *chosen, "--json", "--plot", str(plot)))["batches"]
    assert list(found["providers"]) == compared
    for name, batches in found["providers"].items():
        assert len(batches) == found["batches"]
        assert all(batch["took_ms"] > 0 and batch["cpu_ms"] > 0 for batch in batches)
        if CONTESTANTS[name].stateful:
            assert 0 < batches[-1]["keys"] <= found["keys"]
            assert all(batch["commit_ms"] >= 0 and batch["files"] > 0 for batch in batches)
    stateful = [name for name in compared if CONTESTANTS[name].stateful]
    same = {tuple(b["keys"] for b in found["providers"][name]) for name in stateful}
    assert len(same) == 1, "all stateful queries saw the same rows"
    assert all(name in plot.read_text() for name in compared)


@pytest.mark.budget(60)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", sample(list(PARTS), 1, "parts"))
def test_another_part_as_table_and_chart(tmp_path: Path, part: str) -> None:
    printed = bench(part, *TINY, *PARTS[part], "--provider", OURS, "--svg", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [f"{part}.svg"]
    title = {"restart": "Restart after kill -9."}.get(part, f"{part.capitalize()}.")
    assert title in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith("ckpt ")]
    assert len(rows) == {"growth": 2, "files": 2}.get(part, 1)
    if part == "growth":
        assert [row[1] for row in rows] == ["100", "1,000"]


def test_ratios_are_of_pairs_and_the_quartiles_are_theirs() -> None:
    figures = {"batches": batches_of(ckpt=[10, 100, 10, 100], default=[20, 300, 20, 300])}
    (section,) = sections(figures).values()
    by_name = {row[0]: dict(zip(section.header, row, strict=True)) for row in section.rows}
    assert by_name["default"]["of ckpt's"] == "2.50 [2.00 3.00]"
    assert by_name["ckpt"]["of ckpt's"] == "-"
    assert by_name["ckpt"]["ms"] == "55"


def test_a_restart_is_what_it_takes_above_an_empty_one_that_keeps_nothing() -> None:
    providers = {
        "ckpt": {"empty_ms": [100, 100], "restarted_ms": [150, 160]},
        "default": {"empty_ms": [290, 290], "restarted_ms": [600, 710]},
        "rocksdb": {"empty_ms": [90, 90], "restarted_ms": [90, 190]},
    }
    found = {"partitions": 3, "keys": 9, "floor_ms": [100, 110], "providers": providers}
    (section,) = sections({"restart": found}).values()
    by_name = {row[0]: dict(zip(section.header, row, strict=True)) for row in section.rows}
    assert by_name["ckpt"]["above ms"] == "50"
    assert by_name["default"]["ckpt's of it"].startswith("0.09 ")
    assert by_name["rocksdb"]["ckpt's of it"] == "-"  # not above it: there is nothing to have a share of


def test_files_are_shown_for_each_number_of_partitions_and_batches() -> None:
    counts = [{"partitions": p, "batches": b, "files": p * b} for p in (2, 20) for b in (4, 8)]
    (section,) = sections({"files": {"providers": {"default": counts}}}).values()
    assert section.rows == [
        ["default", "2", "4", "8"],
        ["default", "2", "8", "16"],
        ["default", "20", "4", "80"],
        ["default", "20", "8", "160"],
    ]


def test_a_page_holds_every_part_and_fetches_nothing() -> None:
    html = report({"batches": batches_of(ckpt=[10], nothing=[5]), "memory": memory_of(ckpt=100.0)})
    assert html.count("<section>") == 2
    assert html.count("<table>") == 2
    assert not any(word in html for word in ("<script", "src=", "<link"))


def memory_of(**per_key: float) -> dict[str, Any]:
    return {"partitions": 3, "keys": 9, "heap_bytes_per_key": per_key}


def test_what_cannot_run_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    done = CliRunner().invoke(main, ["bench", "spark", "files", "--quick", "--provider", "ckpt"])
    assert done.exit_code == 2
    assert "/nowhere holds no Spark" in done.output
