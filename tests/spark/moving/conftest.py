"""Queries on Spark's own providers and on ckpt, in one session, and a query that counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
SCHEMA = "id long, word string, amount long, at timestamp"
ROWS, MINUTES = 30, 10
STORE = "spark.sql.streaming.stateStore"
SPARKS = "org.apache.spark.sql.execution.streaming.state"
CLASSES = {
    "ckpt": "ckpt.spark.CkptStateStoreProvider",
    "default": f"{SPARKS}.HDFSBackedStateStoreProvider",
    "rocksdb": f"{SPARKS}.RocksDBStateStoreProvider",
}


def rows_of(file: int) -> list[dict[str, Any]]:
    """Ten minutes of rows; words come again in every file, ids in the next one."""
    return [
        {
            "id": (file * ROWS + n) // 2 * 2 - (ROWS if n % 5 == 0 and file else 0),
            "word": f"w{n * n % 11}",
            "amount": n,
            "at": (START + dt.timedelta(minutes=file * MINUTES + n * MINUTES / ROWS)).isoformat(),
        }
        for n in range(ROWS)
    ]


class Keepers:
    """Which provider the queries of the session start with."""

    def __init__(self, spark: SparkSession) -> None:
        self._conf = spark.conf

    def use(self, keeper: str, *, ids: bool = False, changelog: bool = False, join: int = 2) -> None:
        """`ids`: checkpoint format 2, which ckpt is always used with."""
        self._conf.set(f"{STORE}.providerClass", CLASSES[keeper])
        self._conf.set(f"{STORE}.checkpointFormatVersion", "2" if ids or keeper == "ckpt" else "1")
        self._conf.set(f"{STORE}.rocksdb.changelogCheckpointing.enabled", str(changelog).lower())
        self._conf.set("spark.sql.streaming.join.stateFormatVersion", str(join))


@pytest.fixture
def keepers(spark: SparkSession) -> Iterator[Keepers]:
    """Lets queries start with another provider; after the test it is ckpt again."""
    made = Keepers(spark)
    yield made
    made.use("ckpt")


@pytest.fixture
def stream(stream_of: Any) -> Any:
    """A stream whose `files` feeds some minutes of rows, and `end` lets the watermark pass all of them."""
    made = stream_of("in", SCHEMA)

    def files(*numbers: int) -> None:
        for number in numbers:
            made.feed(rows_of(number))

    def end() -> None:
        far = (START + dt.timedelta(days=9)).isoformat()
        made.feed([{"id": -1, "word": "end", "amount": 0, "at": far}])

    made.files, made.end = files, end
    return made


class Counting:
    """A query that counts words, and can be run on until everything that was fed is counted."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.checkpoint: str = stream.checkpoint

    def counts(self, rows: DataFrame) -> DataFrame:
        return rows.groupBy("word").count()

    def run(self, *files: int) -> None:
        self.stream.files(*files)
        self.stream.run(self.counts(self.stream.stream()), "update")

    @property
    def newest(self) -> dict[str, int]:
        """The last that the query has put out about each word."""
        return {row["word"]: row["count"] for batch in self.stream.batches for row in batch}

    @property
    def expected(self) -> dict[str, int]:
        return {row["word"]: row["count"] for row in self.counts(self.stream.rows()).collect()}


@pytest.fixture
def counting(stream: Any, keepers: Keepers) -> Counting:
    """It has run two batches on Spark's default provider."""
    keepers.use("default")
    made = Counting(stream)
    made.run(0, 1)
    return made
