"""Killed with -9 in the middle of their commits, queries of all operators put out what a batch would.

Also where their keys are placed by tables that change with every batch: the kill is in a batch that migrates.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import Row

from ckpt.contract.opening import open_to_read
from ckpt.spark.rebalancing.placement import misplaced
from tests.effort import PROVING, sample
from tests.spark.operators import FAMILIES, FILES, LAST, OPERATORS, is_right, rows_of
from tests.spark.small import ENVIRONMENT
from tests.spark.streams import add_file

ROOT = Path(__file__).parents[2]
KILLS = ((1, 0), (2, 4), (3, 1)) if PROVING else ((1, 1),)
"""In which batch a driver is killed, and when so many of its queries have ended it: the others commit."""
NAMES = list(OPERATORS)
GROUPS = (
    [NAMES[::2], NAMES[1::2]]
    if PROVING
    else [[name for family in FAMILIES.values() for name in sample(family, 1, family)]]
)
"""Operators whose queries run side by side: in the gate one of each family."""


def run_driver(
    folder: Path, operators: list[str], kill: tuple[int, int] | None, placed: str = "hash"
) -> list[str]:
    """Run the driver and kill it with its JVM, or let it come to its end; what it said."""
    batch = "end" if kill is None else str(kill[0])
    said: list[str] = []
    with open(folder / "errors", "wb") as errors:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.every_operator",
                folder,
                f"log://{folder}/log",
                batch,
                placed,
                *operators,
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
        )
    assert driver.stdout is not None
    with driver, driver.stdout:
        for line in driver.stdout:
            said.append(line.strip())
            if kill is not None and is_moment(kill, said, len(operators)):
                os.killpg(driver.pid, signal.SIGKILL)
                break
    expected = 0 if kill is None else -signal.SIGKILL
    assert driver.returncode == expected, (folder / "errors").read_text()[-5000:]
    return said


def is_moment(kill: tuple[int, int], said: list[str], queries: int) -> bool:
    """Whether all have begun the batch, and so many have ended it."""
    batch, most = kill
    begun, ended = (sum(line.endswith(f" {what} {batch}") for line in said) for what in ("begins", "ended"))
    return begun == queries and ended >= most


def read(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def put_out(folder: Path, operator: str) -> list[list[Row]]:
    """What each batch has put out, in their order."""
    batches = sorted(int(name) for name in os.listdir(folder / "out" / operator) if name.isdigit())
    return [read(folder / "out" / operator / str(batch)) for batch in batches]


@pytest.mark.budget(90)
@pytest.mark.timeout(1800)  # drivers with many queries: long on a busy machine
@pytest.mark.parametrize("placed", ["hash", "tables"] if PROVING else ["tables"])
@pytest.mark.parametrize("operators", GROUPS, ids=lambda names: f"{len(names)} operators")
def test_queries_that_are_killed_go_on_where_they_were(
    tmp_path: Path, operators: list[str], placed: str
) -> None:
    rows, right = tmp_path / "rows", tmp_path / "right"
    rows.mkdir()
    right.mkdir()
    for file in (*map(rows_of, range(FILES)), LAST):
        add_file(rows, file)
        add_file(right, [row for row in file if is_right(row)])

    said = [line for kill in KILLS for line in run_driver(tmp_path, operators, kill, placed)]
    # A query that is started anew looks at its watermark only when there is data.
    add_file(rows, LAST)
    add_file(right, LAST)
    said += run_driver(tmp_path, operators, None, placed)

    begun = Counter(line for line in said if "begins" in line)
    for batch, _ in KILLS:
        assert all(begun[f"{name} begins {batch}"] > 1 for name in operators)  # killed, and run again
    found = {name: OPERATORS[name].outcome(put_out(tmp_path, name)) for name in operators}
    assert found == {name: read(tmp_path / "expected" / name) for name in operators}
    with open_to_read(f"log://{tmp_path}/log") as backend:
        queries = {name.split("/")[1] for name in backend.namespaces() if name.startswith("spark/")}
        assert [row for query in queries for row in misplaced(backend, query)] == []
