"""A query whose state is moved goes on as if it had always been there, into ckpt and out again."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

import ckpt.spark
from ckpt.errors import ConfigError
from ckpt.spark import Keeper, Move
from tests.effort import sample
from tests.spark.operators import OPERATORS

Query = Callable[[DataFrame], DataFrame]


def windows(rows: DataFrame) -> DataFrame:
    counted = rows.withWatermark("at", "1 minute").groupBy(fn.window("at", "3 minutes"), "word")
    return counted.agg(fn.sum("amount").alias("sum"))


def sessions(rows: DataFrame) -> DataFrame:
    watched = rows.withWatermark("at", "5 minutes").groupBy(fn.session_window("at", "4 minutes"), "word")
    return watched.agg(fn.sum("amount").alias("sum"))


def distinct(rows: DataFrame) -> DataFrame:
    return rows.select("id").dropDuplicates(["id"])


def joined(rows: DataFrame) -> DataFrame:
    """Two operators: rows of a word that are near each other, then how many there are in a window."""
    others = rows.where("amount % 3 = 0 OR word = 'end'").select(
        fn.col("word").alias("word2"), fn.col("amount").alias("amount2"), fn.col("at").alias("at2")
    )
    one, two = rows.withWatermark("at", "1 minute"), others.withWatermark("at2", "1 minute")
    near = fn.expr("word = word2 AND at2 BETWEEN at - INTERVAL 9 MINUTE AND at + INTERVAL 1 MINUTE")
    return one.join(two, near).groupBy(fn.window("at", "5 minutes")).agg(fn.count("*").alias("n"))


def before_the_end(rows: list[Row]) -> Counter[Row]:
    """Rows in no order, without those of the last windows, which no watermark has passed."""

    def is_last(row: Row) -> bool:
        windows = [row[name] for name in ("window", "session_window") if name in row]
        return any(window.start > dt.datetime(2030, 1, 5) for window in windows)

    return Counter(row for row in rows if not is_last(row))


def put_out(stream: Any) -> Counter[Row]:
    return before_the_end([row for batch in stream.batches for row in batch])


SOURCES: dict[str, dict[str, Any]] = {
    "default": {"keeper": Keeper.DEFAULT},
    "rocksdb": {"keeper": Keeper.ROCKSDB},
    "changelog": {"keeper": Keeper.ROCKSDB, "changelog": True},
    "ids": {"keeper": Keeper.ROCKSDB, "changelog": True, "ids": True},
    "families": {"keeper": Keeper.ROCKSDB, "join": 3},
    "lists": {"keeper": Keeper.ROCKSDB, "changelog": True, "join": 4},
}


MOVES = [
    (windows, "default", Keeper.ROCKSDB),
    (sessions, "default", Keeper.DEFAULT),
    (joined, "default", Keeper.ROCKSDB),
    (windows, "changelog", Keeper.DEFAULT),
    (distinct, "rocksdb", Keeper.DEFAULT),
    (sessions, "ids", Keeper.ROCKSDB),
    (joined, "ids", Keeper.DEFAULT),
    (joined, "families", Keeper.ROCKSDB),
    # Spark 4.2 has no state format 4 of joins yet.
    *([] if pyspark.__version__.startswith("4.2.") else [(joined, "lists", Keeper.ROCKSDB)]),
]
"""In the order of their sources: what is stored differs more by these than by the query."""


@pytest.mark.parametrize(("query", "source", "back"), sample(MOVES, 4, "moves"))
def test_a_query_is_moved_in_and_out_again(
    spark: SparkSession, stream: Any, keepers: Any, query: Query, source: str, back: Keeper
) -> None:
    keepers.use(**SOURCES[source])
    stream.files(0, 1)
    stream.run(query(stream.stream()), "append")

    assert Move(spark, stream.checkpoint, Keeper.CKPT).run().rows > 0
    keepers.use(Keeper.CKPT)
    stream.files(2)
    on_ckpt = stream.run(query(stream.stream()), "append")
    assert all("ckptCommitMs" in each["customMetrics"] for each in on_ckpt.lastProgress["stateOperators"])

    if source in ("families", "lists"):
        with pytest.raises(ConfigError, match=r"has column families.*export to rocksdb"):
            Move(spark, stream.checkpoint, Keeper.DEFAULT)
    Move(spark, stream.checkpoint, back).run()
    keepers.use(back)
    stream.files(3)
    stream.end()
    stream.run(query(stream.stream()), "append")
    assert put_out(stream) == before_the_end(query(stream.rows()).collect())


@pytest.mark.parametrize("partitions", sample([2, 5], 1, "partitions"))
def test_a_query_gets_another_number_of_partitions_with_rocksdb(
    spark: SparkSession, counting: Any, keepers: Any, partitions: int
) -> None:
    """Spark can change it for its RocksDB only, so that the way is out and in again."""
    Move(spark, counting.checkpoint, Keeper.CKPT).run()
    keepers.use("ckpt")
    counting.run(2)
    Move(spark, counting.checkpoint, Keeper.ROCKSDB).run()
    keepers.use("rocksdb")
    spark._streamingCheckpointManager.repartition(counting.checkpoint, partitions)
    (stores,) = Move(spark, counting.checkpoint, Keeper.CKPT).plan.stores
    assert stores.partitions == partitions
    Move(spark, counting.checkpoint, Keeper.CKPT).run()
    keepers.use("ckpt")
    counting.run(3)
    assert counting.newest == counting.expected
    # Of partitions that are no more the store still holds what they were.
    state = ckpt.spark.read_state(spark, counting.checkpoint)
    assert {row.word: row["count"] for row in state.select("key.*", "value.*").collect()} == counting.expected
    assert max(row.partition for row in state.select("partition").collect()) < partitions


def test_variables_and_timers_of_transform_with_state_are_moved(
    spark: SparkSession, stream: Any, keepers: Any
) -> None:
    operator = OPERATORS["transform-with-state-in-scala"]

    def run(*files: int) -> None:
        stream.files(*files)
        stream.run(operator.query(stream.stream(), stream.stream()), operator.mode)

    keepers.use("rocksdb", changelog=True)
    run(0, 1)
    move = Move(spark, stream.checkpoint, Keeper.CKPT)
    (stores,) = move.plan.stores
    assert {"number", "amounts", "ids"} < set(stores.families)
    move.run()
    keepers.use("ckpt")
    run(2)
    Move(spark, stream.checkpoint, Keeper.ROCKSDB).run()
    keepers.use("rocksdb")
    stream.files(3)
    stream.end()
    run()
    assert operator.outcome(stream.batches) == operator.expected(stream.rows(), stream.rows())
