"""`transformWithState` on ckpt puts out what it does on RocksDB, batch by batch, with a restart for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from tests.effort import effort
from tests.spark.operators import SCHEMA, moment, rows_of
from tests.spark.processors import AT_ONCE_MS, DAY_MS, Fading, Ledger, LedgerOfFrames, LedgerWithAMark

ONCE = {"noDataMicroBatches.enabled": "false"}
"""One batch for each file: a second one, without data, would start two more Pythons."""
STREAMING = "spark.sql.streaming"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of the queries that are started inside."""
    before = {name: spark.conf.get(f"{STREAMING}.{name}") for name in values}
    for name, value in values.items():
        spark.conf.set(f"{STREAMING}.{name}", value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(f"{STREAMING}.{name}", value)


class Twins:
    """One query on ckpt and on Spark's RocksDB, both fed the same rows, both started anew for each file."""

    def __init__(self, spark: SparkSession, stream_of: Any) -> None:
        self._spark = spark
        self.ours, self.theirs = stream_of("ckpt", SCHEMA), stream_of("rocksdb", SCHEMA)

    def run(self, rows: list[dict[str, Any]], query: Callable[[DataFrame], DataFrame], **values: str) -> None:
        for stream, provider in ((self.ours, {}), (self.theirs, {"stateStore.providerClass": ROCKSDB})):
            stream.feed(rows)
            with settings(self._spark, **values, **provider):
                # Something behind the operator: how a plan is changed depends on what is above a node.
                put_out = query(stream.stream().withColumn("ms", fn.unix_millis("at"))).where("state != ''")
                stream.run(put_out, "update")

    def rows(self) -> list[Row]:
        """What both have put out; they did so in the same batches."""
        ours, theirs = ([Counter(batch) for batch in of.batches] for of in (self.ours, self.theirs))
        assert ours == theirs
        return [row for batch in self.ours.batches for row in batch]

    def state(self, *columns: str, **options: str) -> Counter[Row]:
        """What Spark's reader finds in the state of both."""

        def found(of: Any) -> Counter[Row]:
            reader = self._spark.read.format("statestore").options(**options)
            return Counter(reader.load(of.checkpoint).select(*columns).collect())

        ours = found(self.ours)
        assert ours == found(self.theirs)
        return ours


@pytest.fixture
def twins(spark: SparkSession, stream_of: Any) -> Twins:
    return Twins(spark, stream_of)


def with_watermark(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute")


def test_value_list_and_map_state_timers_and_initial_state(spark: SparkSession, twins: Twins) -> None:
    known = spark.createDataFrame([("w1", 1000), ("w3", 3000), ("new", 5)], "word string, amount long")

    def query(rows: DataFrame) -> DataFrame:
        return (
            with_watermark(rows)
            .groupBy("word")
            .transformWithState(Ledger(), Ledger.OUTPUT, "Update", "eventTime", known.groupBy("word"))
        )

    for file in range(4):
        twins.run([row for row in rows_of(file) if file in (0, 3) or row["word"] != "w4"], query, **ONCE)
    rows = twins.rows()
    assert any(row.word == "w1" and row.event == "rows after [0, 1000]" for row in rows)
    assert {row.word for row in rows if row.event.startswith("silent")} >= {"w4"}

    newest = {row.word: json.loads(row.state) for row in rows}
    totals = twins.state("key.word", "value.*", stateVarName="total")
    assert Row(word="new", n=0, sum=5) in totals
    assert {word: [n, total] for word, n, total in totals} == {
        "new": [0, 5],
        **{word: state["total"] for word, state in newest.items() if state["total"]},
    }
    amounts = twins.state("key.word", "list_element.amount", stateVarName="amounts")
    assert amounts == Counter(
        Row(word=word, amount=amount)
        for word, listed in [("new", [5]), *((word, state["amounts"]) for word, state in newest.items())]
        for amount in listed
    )
    by_id = twins.state("key.word", "user_map_key.id", "user_map_value.n", stateVarName="by_id")
    assert {(word, id_, n) for word, id_, n in by_id} == {
        (word, *pair) for word, state in newest.items() for pair in state["by_id"]
    }
    timers = twins.state("key.word", "expiration_timestamp_ms", readRegisteredTimers="true")
    assert {tuple(row) for row in timers} == {
        (word, timer) for word, state in newest.items() for timer in state["timers"]
    }


def test_state_as_avro_may_get_new_fields(twins: Twins) -> None:
    def query_with(processor: LedgerOfFrames) -> Callable[[DataFrame], DataFrame]:
        def query(rows: DataFrame) -> DataFrame:
            grouped = with_watermark(rows).groupBy("word")
            return grouped.transformWithStateInPandas(processor, processor.OUTPUT, "Update", "eventTime")

        return query

    avro = {"stateStore.encodingFormat": "avro", **ONCE}
    twins.run(rows_of(0), query_with(LedgerOfFrames()), **avro)
    twins.run(rows_of(1), query_with(LedgerWithAMark()), **avro)
    rows = twins.rows()
    assert any(row.event.endswith(", None]") for row in rows)  # written before the field was there
    assert any("marked" in (json.loads(row.state)["total"] or ()) for row in rows)


def test_what_outlived_its_time_is_gone_and_timers_fire_by_the_clock(twins: Twins) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy("word").transformWithState(Fading(), Fading.OUTPUT, "Update", "processingTime")

    files = effort(2, 3)
    # By the clock, Spark would begin one batch after the other, with data or without.
    for file in range(files):
        twins.run(rows_of(file)[:12], query, **ONCE)
    rows = twins.rows()
    before = [json.loads(row.state) for row in rows if row.event == "before"]
    after = [json.loads(row.state) for row in rows if row.event == "after"]
    assert all(state["gone"] == [None, [], []] for state in before)
    assert sum(1 for state in before if all(state["stays"])) == len(before) * (files - 1) / files
    assert all(all(state["gone"]) and all(state["stays"]) for state in after)
    assert sum(1 for row in rows if row.event == "timer") == len(before) * (files - 1) / files

    twins.run([{"id": 1, "word": "other", "amount": 1, "at": moment(0)}], query, **ONCE)
    twins.rows()
    for kind in ("value", "list", "map"):
        gone = twins.state("key.word", stateVarName=f"{kind}_{AT_ONCE_MS}")
        assert {row.word for row in gone} == {"other"}  # the others were removed, not only hidden
        assert len(twins.state("key.word", stateVarName=f"{kind}_{DAY_MS}")) > 2
