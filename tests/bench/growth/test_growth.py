"""`ckpt bench growth` measures every operation of every store at every size, and says what it could not."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ckpt_bench.growth.present import OPERATIONS
from tests.effort import sample

Run = Callable[..., Result]


def test_every_operation_of_every_store_at_every_size(growth: Run, tmp_path: Path) -> None:
    html, svg = tmp_path / "page.html", tmp_path / "charts"
    stores = ("log", "rocksdict", "lmdb", "sqlite3")
    done = growth("--json", "--html", str(html), "--svg", str(svg))
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["operation"], row["keys"], row["store"]) for row in rows] == [
        (operation, keys, store) for operation in OPERATIONS for keys in (300, 1000) for store in stores
    ]
    for row in rows:
        assert list(row) == ["operation", "store", "keys", "unit", "median", "q1", "q3", "rounds", "seed"]
        assert row["q1"] <= row["median"] <= row["q3"]
        assert row["unit"] == ("bytes" if row["operation"] in ("memory", "own-memory", "disk") else "us")
        assert row["median"] > 0 or row["unit"] == "bytes", "a small store may fit into what there was"
        assert row["seed"] == 7
    assert "seed 7" in done.stderr
    assert "1,000 keys: recover" in done.stderr, "progress is for stderr"
    assert html.read_text().count("<section>") == len(OPERATIONS)
    assert {path.name for path in svg.iterdir()} == {f"{name}.svg" for name in OPERATIONS}
    for path in svg.iterdir():
        text = path.read_text()
        assert ET.fromstring(text).tag.endswith("svg")
        assert "prefers-color-scheme: dark" in text
        assert "background: var(--paper)" in text, "readable on a page of whatever colour"


@pytest.mark.parametrize("store", sample(["file", "diskcache", "file-per-key"], 1))
def test_others_can_take_part(growth: Run, store: str) -> None:
    done = growth("--keys", "300", "--store", store, "--csv")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["operation"], row["store"]) for row in rows] == [(name, store) for name in OPERATIONS]


def test_an_address_is_measured_with_its_options_and_left_empty(growth: Run, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/a new one?segment_bytes=16KiB"
    done = growth(address, "--keys", "1000", "--json")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["operation"] for row in rows} == set(OPERATIONS)
    assert {row["store"].partition("?")[2] for row in rows} == {"segment_bytes=16KiB"}
    assert list((tmp_path / "a new one").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "rocksdic"], "no store 'rocksdic' to measure; did you mean 'rocksdict'?"),
        (["--store", "raw-append"], "no store 'raw-append' to measure"),
        (["--keys", "many"], "numbers of keys are written like 10000,1e5,1e6"),
        (["--keys", "0"], "numbers of keys are written like 10000,1e5,1e6"),
        (["redis://127.0.0.1:6379/0"], "so it is in a folder: log or file"),
    ],
)
def test_wrong_use_is_one_line(growth: Run, arguments: list[str], message: str) -> None:
    done = growth(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]


def test_a_folder_with_something_in_it_is_left_alone(growth: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = growth(f"log://{tmp_path}")
    assert done.exit_code == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_peer_that_is_not_installed_is_named_and_the_others_are_measured(
    growth: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_bench.stores._PACKAGES", frozenset({"lmdb"}))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = growth("--store", "lmdb", "--store", "sqlite3", "--keys", "300", "--markdown")
    assert done.exit_code == 0, done.output
    assert "left out: lmdb is not installed; install the peers with: pip install 'ckpt[bench]'" in done.stderr
    assert done.stdout.startswith(
        "| operation | store | 300 keys |\n| --- | --- | ---: |\n| `put` | sqlite3 |"
    )


def test_a_store_that_fails_is_named_and_sets_the_exit_code(growth: Run, tmp_path: Path) -> None:
    broken = f"log://{tmp_path}/new?gc_trigger=7"
    done = growth(broken, "--store", "sqlite3", "--keys", "300", "--json")
    assert done.exit_code == 1, done.output
    assert {json.loads(line)["store"] for line in done.stdout.splitlines()} == {"sqlite3"}
    assert (
        "failed at 300 keys (fill) and is left out there: ConfigError: log option gc_trigger" in done.stderr
    )


def test_ctrl_c_ends_with_the_results_so_far(interrupted: Any, tmp_path: Path) -> None:
    small = ["--quick", "--keys", "300,1e3", "--store", "log", "--folder", str(tmp_path)]
    finished = interrupted("1,000 keys: fill", "growth", "--json", *small)
    assert {row["operation"] for row in finished if row["keys"] == 300} == set(OPERATIONS)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_store_s_process_starts_is_no_traceback(
    interrupted: Any, says_that_a_worker_starts: str, tmp_path: Path
) -> None:
    small = ["--quick", "--keys", "300", "--store", "log", "--folder", str(tmp_path)]
    assert interrupted(says_that_a_worker_starts, "growth", "--json", *small) == []
    assert list(tmp_path.iterdir()) == []
