"""Recorded streams: what a file says is what the intervals have, and a bad file is one clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.simulate.generators import read_intervals
from ckpt.rebalance.simulate.interval import Interval

ROWS = st.lists(
    st.tuples(st.integers(3, 8), st.sampled_from(["be", "or", "not", "42"]), *[st.integers(0, 9)] * 3),
    max_size=30,
)


def columns(interval: Interval) -> dict[str, tuple[float, float, float]]:
    assert interval.names is not None
    rows = zip(interval.tuples.tolist(), interval.cost.tolist(), interval.state.tolist(), strict=True)
    return dict(zip(interval.names.tolist(), rows, strict=True))


@given(ROWS)
def test_rows_add_up_by_interval_and_key(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, int, int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "recorded.csv"
    lines = ["interval,key,tuples,cost,state", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    expected: dict[int, dict[str, list[int]]] = {}
    for number, key, *amounts in rows:
        of = expected.setdefault(number, {}).setdefault(key, [0, 0, 0])
        of[:] = [one + other for one, other in zip(of, amounts, strict=True)]
    first = min(expected, default=0)
    intervals = read_intervals(path)
    assert len(intervals) == (max(expected) - first + 1 if expected else 0)
    for number, interval in enumerate(intervals, first):
        assert columns(interval) == {key: tuple(row) for key, row in expected.get(number, {}).items()}


def test_times_are_cut_and_what_is_not_there_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "trades.csv"
    path.write_text("time,key\n1000.5,a\n1009.9,b\n1001,a\n1025,a\n")
    first, empty, last = read_intervals(path, interval_s=10, tuple_s=0.5, tuple_bytes=8)
    assert columns(first) == {"a": (2, 1.0, 16), "b": (1, 0.5, 8)}
    assert len(empty) == 0
    assert columns(last) == {"a": (1, 0.5, 8)}


def test_parquet_with_numbers_as_keys(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"interval": [0, 1, 0], "key": [9, 5, 5], "tuples": [1.0, 2.0, 3.0]})
    parquet.write_table(table, tmp_path / "keys.parquet")
    first, second = read_intervals(tmp_path / "keys.parquet")
    assert first.keys.tolist() == [5, 9]
    assert first.tuples.tolist() == [3, 1]
    assert first.names is None
    assert second.keys.dtype == np.uint64
    assert second.keys.tolist() == [5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key\na\n", "exactly one of the columns time and interval"),
        ("key,time,interval\na,1,1\n", "exactly one of the columns time and interval"),
        ("time\n1\n", "column key is missing"),
        ("key,intervall\n", "unknown column 'intervall'; did you mean 'interval'"),
        ("key,interval\na,1.5\n", "line 2: interval must be a whole number"),
        ("key,time,cost\na,1,x\n", "line 2: cost must be a finite number from 0, not 'x'"),
        ("key,time\na,0\na,1e18\n", "more than 1000000; times are seconds"),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recorded.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        read_intervals(path)
    assert str(raised.value).startswith(str(path))


def test_a_length_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="interval_s must be above 0"):
        read_intervals(tmp_path / "any.csv", interval_s=0)
