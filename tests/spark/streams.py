"""Streams that are fed file by file, and queries over them that can be stopped and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def add_file(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add one file, whole at once, that Spark takes after those that are there."""
    number = len(list(folder.iterdir()))
    hidden = folder / "_new"
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(hidden, (number, number))  # Spark takes files in the order of their times
    os.rename(hidden, folder / f"{number:05}.json")


class Stream:
    """A folder of JSON files, each of them one batch, and a query over it that can be stopped and resumed."""

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
        add_file(self.folder, rows)

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
