"""Killed with -9 at bad moments, a query counts exactly what it would have counted without."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ckpt.dev import Server
from tests.effort import effort, sample
from tests.spark.small import ARGUMENTS
from tests.spark.streams import add_file

DRIVER = Path(__file__).with_name("count_words.py")
SETTINGS = "spark.sql.streaming.stateStore.ckpt"
ADDRESS = f"{SETTINGS}.address"
FILES = effort(6, 7)
KILLS = {"in memory": ("begins 1", "begins 3", "ended 4"), "on disk": ("begins 3",)}
"""After which lines a driver is killed, by where it holds state; the first batches spill nothing."""
ON_DISK = (f"{SETTINGS}.memory=0", f"{SETTINGS}.recovery=lazy")


def words_of(file: int) -> list[str]:
    return [f"w{(n * (file + 3)) % 23}" for n in range(60)]


def run_driver(folder: Path, address: str, *settings: str, kill_after: str | None) -> bool:
    """Run the driver; kill it with its JVM at the line; whether it came to its end."""
    driver = subprocess.Popen(
        [sys.executable, DRIVER, folder, address, *ARGUMENTS, *(f"--conf={pair}" for pair in settings)],
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


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A folder with words to be counted."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for file in range(FILES):
        add_file(tmp_path / "in", [{"word": word} for word in words_of(file)])
    return tmp_path


def check_counts(words: Path) -> None:
    newest: dict[str, int] = {}
    for batch in range(FILES):
        newest |= json.loads((words / "out" / f"{batch}.json").read_text())
    assert newest == Counter(word for file in range(FILES) for word in words_of(file))


@pytest.mark.budget(50)
@pytest.mark.parametrize("state", sample(list(KILLS), 1, "state"))
def test_a_driver_that_is_killed_goes_on_where_it_was(words: Path, state: str) -> None:
    """What it has spilled to disk is not recovered from: the next driver reads the backend and removes it."""
    on_disk = state == "on disk"
    (words / "local").mkdir()
    options = [f"spark.local.dir={words}/local", *(ON_DISK if on_disk else ())]
    address = f"log://{words}/log"
    for line in sample(KILLS[state], 1, "kills"):
        assert not run_driver(words, address, *options, kill_after=line)
        spilled = list((words / "local").glob("ckpt-spill-*/*-*/CURRENT"))
        assert bool(spilled) == on_disk
    assert run_driver(words, address, *options, kill_after=None)
    assert not list((words / "local").glob("ckpt-spill-*/*-*"))
    check_counts(words)


def test_a_killed_sidecar_is_started_again(sidecars: Any, stream_of: Any) -> None:
    stream = stream_of("in", "word string")
    killed: list[set[int]] = []
    newest: dict[str, int] = {}

    def put_out(batch: DataFrame, number: int) -> None:
        if number % 2:
            killed.append(set(sidecars()))  # the session may have several, of other tests' stores
            for sidecar in killed[-1]:
                os.kill(sidecar, signal.SIGKILL)
        newest.update({row["word"]: row["count"] for row in batch.collect()})

    for file in range(4):
        stream.feed([{"word": word} for word in words_of(file)])
    counts = stream.stream().groupBy("word").count().writeStream.outputMode("update").foreachBatch(put_out)
    query = counts.option("checkpointLocation", stream.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    first, second = killed
    assert first
    assert second - first
    assert newest == Counter(word for file in range(4) for word in words_of(file))


def count_words(stream: Any, *files: int) -> dict[str, int]:
    """Feed the files, let the query go on over them, and say what it has counted so far."""
    for file in files:
        stream.feed([{"word": word} for word in words_of(file)])
    stream.run(stream.stream().groupBy("word").count(), "update")
    return {row["word"]: row["count"] for batch in stream.batches for row in batch}


def test_a_killed_server_loses_nothing(
    spark: SparkSession, stream_of: Any, private_server: Callable[..., Server]
) -> None:
    redis = private_server("redis")
    before = spark.conf.get(ADDRESS)
    assert before is not None
    spark.conf.set(ADDRESS, f"{redis.address}?retry_s=1&timeout_s=1")
    try:
        stream = stream_of("in", "word string")
        count_words(stream, 0)
        redis.kill()
        with pytest.raises(StreamingQueryException, match="redis"):
            count_words(stream, 1)
        redis.start()
        assert count_words(stream, 2) == Counter(word for file in range(3) for word in words_of(file))
    finally:
        spark.conf.set(ADDRESS, before)


def process_that_has_open(folder: Path) -> int:
    """The sidecar of a store, by its open files."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            names = [os.readlink(link) for link in (entry / "fd").iterdir()]
        except OSError:
            continue
        if any(name.startswith(f"{folder}/") for name in names):
            return int(entry.name)
    raise AssertionError(f"no process has a file of {folder} open")


def test_a_full_disk_loses_nothing(spark: SparkSession, stream_of: Any, tmp_path: Path) -> None:
    before = spark.conf.get(ADDRESS)
    assert before is not None
    spark.conf.set(ADDRESS, f"log://{tmp_path}/state")
    try:
        stream = stream_of("in", "word string")
        count_words(stream, 0)
        # A test cannot fill a disk without hurting others; a limit on the size of files fails the same calls.
        sidecar = process_that_has_open(tmp_path / "state")
        resource.prlimit(sidecar, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(StreamingQueryException, match="File too large"):
            count_words(stream, 1)
        resource.prlimit(sidecar, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert count_words(stream, 2) == Counter(word for file in range(3) for word in words_of(file))
    finally:
        spark.conf.set(ADDRESS, before)
