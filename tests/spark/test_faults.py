"""Killed with -9 at bad moments, a query counts exactly what it would have counted without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame, SparkSession

DRIVER = Path(__file__).with_name("count_words.py")
FILES = 7


def words_of(file: int) -> list[str]:
    return [f"w{(n * (file + 3)) % 23}" for n in range(60)]


def run_driver(folder: Path, address: str, *, kill_after: str | None) -> bool:
    """Run the driver; kill it with its JVM at the line; whether it came to its end."""
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder), address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    with driver, driver.stdout:
        for line in driver.stdout:
            if line.strip() == kill_after:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                return False
    return driver.returncode == 0


@pytest.mark.crash
@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for file in range(FILES):
        rows = "".join(f"{json.dumps({'word': word})}\n" for word in words_of(file))
        (tmp_path / "in" / f"{file:03}.json").write_text(rows)
    address = f"log://{tmp_path}/log"
    for line in ("begins 1", "begins 3", "ended 4"):
        assert not run_driver(tmp_path, address, kill_after=line)
    assert run_driver(tmp_path, address, kill_after=None)
    newest: dict[str, int] = {}
    for batch in range(FILES):
        newest |= json.loads((tmp_path / "out" / f"{batch}.json").read_text())
    assert newest == Counter(word for file in range(FILES) for word in words_of(file))


def sidecars_of(jvm: int) -> list[int]:
    """The processes that this JVM has started and that are sidecars."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == jvm and b"serve" in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


@pytest.mark.crash
def test_a_killed_sidecar_is_started_again(spark: SparkSession, stream_of: Any) -> None:
    stream = stream_of("in", "word string")
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    killed: list[int] = []
    newest: dict[str, int] = {}

    def put_out(batch: DataFrame, number: int) -> None:
        if number % 2:
            for sidecar in sidecars_of(jvm):
                os.kill(sidecar, signal.SIGKILL)
                killed.append(sidecar)
        newest.update({row["word"]: row["count"] for row in batch.collect()})

    for file in range(4):
        stream.feed([{"word": word} for word in words_of(file)])
    counts = stream.stream().groupBy("word").count().writeStream.outputMode("update").foreachBatch(put_out)
    query = counts.option("checkpointLocation", stream.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(set(killed)) == 2
    assert newest == Counter(word for file in range(4) for word in words_of(file))
