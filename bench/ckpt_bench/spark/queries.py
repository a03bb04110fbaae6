"""A session that every contestant shares, and queries in it that are fed one batch at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import ckpt.spark
from ckpt_bench.processes import cpu_seconds
from ckpt_bench.spark.contestants import CONTESTANTS, nothing_jar
from ckpt_bench.spark.jobs import SessionSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_MS = 250
"""How often an idle query looks for files: the others' batches are not to be disturbed by it."""

Keys = npt.NDArray[np.int64]


def open_session(spec: SessionSpec) -> SparkSession:
    """A new session with the provider loaded."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(spec.master)
        .appName("ckpt-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", spec.memory)
        .config("spark.sql.shuffle.partitions", str(spec.partitions))
        # Streaming queries do without it; the floor's batches must not merge partitions either.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.jars", nothing_jar())
        .config("spark.sql.streaming.pollingDelay", f"{_POLL_MS}ms")
    )
    session = ckpt.spark.configure(builder, spec.address).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-batch took."""

    took_ms: int
    """From the trigger until the batch is committed, as Spark reports it."""
    commit_ms: int
    """Summed over partitions, which commit side by side."""
    cpu_ms: int
    """Of all processes together: on a shared machine it says more than the time."""
    keys: int
    """In the state, after it."""
    custom: Mapping[str, int]
    """The provider's own metrics."""
    committed_at_s: float
    """When it was, in seconds since 1970."""


class FedQuery:
    """A query of one contestant, with input and checkpoint in a folder of its own."""

    def __init__(self, spark: SparkSession, name: str, folder: str, partitions: int) -> None:
        self.name = name
        self.input = os.path.join(folder, "input")
        checkpoint = os.path.join(folder, "checkpoint")
        self.state = os.path.join(checkpoint, "state")
        os.makedirs(self.input, exist_ok=True)
        contestant = CONTESTANTS[name]
        for setting, value in contestant.settings.items():
            spark.conf.set(setting, value)
        reader = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
        writer = contestant.write(reader.parquet(self.input), partitions)
        self._query = writer.option("checkpointLocation", checkpoint).start()

    def feed(self, keys: Keys) -> Batch:
        """Give the query one file of rows, and wait until its batch is committed."""
        began_cpu_s = cpu_seconds(os.getpid())
        add_input(self.input, keys)
        return self.take(began_cpu_s)

    def take(self, began_cpu_s: float) -> Batch:
        """The batch of the input that is there; processor time is counted from a moment before that."""
        self._query.processAllAvailable()
        used_s = cpu_seconds(os.getpid()) - began_cpu_s
        progress = next(p for p in reversed(self._query.recentProgress) if p["numInputRows"])
        operators = progress["stateOperators"]
        store: dict[str, Any] = operators[0] if operators else {}
        took_ms = progress["durationMs"]["triggerExecution"]
        return Batch(
            took_ms,
            store.get("commitTimeMs", 0),
            round(used_s * 1000),
            store.get("numRowsTotal", 0),
            store.get("customMetrics", {}),
            datetime.fromisoformat(progress["timestamp"]).timestamp() + took_ms / 1000,
        )

    def stop(self) -> None:
        """End the query; its checkpoint stays."""
        self._query.stop()


def add_input(folder: str, keys: Keys) -> None:
    """One more file, whole at once."""
    os.makedirs(folder, exist_ok=True)
    hidden = os.path.join(os.path.dirname(folder), "new")
    pq.write_table(pa.table({"k": keys}), hidden)
    os.rename(hidden, os.path.join(folder, f"{len(os.listdir(folder)):06}.parquet"))
