"""A Spark session on ckpt, shared by all tests of this folder, and streams that are fed file by file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import ckpt.spark

SHUFFLE_PARTITIONS = 3


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of all queries; each has its own checkpoint, and so its own namespaces."""
    return f"log://{tmp_path_factory.mktemp('state')}/log"


@pytest.fixture(scope="session")
def spark(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, as small as Spark gets."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ckpt")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "1g")
    )
    session = ckpt.spark.configure(builder, address).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


class Stream:
    """A folder of JSON files, each of them one batch, and a query over it that can be stopped and gone on with."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self._spark = spark
        self._schema = schema
        self.folder = folder
        self.checkpoint = str(folder.with_name(f"{folder.name}-checkpoint"))
        self.batches: list[list[Row]] = []
        """What each batch has put out, in order; a batch that was run again is there again."""
        folder.mkdir()

    def feed(self, rows: list[dict[str, Any]]) -> None:
        """Add one file, whole at once."""
        hidden = self.folder / "_new"
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.rename(hidden, self.folder / f"{len(list(self.folder.iterdir())):05}.json")

    def rows(self) -> DataFrame:
        """Everything that was fed, as a batch."""
        return self._spark.read.schema(self._schema).json(str(self.folder))

    def stream(self) -> DataFrame:
        """What is fed, as a stream of one file a batch."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))

    def run(self, query: DataFrame, mode: str) -> StreamingQuery:
        """Start the query, or go on with it, until everything that was fed is processed."""

        def collect(batch: DataFrame, _: int) -> None:
            self.batches.append(batch.collect())

        writer = query.writeStream.outputMode(mode).foreachBatch(collect)
        started = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        started.awaitTermination()
        return started


@pytest.fixture
def stream_of(spark: SparkSession, tmp_path: Path) -> Any:
    """Makes streams by name and schema."""

    def make(name: str, schema: str) -> Stream:
        return Stream(spark, tmp_path / name, schema)

    return make
