"""The sketch against exact counts: what it promises holds for any order, any batches and any merging."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.sketch import CAPACITY, LoadSketch

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=25), min_size=1, max_size=12
)


def _check(sketch: LoadSketch, exact: Counter[int]) -> None:
    """Everything that the module's docstring promises."""
    total = sum(exact.values())
    loads = sketch.loads()
    listed = dict(zip(loads.keys.tolist(), loads.cost.tolist(), strict=True))
    assert len(listed) <= 2 * sketch.capacity
    assert sketch.lost <= (total - sum(listed.values())) / (sketch.capacity + 1) + 1e-9
    for key, cost in exact.items():
        assert cost - sketch.lost - 1e-9 <= listed.get(key, 0.0) <= cost + 1e-9
    assert loads.total_cost == pytest.approx(total)


@given(BATCHES, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_no_key_is_short_of_more_than_was_lost(batches: list[list[tuple[int, int]]], capacity: int) -> None:
    sketch, exact = LoadSketch(capacity), Counter[int]()
    for batch in batches:
        keys = np.array([key for key, _ in batch], np.uint64)
        sketch.add(keys, [cost for _, cost in batch], instance=0)
        for key, cost in batch:
            exact[key] += cost
    _check(sketch, exact)


@given(BATCHES, st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_merging_keeps_the_promise(batches: list[list[tuple[int, int]]], capacity: int) -> None:
    sketches, exact = [], Counter[int]()
    for place, batch in enumerate(batches):
        sketch = LoadSketch(capacity)
        for key, cost in batch:
            own = key + 100 * place if key % 2 else key  # even keys are on several instances
            sketch.add(np.array([own], np.uint64), [cost], instance=place)
            exact[own] += cost
        sketches.append(sketch)
    whole = sketches[0]
    for sketch in sketches[1:]:
        whole.merge(sketch)
    _check(whole, exact)


@given(BATCHES, st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_the_load_of_each_instance_is_exact(batches: list[list[tuple[int, int]]], capacity: int) -> None:
    sketch = LoadSketch(capacity)
    for place, batch in enumerate(batches):
        sketch.add(np.array([key + 100 * place for key, _ in batch], np.uint64), [c for _, c in batch], place)
    per_instance = [sum(cost for _, cost in batch) for batch in batches]
    assert sketch.loads().per_instance(len(batches)).tolist() == pytest.approx(per_instance)


@pytest.mark.parametrize("order", ["heavy first", "heavy last", "interleaved", "one by one between new keys"])
def test_every_key_of_a_thousandth_is_found_in_any_order(order: str) -> None:
    """A hundred keys of 0.1 % each among 400,000 that come twice, in batches of 10,000."""
    light = np.repeat(np.arange(1000, 401_000, dtype=np.uint64), 2)
    np.random.default_rng(1).shuffle(light[:400_000])
    heavy = np.repeat(np.arange(100, dtype=np.uint64), 900)  # 900 of 890,000: 0.101 %
    if order == "heavy first":
        stream = np.concatenate([heavy, light])
    elif order == "heavy last":
        stream = np.concatenate([light, heavy])
    elif order == "interleaved":
        stream = np.random.default_rng(2).permutation(np.concatenate([heavy, light]))
    else:
        stream = np.insert(light, np.linspace(0, len(light), len(heavy), dtype=int), np.sort(heavy))
    sketch = LoadSketch()
    for start in range(0, len(stream), 10_000):
        batch = stream[start : start + 10_000]
        sketch.add(batch, 1.0, instance=(batch % np.uint64(4)).astype(np.int32))
    loads = sketch.loads()
    listed = dict(zip(loads.keys.tolist(), loads.cost.tolist(), strict=True))
    assert all(900 - 0.0003 * len(stream) <= listed[key] <= 900 for key in range(100))
    assert sketch.lost <= len(stream) / (CAPACITY + 1)
    exact = np.bincount((stream % np.uint64(4)).astype(int))
    assert loads.per_instance(4).tolist() == pytest.approx(exact.tolist())


def test_state_and_place_are_the_last_that_was_said_and_rows_add_up() -> None:
    sketch = LoadSketch()
    sketch.add(np.array([1, 2], np.uint64), [5, 1], instance=0, state=[100, 200], rows=[50, 10])
    sketch.add(np.array([1], np.uint64), [5], instance=3, state=[70], rows=[1])
    loads = sketch.loads({1: "be"})
    assert loads.keys.tolist() == [1, 2]
    assert loads.state.tolist() == [70, 200]
    assert loads.instance.tolist() == [3, 0]
    assert loads.rows is not None
    assert loads.rows.tolist() == [51, 10]
    assert [loads.name(0), loads.name(1)] == ["be", "2"]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one key"):
        LoadSketch(0)
    sketch = LoadSketch()
    for cost, place in (([-1.0], 0), ([1.0], -1), ([float("nan")], 0)):
        with pytest.raises(ConfigError):
            sketch.add(np.array([1], np.uint64), cost, instance=place)
    assert sketch.total == 0
