"""The base hash of the rebalancer is that of the Spark at hand, for every type of key and several columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckpt.rebalance.hashing import homes
from ckpt.rebalance.sparkhash import Array, Struct, Type, spark_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: list[tuple[str, str, Type, list[Any]]] = [
    ("b", "boolean", "boolean", [True, False, None]),
    ("y", "tinyint", "byte", [-128, 127, None]),
    ("h", "smallint", "short", [-32768, 0, 32767]),
    ("i", "int", "int", [-(2**31), 2**31 - 1, 0]),
    ("l", "bigint", "long", [-(2**63), 2**63 - 1, 42]),
    ("f", "float", "float", [-0.0, float("nan"), 1e-40]),
    ("d", "double", "double", [-0.0, float("-inf"), 5e-324]),
    ("s", "decimal(18,4)", "decimal(18,4)", [Decimal("-1.5"), Decimal("99999999999999.9999"), None]),
    ("w", "decimal(38,10)", "decimal(38,10)", [Decimal("-1.5"), Decimal("12.8"), Decimal(10) ** 27]),
    ("t", "string", "string", ["", "äöü€𝄞 and more", "abc"]),
    ("x", "binary", "binary", [b"", b"\xff\x80\x7f", bytes(range(256))]),
    ("a", "date", "date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (
        "n",
        "timestamp_ntz",
        "timestamp_ntz",
        [dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2100, 1, 1), None],
    ),
    ("r", "struct<p:int,q:string>", Struct(("int", "string")), [(1, None), (None, "q"), None]),
    ("e", "array<string>", Array("string"), [["a", None, "c"], [], None]),
]


@pytest.mark.spark_core
def test_the_base_hash_is_that_of_this_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    rows = list(zip(*(values for *_, values in COLUMNS), strict=True))
    schema = ", ".join(f"{name} {ddl}" for name, ddl, *_ in COLUMNS)
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    names = [name for name, *_ in COLUMNS]
    single = [F.hash(name).alias(f"hash_{name}") for name in names]
    whole = F.hash(*names).alias("whole")
    found = frame.select(*single, whole).collect()
    for name, ddl, kind, values in COLUMNS:
        expected = spark_hash([(kind, values)]).view(np.int32).tolist()
        assert [row[f"hash_{name}"] for row in found] == expected, ddl
    chained = spark_hash([(kind, values) for _, _, kind, values in COLUMNS])
    assert [row.whole for row in found] == chained.view(np.int32).tolist()
    placed = frame.repartition(13, *names).select(whole, F.spark_partition_id().alias("partition")).collect()
    by_hash = {row.whole: row.partition for row in placed}
    expected = dict(
        zip(chained.view(np.int32).tolist(), homes(chained.astype(np.uint64), 13).tolist(), strict=True)
    )
    assert by_hash == expected
