"""Killed with -9 in the middle of their commits, queries of all operators put out what a batch would."""

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

from tests.spark.operators import FILES, LAST, OPERATORS, SCHEMA, is_right, rows_of

ROOT = Path(__file__).parents[2]
KILLS = (("begins", 14), ("ended", 14), ("begins", 16))
"""After how many such lines a driver is killed: while some queries commit, and some are about to."""


def run_driver(folder: Path, first: int, kill: tuple[str, int] | None) -> list[str]:
    """Run the driver and kill it with its JVM after the line, or let it end; what it said."""
    address = f"log://{folder}/log"
    said: list[str] = []
    with open(folder / "errors", "wb") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.every_operator", str(folder), address, str(first)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            cwd=ROOT,
        )
    assert driver.stdout is not None
    with driver, driver.stdout:
        for line in driver.stdout:
            said.append(line.strip())
            if kill is not None and sum(1 for each in said if kill[0] in each) == kill[1]:
                os.killpg(driver.pid, signal.SIGKILL)
                break
    expected = 0 if kill is None else -signal.SIGKILL
    assert driver.returncode == expected, (folder / "errors").read_text()[-5000:]
    return said


def put_out(folder: Path, operator: str) -> list[list[Row]]:
    """What each batch has put out, in their order."""
    batches = sorted(int(name) for name in os.listdir(folder / "out" / operator) if name.isdigit())
    return [pickle.loads((folder / "out" / operator / str(batch)).read_bytes()) for batch in batches]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(1800)  # four drivers with eighteen queries: long on a busy machine
def test_queries_that_are_killed_go_on_where_they_were(tmp_path: Path, stream_of: Any) -> None:
    rows, right = stream_of("rows", SCHEMA), stream_of("right", SCHEMA)
    for file in (*map(rows_of, range(FILES)), LAST):
        rows.feed(file)
        right.feed([row for row in file if is_right(row)])

    said: list[str] = []
    for attempt, kill in enumerate(KILLS):
        said += run_driver(tmp_path, attempt * len(OPERATORS) // len(KILLS), kill)
    # A query that is started anew looks at its watermark only when there is data.
    rows.feed(LAST)
    right.feed(LAST)
    said += run_driver(tmp_path, 0, None)

    begun = Counter(line for line in said if "begins" in line)
    assert max(begun.values()) > 1  # batches that were killed were run again
    found = {name: operator.outcome(put_out(tmp_path, name)) for name, operator in OPERATORS.items()}
    expected = {name: operator.expected(rows.rows(), right.rows()) for name, operator in OPERATORS.items()}
    assert found == expected
