"""Keys of every type are placed by their table, also null, two zeros and not a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import open_tables
from tests.spark.conftest import SHUFFLE_PARTITIONS
from tests.spark.routing.routed import moved_rows, routing_session
from tests.spark.streams import Stream

NUMBERS = range(8)
KEYS: dict[str, str] = {
    "null": "IF(n % 4 = 0, NULL, CAST(n AS STRING))",
    "zeros": "CASE n % 3 WHEN 0 THEN 0.0D WHEN 1 THEN -0.0D ELSE DOUBLE('NaN') END",
    "float": "CAST(n / 3 AS FLOAT)",
    "binary": "CAST(CONCAT('x', n) AS BINARY)",
    "decimal": "CAST(n AS DECIMAL(38, 10)) / 7",
    "date": "DATE_ADD(DATE'2030-01-01', CAST(n AS INT))",
    "struct": "NAMED_STRUCT('a', n, 'b', NAMED_STRUCT('c', CAST(n AS STRING)))",
    "array": "ARRAY(n, n + 1)",
}
BY_TWO = {"null": "n % 2"}
"""A second column of the key."""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return routing_session(spark)


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_move(session: SparkSession, address: str, tmp_path: Path, kind: str) -> None:
    columns = [
        fn.expr(KEYS[kind]).alias("key"),
        *([fn.expr(BY_TWO[kind]).alias("two")] if kind in BY_TWO else []),
    ]

    def counts(rows: DataFrame) -> DataFrame:
        return rows.groupBy(*columns).agg(fn.count("*").alias("n"))

    stream = Stream(session, tmp_path / "numbers", "n long")
    moved = 0
    for turn in range(3):
        stream.feed([{"n": n} for n in NUMBERS])
        query = stream.run(counts(stream.stream()), "update")
        moved += moved_rows(query)
        hashed = stream.rows().select(fn.hash(*columns).alias("h")).distinct().collect()
        keys = np.array(sorted({row.h for row in hashed}), np.int32).view(np.uint32).astype(np.uint64)
        instances = SHUFFLE_PARTITIONS - turn % 2
        places = np.array([(_place(key) + 1 + turn) % instances for key in keys.tolist()], np.int32)
        with open_tables(address, str(query.id)) as tables:
            tables.write(0, RoutingTable(instances, keys, places))
    assert sorted(map(_shown, stream.batches[-1])) == sorted(map(_shown, counts(stream.rows()).collect()))
    assert moved > 0


def _place(key: int) -> int:
    """Where Spark's hash places it."""
    return int(np.uint32(key).view(np.int32)) % SHUFFLE_PARTITIONS


def _shown(row: Any) -> str:
    """Not a number equals itself, and both zeros are one."""
    return str(row).replace("-0.0", "0.0")
