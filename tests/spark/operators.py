"""Every stateful operator as a query whose whole output can be compared with a batch over the same rows.

Tests restart them (`test_operators.py`) and kill them (`test_operators_killed.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from ckpt.spark.jar import built_jar
from tests.effort import effort
from tests.spark.processors import CLOSING_MS, LastingTally, Tally, TallyOfFrames

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
SCHEMA = "id long, word string, amount long, at timestamp"
FILES, ROWS, MINUTES = effort(2, 4), 40, 10


def moment(minutes: float) -> str:
    return (START + dt.timedelta(minutes=minutes)).isoformat()


def rows_of(file: int) -> list[dict[str, Any]]:
    """Rows of ten minutes, one file after the other; words come again in every file, ids in the next one."""
    return [
        {
            "id": (file * ROWS + n) // 2 * 2 - (ROWS if n % 5 == 0 and file else 0),
            "word": f"w{n * n % 11}",
            "amount": n,
            "at": moment(file * MINUTES + n * MINUTES / ROWS),
        }
        for n in range(ROWS)
    ]


LAST = [{"id": -1, "word": "end", "amount": 0, "at": moment(10_000)}]
"""Moves the watermark so far that everything before it is put out."""


def is_right(row: dict[str, Any]) -> bool:
    """Whether a row is also fed to the right side of joins."""
    return bool(row["amount"] % 3) or row["word"] == "end"


Query = Callable[[DataFrame, DataFrame], DataFrame]
"""Over all rows, and over those of the right side."""


@dataclass(frozen=True)
class Operator:
    """A query, and what its output amounts to."""

    name: str
    mode: str
    query: Query
    batch: Query | None = None
    """The same as a batch, where the query itself cannot be one."""
    only_number: bool = False
    """Which rows it puts out is not certain, only how many."""
    by_clock: bool = False
    """Spark begins one batch after the other, with data or without, unless it is told not to."""

    def expected(self, rows: DataFrame, right: DataFrame) -> Counter[Any]:
        """What a batch makes of the rows."""
        found = (self.batch or self.query)(rows.where("word != 'end'"), right.where("word != 'end'"))
        return self._counted(found.collect())

    def outcome(self, batches: list[list[Row]]) -> Counter[Any]:
        """What the batches, in their order, amount to."""
        rows = [row for batch in batches for row in batch]
        if self.mode == "complete":
            rows = batches[-1]
        elif self.mode == "update":
            rows = list({row[0]: row for row in rows}.values())
        return self._counted(rows)

    def _counted(self, rows: list[Row]) -> Counter[Any]:
        """Rows in no order, each with how often it is there; without those that come from LAST."""
        if self.only_number:
            return Counter(rows=len(rows))
        return Counter(row for row in rows if not {"end", -1} & set(row))


def _watched(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute")


def _updates(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("word").agg(fn.count("*").alias("n"), fn.sum("amount").alias("sum"))


def _complete(rows: DataFrame, _: DataFrame) -> DataFrame:
    return _watched(rows).groupBy("word").agg(fn.max("amount").alias("max"))


def _windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    windows = _watched(rows).groupBy(fn.window("at", "3 minutes"), "word")
    return windows.agg(fn.sum("amount").alias("sum"))


def _windows_of_windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    small = rows.withWatermark("at", "0 minutes").groupBy(fn.window("at", "1 minute"), "word").count()
    return small.groupBy(fn.window(fn.window_time("window"), "5 minutes")).agg(fn.max("count").alias("most"))


def _session_windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    sessions = rows.withWatermark("at", "5 minutes").groupBy(fn.session_window("at", "2 minutes"), "word")
    return sessions.agg(fn.sum("amount").alias("sum"))


def _without_duplicates(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.select("id").dropDuplicates(["id"])


def _without_duplicates_within_watermark(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id"]).select("id")


def _limit(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.select("id", "amount").limit(ROWS + 7)


def _join(how: str) -> Query:
    def query(one: DataFrame, two: DataFrame) -> DataFrame:
        two = two.select(
            fn.col("word").alias("word2"), fn.col("amount").alias("amount2"), fn.col("at").alias("at2")
        )
        near = fn.expr("word = word2 AND at2 BETWEEN at - INTERVAL 1 MINUTE AND at + INTERVAL 1 MINUTE")
        joined = _watched(one).join(two.withWatermark("at2", "1 minute"), near, how)
        return joined.select("word", "amount", *([] if how == "leftSemi" else ["amount2"]))

    return query


def count_rows(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (before,) = state.get if state.exists else (0,)
    n = before + sum(map(len, parts))
    if state.hasTimedOut:
        state.remove()
    else:
        state.update((n,))
        if state.getCurrentWatermarkMs() < CLOSING_MS:
            state.setTimeoutTimestamp(CLOSING_MS)
    yield pd.DataFrame({"word": [key[0]], "n": [n], "closed": [state.hasTimedOut]})


def _apply_in_pandas(rows: DataFrame, _: DataFrame) -> DataFrame:
    return (
        _watched(rows)
        .groupBy("word")
        .applyInPandasWithState(
            count_rows,
            "word string, n long, closed boolean",
            "n long",
            "update",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _counted_in_a_batch(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("word").agg(fn.count("*").alias("n"), fn.lit(True).alias("closed"))


def _transform(rows: DataFrame, _: DataFrame) -> DataFrame:
    return _watched(rows).groupBy("word").transformWithState(Tally(), Tally.OUTPUT, "Update", "eventTime")


def _transform_in_pandas(rows: DataFrame, _: DataFrame) -> DataFrame:
    grouped = _watched(rows).groupBy("word")
    return grouped.transformWithStateInPandas(TallyOfFrames(), Tally.OUTPUT, "Update", "eventTime")


def _transform_with_ttl(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("word").transformWithState(LastingTally(), Tally.OUTPUT, "Update", "processingTime")


def _in_scala(call: str) -> Query:
    """One of `Operators.scala`, which is compiled as the provider is."""

    def query(rows: DataFrame, _: DataFrame) -> DataFrame:
        spark = rows.sparkSession
        return DataFrame(getattr(_scala(spark), call)(_watched(rows)._jdf, CLOSING_MS), spark)

    return query


def _scala(spark: SparkSession) -> Any:
    path = built_jar("tests", [str(Path(__file__).with_name("Operators.scala"))])
    spark.sql(f"ADD JAR '{path}'")
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    return loader.loadClass("ckpt.testing.Operators").newInstance()


def _tallied_in_a_batch(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("word").agg(
        fn.count("*").alias("n"),
        fn.sum("amount").alias("sum"),
        fn.count_distinct("id").alias("ids"),
        fn.lit(True).alias("closed"),
    )


def _never_closed(rows: DataFrame, right: DataFrame) -> DataFrame:
    return _tallied_in_a_batch(rows, right).withColumn("closed", fn.lit(False))


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("aggregation-update", "update", _updates),
        Operator("aggregation-complete", "complete", _complete),
        Operator("aggregation-append", "append", _windows),
        Operator("chained-aggregations", "append", _windows_of_windows),
        Operator("session-windows", "append", _session_windows),
        Operator("drop-duplicates", "append", _without_duplicates),
        Operator(
            "drop-duplicates-within-watermark",
            "append",
            _without_duplicates_within_watermark,
            _without_duplicates,
        ),
        Operator("limit", "append", _limit, only_number=True),
        *(
            Operator(f"join-{how}", "append", _join(how))
            for how in ("inner", "leftOuter", "fullOuter", "leftSemi")
        ),
        Operator("apply-in-pandas-with-state", "update", _apply_in_pandas, _counted_in_a_batch),
        Operator("transform-with-state", "update", _transform, _tallied_in_a_batch),
        Operator("transform-with-state-in-pandas", "update", _transform_in_pandas, _tallied_in_a_batch),
        Operator("transform-with-state-and-ttl", "update", _transform_with_ttl, _never_closed, by_clock=True),
        Operator(
            "transform-with-state-in-scala", "update", _in_scala("transformWithState"), _tallied_in_a_batch
        ),
        Operator(
            "flat-map-groups-with-state", "update", _in_scala("flatMapGroupsWithState"), _tallied_in_a_batch
        ),
    )
}

FAMILIES = {
    "aggregation": [
        "aggregation-update",
        "aggregation-complete",
        "aggregation-append",
        "chained-aggregations",
    ],
    "session windows": ["session-windows"],
    "deduplication": ["drop-duplicates", "drop-duplicates-within-watermark"],
    "limit": ["limit"],
    "join": ["join-inner", "join-leftOuter", "join-fullOuter", "join-leftSemi"],
    "groups with state": ["apply-in-pandas-with-state", "flat-map-groups-with-state"],
    "transform with state": [
        "transform-with-state",
        "transform-with-state-in-pandas",
        "transform-with-state-and-ttl",
        "transform-with-state-in-scala",
    ],
}
"""Names of the operators that one operator of Spark carries out."""
assert sorted(name for family in FAMILIES.values() for name in family) == sorted(OPERATORS)
