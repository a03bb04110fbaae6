"""What each batch changed can be read with Spark's `statestore` reader, and state replayed from any batch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from tests.spark.streams import Stream

SCHEMA = "word string, at timestamp"


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Three batches of words: one counted again, one new, and none for the first of them."""
    stream = Stream(spark, tmp_path_factory.mktemp("counted") / "in", SCHEMA)
    for batch in ("be or", "be not", "to"):
        stream.feed([{"word": word, "at": "2020-01-01T00:00:00Z"} for word in batch.split()])
        stream.run(stream.stream().groupBy("word").count(), "update")
    return stream


def changes(spark: SparkSession, checkpoint: str, first: int, last: int) -> Any:
    reader = spark.read.format("statestore").option("readChangeFeed", True)
    return reader.option("changeStartBatchId", first).option("changeEndBatchId", last).load(checkpoint)


def test_the_change_feed_has_what_each_batch_changed(spark: SparkSession, counted: Stream) -> None:
    rows = changes(spark, counted.checkpoint, 0, 2).selectExpr(
        "batch_id", "change_type", "key.word", "value.count"
    )
    assert sorted(map(tuple, rows.collect())) == [
        (0, "update", "be", 1),
        (0, "update", "or", 1),
        (1, "update", "be", 2),
        (1, "update", "not", 1),
        (2, "update", "to", 1),
    ]


def test_the_change_feed_may_begin_anywhere(spark: SparkSession, counted: Stream) -> None:
    rows = changes(spark, counted.checkpoint, 1, 1).selectExpr("key.word", "value.count").collect()
    assert sorted(map(tuple, rows)) == [("be", 2), ("not", 1)]


def test_the_change_feed_has_what_the_watermark_deleted(spark: SparkSession, stream_of: Any) -> None:
    stream = stream_of("in", SCHEMA)
    query = stream.stream().withWatermark("at", "1 minute").dropDuplicates(["word", "at"])
    for minute, word in ((0, "be"), (30, "or"), (31, "not")):
        stream.feed([{"word": word, "at": f"2020-01-01T00:{minute:02}:00Z"}])
        stream.run(query, "append")
    last = spark.read.format("state-metadata").load(stream.checkpoint).first()["maxBatchId"]
    rows = changes(spark, stream.checkpoint, 0, last).selectExpr("change_type", "key.word").collect()
    assert ("delete", "be") in set(map(tuple, rows))
    assert {("update", word) for word in ("be", "or", "not")} <= set(map(tuple, rows))


@pytest.mark.parametrize("first", [0, 1, 2])
def test_state_can_be_replayed_from_any_batch(spark: SparkSession, counted: Stream, first: int) -> None:
    whole = spark.read.format("statestore").load(counted.checkpoint)
    for partition in range(3):
        reader = spark.read.format("statestore").option("snapshotStartBatchId", first)
        replayed = reader.option("snapshotPartitionId", partition).load(counted.checkpoint)
        assert replayed.collect() == whole.where(sql.col("partition_id") == partition).collect()
