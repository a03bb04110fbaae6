"""Intervals are checked columns of ascending keys; a window keeps costs of the newest and state of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance import Window
from ckpt.rebalance.simulate import Interval, window


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    keys = draw(st.lists(st.integers(0, 12), unique=True))
    column = st.lists(st.integers(0, 9), min_size=len(keys), max_size=len(keys))
    return Interval.of(np.array(keys, np.uint64), draw(column), draw(column), draw(column))


@given(st.lists(intervals(), min_size=1, max_size=8), st.integers(1, 4))
def test_a_window_has_the_newest_costs_and_the_state_of_every_interval_in_it(
    stream: list[Interval], size: int
) -> None:
    for end, loads in enumerate(window(stream, size), start=1):
        held = stream[max(0, end - size) : end]
        newest = dict(zip(held[-1].keys.tolist(), held[-1].cost.tolist(), strict=True))
        for key, cost, state in zip(
            loads.keys.tolist(), loads.cost.tolist(), loads.state.tolist(), strict=True
        ):
            assert cost == newest.get(key, 0)
            assert state == sum(float(part.state[part.keys == key].sum()) for part in held)
        assert set(loads.keys.tolist()) == {key for part in held for key in part.keys.tolist()}


def test_columns_in_any_order_become_ascending_with_their_names() -> None:
    interval = Interval.of(["or", "be", "not"], [1, 2, 3], [4, 5, 6], [7, 8, 9])
    assert (np.diff(interval.keys.astype(object)) > 0).all()
    assert interval.names is not None
    by_name = dict(zip(interval.names.tolist(), interval.tuples.tolist(), strict=True))
    assert by_name == {"or": 1, "be": 2, "not": 3}


@pytest.mark.parametrize(
    ("keys", "tuples", "cost", "state", "message"),
    [
        ([1, 1], [1, 1], [1, 1], [1, 1], "there twice"),
        ([1], [1, 2], [1], [1], "rows has 2 entries for 1 keys"),
        ([1], [1], [-1], [1], "cost must be finite and from 0"),
        ([1], [1], [1], [float("nan")], "state must be finite"),
    ],
)
def test_wrong_columns_are_refused_by_name(
    keys: list[int], tuples: list[float], cost: list[float], state: list[float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Interval.of(keys, tuples, cost, state)


def test_an_interval_does_not_follow_the_arrays_it_was_made_of() -> None:
    tuples = np.ones(1)
    interval = Interval(np.array([3], np.uint64), tuples, np.ones(1), np.ones(1))
    tuples[0] = 7
    assert interval.tuples.tolist() == [1.0]


def test_the_mean_of_a_window_is_over_its_intervals_and_the_last_cost_is_not() -> None:
    mean, last = Window(2), Window(2, cost="last")
    zero = np.zeros(1, np.int32)
    for cost in (1.0, 4.0):
        interval = Interval.of([3], [1], [cost], [1])
        mean.add(interval.loads(zero))
        last.add(interval.loads(zero))
    assert mean.loads().cost.tolist() == [2.5]
    assert last.loads().cost.tolist() == [4.0]


@given(st.lists(intervals(), min_size=1, max_size=8))
def test_an_endless_window_forgets_nothing(stream: list[Interval]) -> None:
    endless, wide = Window(None, cost="last"), Window(len(stream), cost="last")
    for interval in stream:
        for held in (endless, wide):
            held.add(interval.loads(np.zeros(len(interval), np.int32)))
    for name in ("keys", "cost", "state", "rows"):
        assert getattr(endless.loads(), name).tolist() == getattr(wide.loads(), name).tolist()
