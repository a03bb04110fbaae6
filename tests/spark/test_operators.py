"""Each stateful operator, started anew for each batch, puts out what one batch over all rows would."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
SCHEMA = "id long, word string, amount long, at timestamp"
FILES, ROWS, MINUTES = 4, 40, 10


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


def put_out(batches: list[list[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def as_set(rows: list[Row]) -> Counter[Row]:
    """Rows in no order, but with how often each is there."""
    return Counter(rows)


def finished(stream: Any, query: Callable[[DataFrame], DataFrame], mode: str) -> list[list[Row]]:
    """Feed file by file and start the query anew for each; then let the watermark pass."""
    for file in range(FILES):
        stream.feed(rows_of(file))
        stream.run(query(stream.stream()), mode)
    stream.feed(LAST)
    stream.run(query(stream.stream()), mode)
    return list(stream.batches)


def test_aggregation_with_updates(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy("word").agg(fn.count("*").alias("n"), fn.sum("amount").alias("sum"))

    stream = stream_of("in", SCHEMA)
    newest = {row["word"]: row for row in put_out(finished(stream, query, "update"))}
    assert newest == {row["word"]: row for row in query(stream.rows()).collect()}


def test_complete_aggregation(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy("word").agg(fn.max("amount").alias("max"))

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "complete")
    assert as_set(batches[-1]) == as_set(query(stream.rows()).collect())
    assert [len(batch) for batch in batches] == sorted(len(batch) for batch in batches)


def test_appending_aggregation_with_a_watermark(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        windows = rows.withWatermark("at", "1 minute").groupBy(fn.window("at", "3 minutes"), "word")
        return windows.agg(fn.sum("amount").alias("sum"))

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "append")
    assert as_set(put_out(batches)) == as_set(query(stream.rows()).where("word != 'end'").collect())
    assert sum(1 for batch in batches if batch) > 2  # not all at the end


def test_windows_of_windows(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        small = rows.withWatermark("at", "0 minutes").groupBy(fn.window("at", "1 minute"), "word").count()
        return small.groupBy(fn.window(fn.window_time("window"), "5 minutes")).agg(
            fn.max("count").alias("most")
        )

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "append")
    expected = [r for r in query(stream.rows()).collect() if r["window"].start < dt.datetime(2030, 1, 5)]
    assert as_set(put_out(batches)) == as_set(expected)


def test_drop_duplicates(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.select("id").dropDuplicates(["id"])

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "append")
    assert as_set(put_out(batches)) == as_set(query(stream.rows()).collect())


def test_drop_duplicates_within_the_watermark(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id"]).select("id")

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "append")
    assert as_set(put_out(batches)) == as_set(stream.rows().select("id").distinct().collect())


def test_limit(stream_of: Any) -> None:
    stream = stream_of("in", SCHEMA)
    batches = finished(stream, lambda rows: rows.select("id", "amount").limit(ROWS + 7), "append")
    assert len(put_out(batches)) == ROWS + 7


def test_session_windows(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        watched = rows.withWatermark("at", "5 minutes")
        return watched.groupBy(fn.session_window("at", "2 minutes"), "word").agg(
            fn.sum("amount").alias("sum")
        )

    stream = stream_of("in", SCHEMA)
    batches = finished(stream, query, "append")
    assert as_set(put_out(batches)) == as_set(query(stream.rows()).where("word != 'end'").collect())


@pytest.mark.parametrize("how", ["inner", "leftOuter", "leftSemi", "fullOuter"])
def test_stream_stream_join(stream_of: Any, how: str) -> None:
    left, right = stream_of("left", SCHEMA), stream_of("right", SCHEMA)

    def query(one: DataFrame, two: DataFrame) -> DataFrame:
        two = two.select(
            fn.col("word").alias("word2"), fn.col("amount").alias("amount2"), fn.col("at").alias("at2")
        )
        one, two = one.withWatermark("at", "1 minute"), two.withWatermark("at2", "1 minute")
        near = fn.expr("word = word2 AND at2 BETWEEN at - INTERVAL 1 MINUTE AND at + INTERVAL 1 MINUTE")
        return one.join(two, near, how).select("word", "amount", *([] if how == "leftSemi" else ["amount2"]))

    for file in range(FILES):
        left.feed(rows_of(file))
        right.feed([row for row in rows_of(file) if row["amount"] % 3])
        left.run(query(left.stream(), right.stream()), "append")
    left.feed(LAST)
    right.feed(LAST)
    left.run(query(left.stream(), right.stream()), "append")

    def without_end(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["word"] != "end"]

    expected = query(left.rows(), right.rows()).collect()
    assert as_set(without_end(put_out(left.batches))) == as_set(without_end(expected))


def count_rows(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (before,) = state.get if state.exists else (0,)
    state.update((before + sum(map(len, parts)),))
    yield pd.DataFrame({"word": [key[0]], "n": [state.get[0]]})


def test_apply_in_pandas_with_state(stream_of: Any) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy("word").applyInPandasWithState(
            count_rows, "word string, n long", "n long", "update", GroupStateTimeout.NoTimeout
        )

    stream = stream_of("in", SCHEMA)
    newest = {row["word"]: row["n"] for row in put_out(finished(stream, query, "update"))}
    expected = stream.rows().groupBy("word").count().collect()
    assert newest == {row["word"]: row["count"] for row in expected}
