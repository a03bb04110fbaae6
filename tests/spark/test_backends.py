"""On every backend: an aggregation and a join, started anew between batches, put out what one batch would."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ckpt.contract.opening import open_to_read
from tests.effort import effort, sample
from tests.spark.conftest import S3_CREDENTIALS

ADDRESS = "spark.sql.streaming.stateStore.ckpt.address"
KINDS = (("log", "file"), ("fsspec+file", "s3"), ("redis", "hbase", "cassandra"))
"""On local disk, as objects, on servers; the gate takes one of each: the provider knows only the sidecar."""


@pytest.fixture(params=[name for kind in KINDS for name in sample(kind, 1, kind)])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dev_server: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The address of an empty store of each kind."""
    kind, fresh = request.param, uuid.uuid4().hex[:12]
    if kind in ("hbase", "cassandra"):
        place = request.getfixturevalue("hbase_table" if kind == "hbase" else "cassandra_keyspace")
        return f"{place}?prefix={fresh}"
    if kind == "redis":
        return f"{dev_server('redis')}?prefix={fresh}"
    if kind == "s3":
        base, _, options = dev_server("s3").partition("?")
        for name, value in S3_CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        return f"{base}/{fresh}?fs.endpoint_url={dict(parse_qsl(options))['fs.endpoint_url']}"
    return f"{kind}://{tmp_path}/store"


@pytest.fixture
def on_store(spark: SparkSession, store: str) -> Iterator[str]:
    """Queries that start now keep their state there."""
    before = spark.conf.get(ADDRESS)
    spark.conf.set(ADDRESS, store)
    yield store
    assert before is not None
    spark.conf.set(ADDRESS, before)


def visits(file: int) -> list[dict[str, Any]]:
    return [{"user": f"u{n * n % 7}", "page": (n + file) % 5} for n in range(20)]


def test_aggregation_and_join(stream_of: Any, on_store: str) -> None:
    seen, liked = stream_of("seen", "user string, page long"), stream_of("liked", "user string, page long")

    def counts(rows: DataFrame) -> DataFrame:
        return rows.groupBy("user").agg(fn.count("*").alias("n"), fn.max("page").alias("last"))

    def both(one: DataFrame, two: DataFrame) -> DataFrame:
        return one.join(two.withColumnRenamed("page", "liked"), "user").select("user", "page", "liked")

    for file in range(effort(2, 3)):
        seen.feed(visits(file))
        seen.run(counts(seen.stream()), "update")
    newest = {row["user"]: row for batch in seen.batches for row in batch}
    assert newest == {row["user"]: row for row in counts(seen.rows()).collect()}

    for file in range(2):
        liked.feed([visit for visit in visits(file) if visit["page"] == 1])
        liked.run(both(seen.stream(), liked.stream()), "append")
    joined = Counter(row for batch in liked.batches for row in batch)
    assert joined == Counter(both(seen.rows(), liked.rows()).collect())

    with open_to_read(on_store) as backend:
        stores = Counter(name.split("/")[-1] for name in backend.namespaces() if name.startswith("spark/"))
    assert stores["default"] == stores["left-keyToNumValues"] > 0
