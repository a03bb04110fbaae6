"""A store finds the namespace of its query, and asks the checkpoint as seldom as it can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import SparkSession

QueryOf = Callable[..., str]


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """Where Spark keeps the id of a checkpoint's query."""
    return tmp_path / "metadata"


@pytest.fixture
def query_of(spark: SparkSession, tmp_path: Path) -> QueryOf:
    """Asks for the query of one partition, as a task of a run does, or, without a run, a reader of state."""

    def ask(partition: int, run: str | None) -> str:
        jvm = spark._jvm
        conf = jvm.org.apache.hadoop.conf.Configuration(False)
        if run is not None:
            conf.set("sql.streaming.runId", run)
        id_of = jvm.org.apache.spark.sql.execution.streaming.state.StateStoreId
        store = id_of(f"file:{tmp_path}/state", 0, partition, "left")
        return str(jvm.ckpt.spark.state.Namespace.of(store, conf).query())

    return ask


def write(metadata: Path, query: str) -> None:
    metadata.write_text(json.dumps({"id": query}))


def test_a_run_reads_the_id_of_its_query_once(query_of: QueryOf, metadata: Path) -> None:
    """Spark has a store for each partition and side of a join, and each would be a request or two."""
    write(metadata, "first")
    assert query_of(0, run="one") == "first"
    metadata.unlink()
    assert [query_of(partition, run="one") for partition in range(3)] == ["first"] * 3


def test_a_checkpoint_that_is_begun_again_is_another_query(query_of: QueryOf, metadata: Path) -> None:
    write(metadata, "first")
    assert query_of(0, run="two") == query_of(0, run=None) == "first"
    write(metadata, "second")
    assert query_of(0, run="three") == query_of(0, run=None) == "second"


def test_that_there_is_no_id_is_not_remembered(query_of: QueryOf, metadata: Path) -> None:
    assert query_of(0, run="four") == ""
    write(metadata, "first")
    assert query_of(0, run="four") == "first"
