"""What a batch costs is counted where its exchange gets rows: by partition exactly, and by heavy key."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState

from ckpt.cli import main
from ckpt.contract.opening import open_to_read
from ckpt.errors import CorruptRecordError
from ckpt.rebalance import RoutingTable, spark_hash
from ckpt.spark.rebalancing import QueryLoads, open_tables
from ckpt.spark.rebalancing.loads import BatchLoads
from tests.spark.conftest import SHUFFLE_PARTITIONS
from tests.spark.routing.routed import routing_session
from tests.spark.streams import Stream

ROWS = 4000
PATIENCE_S = 30
WORDS = [f"w{min(int(1 / (0.001 + n * 7919 % 1000 / 1000)), 300)}" for n in range(ROWS)]


def as_they_are(_: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield from parts


def every_row(rows: DataFrame) -> DataFrame:
    """An operator whose exchange gets the rows as they are: nothing is combined before it."""
    return rows.groupBy("word").applyInPandasWithState(
        as_they_are, "word string", "n long", "update", "NoTimeout"
    )


def counted(address: str, query: str, batch: int) -> BatchLoads:
    """What was written down of a batch, which is soon after the batch has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with open_to_read(address) as backend:
            loads = QueryLoads(backend, query)
            if batch in loads.batches():
                found = loads.read(0, batch)
                assert found is not None
                return found
        time.sleep(0.05)
    raise AssertionError(f"batch {batch} was not written down")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(routing_session(spark), tmp_path / "words", "word string")


def go_on(stream: Stream) -> Any:
    stream.feed([{"word": word} for word in WORDS])
    return stream.run(every_row(stream.stream()), "update")


@pytest.mark.spark_core
def test_rows_are_counted_by_partition_and_by_heavy_key(stream: Stream, address: str) -> None:
    query = str(go_on(stream).id)
    expected = Counter(WORDS)
    hashes = dict(zip(expected, spark_hash([("string", list(expected))]).tolist(), strict=True))
    first = counted(address, query, 0)
    assert dict(zip(first.keys.tolist(), first.rows.tolist(), strict=True)) == {
        hashes[word]: rows for word, rows in expected.items()
    }
    placed = RoutingTable(SHUFFLE_PARTITIONS).place(first.keys)
    assert first.partitions.tolist() == np.bincount(placed, first.rows, SHUFFLE_PARTITIONS).tolist()
    assert (first.batch, first.table_version, first.error) == (0, 0, 0)

    with open_tables(address, query) as tables:
        tables.write(0, RoutingTable(1))
    go_on(stream)
    second = counted(address, query, 1)
    assert second.partitions.tolist() == [ROWS, 0, 0]
    assert second.table_version == 1
    loads = second.loads(RoutingTable(1))
    heaviest = int(np.argmax(loads.cost))
    assert loads.name(heaviest) == max(expected, key=lambda word: expected[word])
    assert loads.total_cost == ROWS


def test_status_shows_tables_and_rows(stream: Stream, address: str) -> None:
    query = str(go_on(stream).id)
    counted(address, query, 0)
    go_on(stream)
    counted(address, query, 1)
    shown = CliRunner().invoke(main, ["rebalance", "status", address, query, "--top", "3"], prog_name="ckpt")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0] == "operator 0: 0 routes, 3 of 3 partitions active, table 0"
    assert lines[1].startswith(f"batch 1: {ROWS:,} rows, the fullest partition has ")
    assert any(line.split()[:2] == ["w1", f"{Counter(WORDS)['w1']:,}"] for line in lines)
    (told,) = json.loads(
        CliRunner().invoke(main, ["rebalance", "status", address, query, "--json"], prog_name="ckpt").output
    )
    assert sum(told["rows"]) == ROWS
    assert told["keys"][0]["key"] == "w1"


def test_loads_that_were_cut_are_no_loads(stream: Stream, address: str) -> None:
    query = str(go_on(stream).id)
    counted(address, query, 0)
    with open_to_read(address) as backend:
        (whole,) = backend.get_many(f"rebalance/{query}/loads", [b"loads/0"]).values()
    assert BatchLoads.from_bytes(whole).batch == 0
    for data in (b"", whole[:-1], whole[:50], whole + b"x", b"ckxx" + whole[4:]):
        with pytest.raises(CorruptRecordError):
            BatchLoads.from_bytes(data)
