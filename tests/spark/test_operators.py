"""Each stateful operator, started anew for each batch, puts out what one batch over all rows would."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Row, SparkSession

from tests.effort import PROVING
from tests.spark.operators import FILES, LAST, OPERATORS, SCHEMA, Operator, is_right, rows_of
from tests.spark.streams import Stream

AT_ONCE = 3
# In test_transform_with_state.py these are compared with RocksDB, restart by restart.
ELSEWHERE = {"transform-with-state-and-ttl"} | (set() if PROVING else {"transform-with-state"})
RESTARTED = [name for name in OPERATORS if name not in ELSEWHERE]


class Restarted:
    """The batches of a query that was started anew for each file, and the rows of all files."""

    def __init__(self, spark: SparkSession, folder: Path, operator: Operator) -> None:
        self.rows, self.right = (Stream(spark, folder / name, SCHEMA) for name in ("rows", "right"))
        for file in (*map(rows_of, range(FILES)), LAST):
            self.rows.feed(file)
            self.right.feed([row for row in file if is_right(row)])
            self.rows.run(operator.query(self.rows.stream(), self.right.stream()), operator.mode)

    @property
    def batches(self) -> list[list[Row]]:
        return self.rows.batches


@pytest.fixture(scope="module")
def restarted(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Restarted]]]:
    """By operator; those that are tested run side by side, a few at once."""
    here = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("operators")
    for name in names:
        (folder / name).mkdir()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(Restarted, spark, folder / name, OPERATORS[name]) for name in names}


@pytest.mark.spark_core
@pytest.mark.parametrize("name", RESTARTED)
def test_a_restart_for_each_file_changes_nothing(restarted: dict[str, Future[Restarted]], name: str) -> None:
    operator, found = OPERATORS[name], restarted[name].result()
    assert operator.outcome(found.batches) == operator.expected(found.rows.rows(), found.right.rows())
    assert sum(1 for batch in found.batches if batch) > 1  # not all at the end


def test_real_time_mode_asks_for_sparks_own_provider(spark: SparkSession, tmp_path: Path) -> None:
    if spark.version.startswith("4.2."):
        pytest.skip("its real-time mode has no stateful operators, and asks for no provider")
    writer = spark.readStream.format("rate").load().writeStream.format("console").outputMode("update")
    with pytest.raises(IllegalArgumentException) as refused:
        writer.option("checkpointLocation", str(tmp_path)).trigger(realTime="5 minutes").start()
    assert refused.value.getCondition() == "STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED"
