"""State can be looked at: by Spark's own `statestore` reader, and by `ckpt`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import SparkSession

import ckpt
from tests.spark.streams import Stream

pytestmark = pytest.mark.spark_core

SCHEMA = "word string"


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Stream:
    """A query that counted words in two batches."""
    return count(Stream(spark, tmp_path / "in", SCHEMA))


@pytest.fixture(scope="module")
def read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """The same, for tests that only read."""
    return count(Stream(spark, tmp_path_factory.mktemp("read") / "in", SCHEMA))


def count(stream: Stream) -> Stream:
    for batch in ("be or not to be", "that is the question to be"):
        stream.feed([{"word": word} for word in batch.split()])
        stream.run(stream.stream().groupBy("word").count(), "update")
    return stream


def test_sparks_own_reader_sees_all_partitions(spark: SparkSession, read: Stream) -> None:
    state = spark.read.format("statestore").load(read.checkpoint)
    rows = state.selectExpr("partition_id", "key.word", "value.count").collect()
    assert {row["word"]: row["count"] for row in rows} == {
        row["word"]: row["count"] for row in read.rows().groupBy("word").count().collect()
    }
    assert len({row["partition_id"] for row in rows}) > 1


def test_sparks_own_reader_sees_earlier_batches(spark: SparkSession, read: Stream) -> None:
    state = spark.read.format("statestore").option("batchId", 0).load(read.checkpoint)
    rows = state.selectExpr("key.word", "value.count").collect()
    assert {row["word"]: row["count"] for row in rows} == {"be": 2, "or": 1, "not": 1, "to": 1}


def test_namespaces_say_which_query_they_belong_to(address: str, read: Stream) -> None:
    query = json.loads((Path(read.checkpoint) / "metadata").read_text())["id"]
    with ckpt.open_backend(address, mode="read") as backend:
        ours = [name for name in backend.namespaces() if query in name]
        versions = {name: [commit.version for commit in backend.versions(name)] for name in ours}
    assert ours == [f"spark/{query}/0/{n}/default" for n in range(3)]
    assert set(map(tuple, versions.values())) == {(1, 2)}


def test_a_checkpoint_that_is_moved_finds_its_state(counted: Stream, tmp_path: Path) -> None:
    counted.checkpoint = shutil.move(counted.checkpoint, tmp_path / "elsewhere")
    counted.feed([{"word": "be"}])
    counted.run(counted.stream().groupBy("word").count(), "update")
    assert [tuple(row) for row in counted.batches[-1]] == [("be", 4)]


def test_a_checkpoint_that_is_deleted_begins_anew(counted: Stream) -> None:
    """Its namespaces are others: what the former life left there is never met."""
    shutil.rmtree(counted.checkpoint)
    counted.batches.clear()
    counted.run(counted.stream().groupBy("word").count(), "update")
    newest = {row["word"]: row["count"] for batch in counted.batches for row in batch}
    assert newest == {row["word"]: row["count"] for row in counted.rows().groupBy("word").count().collect()}
