"""Keys move wherever their state is and however it is written: on disk, in the backend, in other formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import SparkSession

from ckpt.rebalance import RoutingTable, spark_hash
from ckpt.spark.rebalancing import open_tables
from tests.effort import sample
from tests.spark.conftest import SHUFFLE_PARTITIONS, STATE_STORE
from tests.spark.operators import FILES, LAST, OPERATORS, SCHEMA, is_right, rows_of
from tests.spark.routing.routed import RoutedQuery, moved_rows, routing_session
from tests.spark.streams import Stream

JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
RESIDENCES = {
    "lazy": {f"{STATE_STORE}.ckpt.recovery": "lazy"},
    "on disk": {f"{STATE_STORE}.ckpt.memory": "1k"},
    "without commit ids": {f"{STATE_STORE}.checkpointFormatVersion": "1"},
}
OPERATORS_THERE = ["aggregation-append", "session-windows", "join-leftOuter", "transform-with-state"]
CASES = [(where, name) for where in RESIDENCES for name in sample(OPERATORS_THERE, 2, where)]


@pytest.mark.parametrize(("where", "name"), CASES)
def test_keys_move_from_wherever_they_are(
    spark: SparkSession, address: str, tmp_path: Path, where: str, name: str
) -> None:
    session, operator = routing_session(spark, **RESIDENCES[where]), OPERATORS[name]
    found = RoutedQuery(session, address, tmp_path, operator)
    assert operator.outcome(found.batches) == operator.expected(found.rows.rows(), found.right.rows())
    assert found.misplaced == []
    assert found.moved > 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("join-leftOuter", {JOIN_FORMAT: "3"}),
        ("join-fullOuter", {JOIN_FORMAT: "4"}),
        ("transform-with-state", {f"{STATE_STORE}.encodingFormat": "avro"}),
    ],
    ids=["join-3", "join-4", "avro"],
)
def test_keys_move_in_every_format(
    spark: SparkSession, address: str, tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    """Of these formats Python does not know where a key belongs: what is put out has to be right."""
    session, operator = routing_session(spark, **settings), OPERATORS[name]
    rows, right = (Stream(session, tmp_path / side, SCHEMA) for side in ("rows", "right"))
    words = sorted({row["word"] for file in range(FILES) for row in rows_of(file)})
    keys = spark_hash([("string", words)]).astype(np.uint64)
    moved = 0
    for number, file in enumerate((*map(rows_of, range(FILES)), LAST)):
        rows.feed(file)
        right.feed([row for row in file if is_right(row)])
        query = rows.run(operator.query(rows.stream(), right.stream()), operator.mode)
        moved += moved_rows(query)
        places = (np.arange(len(keys)) + number) % SHUFFLE_PARTITIONS
        with open_tables(address, str(query.id)) as tables:
            tables.write(0, RoutingTable(SHUFFLE_PARTITIONS, keys, places.astype(np.int32)))
    assert operator.outcome(rows.batches) == operator.expected(rows.rows(), right.rows())
    assert moved > 0
