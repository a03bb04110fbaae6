"""Each stateful operator, started anew for each batch, puts out what one batch over all rows would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tests.spark.operators import FILES, LAST, OPERATORS, SCHEMA, Operator, is_right, rows_of

# Those by the clock are compared with RocksDB, restart by restart, in test_transform_with_state.py.
RESTARTED = {name: operator for name, operator in OPERATORS.items() if not operator.by_clock}


@pytest.mark.spark_core
@pytest.mark.parametrize("operator", RESTARTED.values(), ids=RESTARTED)
def test_a_restart_for_each_file_changes_nothing(stream_of: Any, operator: Operator) -> None:
    rows, right = stream_of("rows", SCHEMA), stream_of("right", SCHEMA)
    for file in (*map(rows_of, range(FILES)), LAST):
        rows.feed(file)
        right.feed([row for row in file if is_right(row)])
        rows.run(operator.query(rows.stream(), right.stream()), operator.mode)
    assert operator.outcome(rows.batches) == operator.expected(rows.rows(), right.rows())
    assert sum(1 for batch in rows.batches if batch) > 1  # not all at the end


def test_real_time_mode_asks_for_sparks_own_provider(spark: SparkSession, tmp_path: Path) -> None:
    if spark.version.startswith("4.2."):
        pytest.skip("its real-time mode has no stateful operators, and asks for no provider")
    writer = spark.readStream.format("rate").load().writeStream.format("console").outputMode("update")
    with pytest.raises(IllegalArgumentException) as refused:
        writer.option("checkpointLocation", str(tmp_path)).trigger(realTime="5 minutes").start()
    assert refused.value.getCondition() == "STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED"
