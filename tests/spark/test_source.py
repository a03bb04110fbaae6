"""`spark.read.format("ckpt")` shows what Spark's own reader shows, and what that one cannot."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import ckpt
import ckpt.spark
from ckpt.errors import ConfigError
from ckpt.spark.checkpoint import Checkpoint
from ckpt.spark.source import CkptDataSource
from tests.spark.operators import OPERATORS, SCHEMA, rows_of


def as_counter(frame: DataFrame) -> Counter[str]:
    """The rows, whatever their order; as text, because maps and lists cannot be counted.

    Without names: those that occur twice in a struct are numbered by us and not by Spark.
    """

    def unnamed(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [unnamed(inner) for inner in value]
        return value

    return Counter(str(unnamed(row)) for row in frame.collect())


def by_spark(spark: SparkSession, checkpoint: str, **options: Any) -> Counter[str]:
    rows = spark.read.format("statestore").options(**options).load(checkpoint)
    return as_counter(rows.select(sql.col("partition_id").alias("partition"), "key", "value"))


def by_ckpt(spark: SparkSession, checkpoint: str, **options: Any) -> Counter[str]:
    return as_counter(ckpt.spark.read_state(spark, checkpoint, **options).select("partition", "key", "value"))


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checkpoint of a query with an aggregation of several types, after two batches."""
    folder = tmp_path_factory.mktemp("counted")
    source = folder / "in"
    source.mkdir()
    checkpoint = str(folder / "checkpoint")
    for number, text in enumerate(("be or not to be", "that is the question to be")):
        words = "".join(f'{{"word": "{w}", "at": "2024-01-01T00:0{number}:00Z"}}\n' for w in text.split())
        (folder / "new").write_text(words)
        os.rename(folder / "new", source / f"{number}.json")
        stream = spark.readStream.schema("word string, at timestamp").json(str(source))
        grouped = stream.groupBy(sql.window("at", "10 minutes"), "word").agg(
            sql.count("*"),
            sql.avg(sql.length("word")),
            sql.max("at"),
            sql.collect_set("word"),
            sql.sum(sql.lit(1.5).cast("decimal(20,3)")),
        )
        writer = grouped.writeStream.outputMode("update").format("noop")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return checkpoint


def test_it_shows_what_sparks_own_reader_shows(spark: SparkSession, counted: str) -> None:
    ours = by_ckpt(spark, counted)
    assert ours == by_spark(spark, counted)
    assert len(ours) == 8


def test_earlier_versions(spark: SparkSession, counted: str) -> None:
    ours = by_ckpt(spark, counted, version=1)
    assert ours == by_spark(spark, counted, batchId=0)
    assert len(ours) == 4


def test_a_version_is_what_every_row_says(spark: SparkSession, counted: str) -> None:
    state = ckpt.spark.read_state(spark, Path(counted))
    assert {row[0] for row in state.select("version").distinct().collect()} == {2}
    query = Checkpoint(counted).query
    assert {row[0] for row in state.select("namespace").distinct().collect()} <= {
        f"spark/{query}/0/{partition}/default" for partition in range(3)
    }


def test_what_was_written_after_the_last_commit_of_the_query_is_not_shown(
    spark: SparkSession, counted: str, tmp_path: Path
) -> None:
    """The stores have version 2, but to Spark the second batch has not happened yet."""
    behind = shutil.copytree(counted, tmp_path / "behind")
    for name in ("1", ".1.crc"):
        (behind / "commits" / name).unlink(missing_ok=True)
    assert by_ckpt(spark, str(behind)) == by_spark(spark, counted, batchId=0)


def test_namespaces_can_be_named(spark: SparkSession, address: str, counted: str) -> None:
    reader = spark.read.format("ckpt").option("address", address)
    query = Checkpoint(counted).query
    whole = reader.option("namespace", f"spark/{query}").option("numPartitions", 2).load()
    with pytest.raises(ConfigError, match="option 'numPartitions' is a whole number from 1, got '0'"):
        ckpt.spark.read_state(spark, counted, numPartitions=0)
    assert whole.rdd.getNumPartitions() == 2
    assert as_counter(whole.select("partition", "key", "value")) == by_spark(spark, counted)
    one = reader.option("namespace", f"spark/{query}/0/1/default").load()
    assert as_counter(one.select("key", "value")) == as_counter(
        whole.where("partition = 1").select("key", "value")
    )


def test_addresses_in_the_environment(spark: SparkSession, address: str, counted: str) -> None:
    """The worker looks it up where it runs."""
    with pytest.raises(PySparkException, match="NOWHERE_SET is to hold the address, but is not set"):
        spark.read.format("ckpt").option("address", "env:NOWHERE_SET").load(counted)


def test_stored_bytes_of_any_namespace(spark: SparkSession, tmp_path: Path) -> None:
    address = f"log://{tmp_path}/plain"
    with ckpt.open_backend(address) as backend:
        backend.put_many("words", {b"be": b"2", b"or": b""})
        backend.commit("store", 1, {b"k": b"old"})
        backend.commit("store", 2, {b"k": b"new"})
        reader = spark.read.format("ckpt").option("address", address)
        words = reader.option("namespace", "words").load()
        assert sorted(map(tuple, words.collect())) == [
            ("words", None, b"be", b"2"),
            ("words", None, b"or", b""),
        ]
        store = reader.option("namespace", "store").option("version", 1).load()
        assert list(map(tuple, store.collect())) == [("store", 1, b"k", b"old")]


def test_stored_bytes_of_a_spark_store(spark: SparkSession, counted: str) -> None:
    rows = ckpt.spark.read_state(spark, counted, raw="true").collect()
    ids = Counter(row["key"][:2] for row in rows)
    assert ids[b"\x00\x00"] == 8
    assert ids[b"\xff\xff"] == 9  # in each partition: a family, the origin, the numbers of keys


def test_session_windows_and_joins(spark: SparkSession, stream_of: Any) -> None:
    """Keys with a prefix; four stores of one operator."""
    sessions = stream_of("in", "word string, at timestamp")
    sessions.feed([{"word": w, "at": f"2024-01-01T00:{n:02}:00Z"} for n, w in enumerate("abcabcaab")])
    sessions.run(
        sessions.stream()
        .withWatermark("at", "1 hour")
        .groupBy(sql.session_window("at", "5 minutes"), "word")
        .count(),
        "append",
    )
    assert by_ckpt(spark, sessions.checkpoint) == by_spark(spark, sessions.checkpoint) != Counter()

    left, right = stream_of("left", "id int, a string"), stream_of("right", "id int, b double")
    left.feed([{"id": n % 5, "a": f"a{n}"} for n in range(12)])
    right.feed([{"id": n % 7, "b": n / 2} for n in range(9)])
    left.run(left.stream().join(right.stream(), "id"), "append")
    with pytest.raises(
        ConfigError, match="operator 0, store left-keyToNumValues; operator 0, store left-key"
    ) as caught:
        ckpt.spark.read_state(spark, left.checkpoint)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"is no checkpoint of a query: .* check the path"):
        ckpt.spark.read_state(spark, f"{left.checkpoint}/nowhere")
    for store in ("left-keyWithIndexToValue", "right-keyToNumValues"):
        ours = by_ckpt(spark, left.checkpoint, store=store)
        assert ours == by_spark(spark, left.checkpoint, storeName=store) != Counter()


def test_going_back_to_an_earlier_batch(spark: SparkSession, stream_of: Any) -> None:
    """As docs/spark.md says about repair: batches that are taken out of the checkpoint are run again."""
    stream = stream_of("in", "word string")
    for batch in ("to be or", "not to be"):
        stream.feed([{"word": word} for word in batch.split()])
        stream.run(stream.stream().groupBy("word").count(), "update")
    before = by_ckpt(spark, stream.checkpoint)
    for log in ("commits", "offsets"):
        for name in ("1", ".1.crc"):
            (Path(stream.checkpoint) / log / name).unlink(missing_ok=True)
    assert sum(by_ckpt(spark, stream.checkpoint).values()) == 3
    stream.run(stream.stream().groupBy("word").count(), "update")
    assert by_ckpt(spark, stream.checkpoint) == by_spark(spark, stream.checkpoint) == before


def test_families(spark: SparkSession, address: str, provider_of: Any, tmp_path: Path) -> None:
    """Lists, and keys in an order of their own."""
    provider = provider_of(families=True)
    store = provider.open(0)
    store.create("lists", provider.spec("none"), several=True)
    store.create("sorted", provider.range_spec())
    for n in (3, -1, 2):
        store.put("w", n, n * n, "sorted")
        store.merge("w", n, n, family="lists")
        store.merge("w", n, n + 1, n + 2, family="lists")
    store.put("d", 1, 10)
    store.commit()
    reader = spark.read.format("ckpt").options(address=address, namespace=f"spark{tmp_path}/state")

    def rows(family: str | None = None) -> list[Any]:
        chosen = reader if family is None else reader.option("family", family)
        return sorted(
            (row["key"]["word"], row["key"]["number"], row["value"]) for row in chosen.load().collect()
        )

    assert [(w, n, v["value"]) for w, n, v in rows()] == [("d", 1, 10)]
    assert [(n, v["value"]) for _, n, v in rows("sorted")] == [(-1, 1), (2, 4), (3, 9)]
    lists = {n: [value["value"] for value in listed] for _, n, listed in rows("lists")}
    assert lists == {n: [n, n + 1, n + 2] for n in (3, -1, 2)}
    with pytest.raises(PySparkException, match="has no family 'list'; it has 'default', 'lists', 'sorted'"):
        rows("list")


def test_variables_and_timers_of_transform_with_state(spark: SparkSession, stream_of: Any) -> None:
    """Nested keys, lists, and keys that are sorted by time."""
    stream = stream_of("in", SCHEMA)
    stream.feed(rows_of(0))
    operator = OPERATORS["transform-with-state-in-scala"]
    stream.run(operator.query(stream.stream(), stream.stream()), operator.mode)

    def theirs(*columns: str, **options: str) -> Counter[str]:
        reader = spark.read.format("statestore").options(**options)
        return as_counter(reader.load(stream.checkpoint).select(*columns))

    def ours(family: str, *columns: Any) -> Counter[str]:
        return as_counter(ckpt.spark.read_state(spark, stream.checkpoint, family=family).select(*columns))

    assert ours("number", "key", "value") == theirs("key", "value", stateVarName="number") != Counter()
    assert ours("amounts", "key", sql.explode("value")) == theirs(
        "key", "list_element", stateVarName="amounts"
    )
    assert ours("ids", "key.key", "key.userKey", "value") == theirs(
        "key", "user_map_key", "user_map_value", stateVarName="ids"
    )
    timers = theirs("key", "expiration_timestamp_ms", readRegisteredTimers="true")
    assert ours("$eventTimers_timestampToKey", "key.key", "key.expiryTimestampMs") == timers != Counter()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'address' is missing"),
        ({"address": "log:///nowhere", "namespace": "x"}, "no store at log:///nowhere"),
        ({"addres": "log:///nowhere"}, "unknown option 'addres'; did you mean 'address'"),
        ({"address": "memory://"}, "name either a namespace"),
        ({"address": "memory://", "namespace": "x", "version": "new"}, "'version' is a whole number"),
        ({"address": "memory://", "namespace": "x", "raw": "yes"}, "'raw' is true or false, got 'yes'"),
        ({"address": "memory://", "checkpoint": "x", "commitId": "y"}, "a commit belongs to one namespace"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CkptDataSource(options).schema()


def test_a_session_without_ckpt_is_told_what_to_do() -> None:
    other: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda _, default: default))
    with pytest.raises(ConfigError, match="option\\('address'"):
        ckpt.spark.read_state(other, "/nowhere")


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="metadata is missing"):
        Checkpoint(str(tmp_path))
