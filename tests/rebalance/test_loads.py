"""Loads: checked columns, files that say what is wrong with them, windows and merging against plain dicts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.files import from_arrow, read_loads
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.window import Window, merge

NAMES = st.one_of(st.text(max_size=8), st.binary(max_size=8)).map(
    lambda name: name if isinstance(name, str) or not _is_text(name) else b"\xff" + name
)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(NAMES, unique=True, max_size=30))
@settings(max_examples=30, deadline=None)
def test_hostile_names_are_just_keys(names: list[str | bytes]) -> None:
    ones = np.ones(len(names))
    loads = Loads(names, ones, ones, np.zeros(len(names), int))
    assert [loads.name(at) for at in range(len(loads))] == names
    assert loads.total_cost == len(names)


def test_text_and_its_utf8_bytes_are_one_key() -> None:
    assert Loads(["be"], [1], [1], [0]).keys.tolist() == Loads([b"be"], [1], [1], [0]).keys.tolist()


def test_the_columns_are_copies_and_read_only() -> None:
    cost = np.array([1.0, 2.0])
    loads = Loads(np.array([1, 2]), cost, cost, [0, 1])
    cost[0] = 9
    assert loads.cost.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        loads.cost[0] = 9


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cost": [1, -1]}, "cost must be finite and from 0, entry 1 is -1"),
        ({"cost": [1, float("nan")]}, "cost must be finite and from 0, entry 1 is nan"),
        ({"state": [float("inf"), 1]}, "state must be finite"),
        ({"cost": ["a", 1]}, "cost must be a column of numbers"),
        ({"cost": [1]}, "cost has 1 entries for 2 keys"),
        ({"cost": [[1, 2]]}, "cost must have one dimension"),
        ({"instance": [0, -1]}, "instance must be from 0"),
        ({"instance": [0.5, 1]}, "instance must be a column of whole numbers"),
        ({"instance": [0, 1 << 40]}, "instance must be from 0"),
        ({"home": [0]}, "home has 1 entries"),
        ({"rows": [1, -2]}, "rows must be finite"),
        ({"names": ["a"]}, "names has 1 entries"),
        ({"rest": [-1]}, "rest must be finite"),
        ({"keys": [5, 5]}, "keys: 5 is there twice"),
        ({"keys": ["a", "a"]}, "keys: b'a' is there twice"),
        ({"keys": [-1, 2]}, "from 0"),
        ({"keys": np.array([-1, 2])}, "from 0"),
        ({"keys": ["a", 2]}, "entry 1 is int"),
        ({"keys": [1.5, 2.5]}, "entry 0 is float"),
        ({"keys": np.zeros((2, 2), np.uint64)}, "keys must have one dimension"),
        ({"keys": [1 << 64, 1]}, "from 0 to 2\\*\\*64"),
    ],
)
def test_each_bad_column_is_named(changed: dict[str, Any], message: str) -> None:
    columns: dict[str, Any] = {"keys": [1, 2], "cost": [1, 2], "state": [1, 2], "instance": [0, 1]}
    with pytest.raises(ConfigError, match=message):
        Loads(**(columns | changed))


def test_the_load_of_instances_has_the_rest_and_refuses_fewer_instances() -> None:
    loads = Loads([1, 2], [3, 4], [0, 0], [2, 0], rest=[1, 10])
    assert loads.per_instance(3).tolist() == [5, 10, 3]
    assert loads.total_cost == 18
    with pytest.raises(ConfigError, match="instance 2"):
        loads.per_instance(2)


def test_some_of_the_keys_keep_all_their_columns() -> None:
    loads = Loads(["a", "b", "c"], [1, 2, 3], [4, 5, 6], [0, 1, 2], home=[2, 1, 0], rows=[7, 8, 9], rest=[1])
    some = loads.take(np.array([2, 0]))
    assert some.names is not None
    assert some.names.tolist() == ["c", "a"]
    assert some.home_of(3).tolist() == [0, 2]
    assert some.rows is not None
    assert some.rows.tolist() == [9, 7]
    assert some.total_cost == 5


def test_a_csv_file_with_all_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text('\ufeffkey,instance,cost,state,home,rows\n"be, or\nnot",1,2.5,80,0,7\n\n42,0,1,0,1,3\n')
    loads = read_loads(path)
    assert [loads.name(0), loads.name(1)] == ["be, or\nnot", "42"]
    assert loads.instance.tolist() == [1, 0]
    assert loads.cost.tolist() == [2.5, 1]
    assert loads.home_of(2).tolist() == [0, 1]
    assert loads.rows is not None
    assert loads.rows.tolist() == [7, 3]


def test_a_file_without_keys_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("key,instance,cost,state\n")
    assert len(read_loads(path)) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("key,instance,cost\n", "column state is missing"),
        ("key,instance,cost,state,hom\n", "unknown column 'hom'; did you mean 'home'"),
        ("key,key,instance,cost,state\n", "column key is there twice"),
        ("key,instance,cost,state\na,0,1\n", "line 2: 3 fields for 4 columns"),
        ("key,instance,cost,state\na,0,1,1\nb,x,1,1\n", "line 3: instance must be a whole number from 0"),
        ("key,instance,cost,state\na,0.5,1,1\n", "line 2: instance must be"),
        ("key,instance,cost,state\na,99999999999999999999,1,1\n", "line 2: instance must be"),
        ("key,instance,cost,state\na,0,nan,1\n", "line 2: cost must be a finite number from 0, not 'nan'"),
        ("key,instance,cost,state\na,0,1,-5\n", "line 2: state must be a finite number from 0, not '-5'"),
        (
            "key,instance,cost,state\na,0,1,1\nb,0,1,1\na,0,1,1\n",
            "line 4: key b'a' is there already, in line 2",
        ),
        ('key,instance,cost,state\n"a,0,1,1\n', "line 2: unexpected end"),
    ],
)
def test_a_bad_csv_file_is_one_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        read_loads(path)
    assert str(raised.value).startswith(str(path))


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_loads_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    for start in (b"", b"key,instance,cost,state\n"):
        path = tmp_path_factory.getbasetemp() / "any.csv"
        path.write_bytes(start + data)
        with contextlib.suppress(ConfigError):
            read_loads(path)


def test_a_missing_file_and_an_unknown_kind_of_file_are_clear(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_loads(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="\\.csv, \\.parquet"):
        read_loads(tmp_path / "loads.xlsx")


def test_parquet_and_arrow_give_the_loads_that_csv_gives(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    (tmp_path / "loads.csv").write_text("key,instance,cost,state\nbe,1,2.5,80\nor,0,1,10\n")
    table = pa.table({"key": ["be", "or"], "instance": [1, 0], "cost": [2.5, 1.0], "state": [80, 10]})
    parquet.write_table(table, tmp_path / "loads.parquet")
    feather.write_feather(table, str(tmp_path / "loads.arrow"))
    expected = read_loads(tmp_path / "loads.csv")
    for suffix in ("parquet", "arrow"):
        read = read_loads(tmp_path / f"loads.{suffix}")
        assert read.keys.tolist() == expected.keys.tolist()
        assert read.cost.tolist() == expected.cost.tolist()
        assert read.state.tolist() == expected.state.tolist()
        (tmp_path / f"broken.{suffix}").write_bytes(b"not a table")
        with pytest.raises(ConfigError, match="no readable"):
            read_loads(tmp_path / f"broken.{suffix}")


def test_arrow_columns_of_the_wrong_kind_are_named() -> None:
    pa = pytest.importorskip("pyarrow")
    good = {"key": [1, 2], "instance": [0, 1], "cost": [1.0, 2.0], "state": [1, 2]}
    assert from_arrow(pa.table(good)).keys.tolist() == [1, 2]
    assert from_arrow(pa.table(good | {"key": pa.array(["a", "b"]).dictionary_encode()})).name(1) == "b"
    for changed, message in (
        ({"cost": [1.0, None]}, "column cost: 1 entries are null"),
        ({"cost": ["1", "2"]}, "column cost: numbers, not string"),
        ({"instance": [0.0, 1.0]}, "column instance: integers, not double"),
        ({"key": [1.0, 2.0]}, "column key: text, binary or integers"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_arrow(pa.table(good | changed))


INTERVALS = st.lists(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))),
    min_size=1,
    max_size=6,
)


def _loads_of(interval: dict[int, tuple[int, int, int]]) -> Loads:
    cost, state, place = ([row[at] for row in interval.values()] for at in range(3))
    return Loads(
        np.array(list(interval), np.uint64), cost, state, np.array(place, int), rows=cost, rest=[1, 2]
    )


@given(INTERVALS, st.integers(1, 4), st.sampled_from(["sum", "last"]))
@settings(max_examples=50, deadline=None)
def test_a_window_is_what_a_recount_of_its_last_intervals_gives(
    intervals: list[dict[int, tuple[int, int, int]]], width: int, state: Any
) -> None:
    window = Window(width, state=state)
    for interval in intervals:
        window.add(_loads_of(interval))
    loads, seen = window.loads(), intervals[-width:]
    assert sorted(loads.keys.tolist()) == sorted({key for interval in seen for key in interval})
    assert loads.rest is not None
    assert loads.rest.tolist() == pytest.approx([1, 2])
    for at, key in enumerate(loads.keys.tolist()):
        rows = [interval[key] for interval in seen if key in interval]
        assert loads.cost[at] == pytest.approx(sum(row[0] for row in rows) / len(seen))
        assert loads.state[at] == (sum(row[1] for row in rows) if state == "sum" else rows[-1][1])
        assert loads.instance[at] == rows[-1][2]


@given(INTERVALS)
@settings(max_examples=30, deadline=None)
def test_merging_adds_what_reporters_saw(parts: list[dict[int, tuple[int, int, int]]]) -> None:
    merged = merge([_loads_of(part) for part in parts])
    assert merged.total_cost == sum(row[0] for part in parts for row in part.values()) + 3 * len(parts)
    for at, key in enumerate(merged.keys.tolist()):
        assert merged.state[at] == max(part[key][1] for part in parts if key in part)


def test_an_empty_window_and_no_parts_are_errors() -> None:
    with pytest.raises(ConfigError, match="empty"):
        Window(3).loads()
    with pytest.raises(ConfigError, match="at least one"):
        Window(0)
    with pytest.raises(ConfigError, match="no loads"):
        merge([])
