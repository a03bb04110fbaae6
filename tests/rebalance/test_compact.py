"""The compact representation: representatives keep the sums, and vectors find their keys again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.compact import NIL, Compacted, Vectors, hlhe

KEYS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 40), st.integers(0, 9)), max_size=40
)


def columns(keys: list[tuple[int, int, int, int]]) -> tuple[np.ndarray, ...]:
    current, home, cost, state = (np.array([key[at] for key in keys]) for at in range(4))
    return current.astype(np.int32), home.astype(np.int32), cost.astype(float), state.astype(float)


def representatives(largest: float, degree: int) -> set[float]:
    """y_1 to y_m, as §IV-B lists them."""
    s, r = int(largest // degree), degree.bit_length() - 1
    return {float(i * degree) for i in range(1, s + 1)} | {2.0**e for e in range(r)}


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.sampled_from([2, 4, 8, 64]))
@settings(max_examples=60, deadline=None)
def test_every_value_becomes_a_neighbouring_representative(values: list[int], degree: int) -> None:
    x = np.array([1, *values], float)
    y = representatives(x.max(), degree)
    for value, chosen in zip(x.tolist(), hlhe(x, degree).tolist(), strict=True):
        below = max(one for one in y if one <= value)
        above = min((one for one in y if one > value), default=below)
        assert chosen in (below, above)


@given(KEYS, st.sampled_from([1, 2, 8]))
@settings(max_examples=60, deadline=None)
def test_the_sum_of_each_instance_is_missed_by_one_step_at_most(
    keys: list[tuple[int, int, int, int]], degree: int
) -> None:
    """But for what the few largest values lose above the last representative."""
    current, _, cost, _ = columns(keys)
    chosen = hlhe(cost, degree, current)
    assert (chosen[cost == 0] == 0).all()
    for instance in range(3):
        mine = current == instance
        excess = np.maximum(cost[mine] - chosen.max(initial=0), 0).sum()
        smallest = cost[cost > 0].min(initial=1)
        assert abs(cost[mine].sum() - chosen[mine].sum()) <= excess + max(
            degree * smallest, cost[mine].max(initial=0)
        )


def test_an_instance_does_not_make_up_for_what_another_one_lost() -> None:
    values, group = np.array([8.0, 6, 3, 1, 8, 6, 3, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
    assert hlhe(values, 4, group).tolist() == [*hlhe(values[:4], 4).tolist()] * 2


def test_the_figure_of_the_paper() -> None:
    values = np.array([8.0, 6, 3, 2, 2, 1, 1, 1, 1, 1])
    assert hlhe(values, 4).sum() == values.sum()


def test_a_heavy_tail_keeps_its_sums_almost_exactly() -> None:
    cost = np.floor(20_000 / np.arange(1, 5001) ** 0.85)
    current = (np.arange(5000) % 15).astype(np.int32)
    compacted = Compacted.of(current, current, cost, cost * 8, 8)
    assert compacted.vectors.loads(15) == pytest.approx(np.bincount(current, weights=cost), rel=0.01)
    assert len(compacted.vectors) < len(cost) / 4


@given(KEYS, st.data())
@settings(max_examples=60, deadline=None)
def test_keys_go_where_their_vectors_went(keys: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    current, home, cost, state = columns(keys)
    compacted = Compacted.of(current, home, cost, state, 4)
    vectors = compacted.vectors
    for _ in range(data.draw(st.integers(0, 6))):
        if len(vectors):
            record = data.draw(st.integers(0, len(vectors) - 1))
            count = data.draw(st.integers(1, int(vectors.count[record])))
            vectors = vectors.move(record, data.draw(st.integers(0, 3)), count)
    targets = compacted.targets(vectors, cost)
    alike = zip(
        targets.tolist(),
        current.tolist(),
        home.tolist(),
        compacted.cost.tolist(),
        compacted.state.tolist(),
        strict=True,
    )
    records = zip(
        vectors.target.tolist(),
        vectors.current.tolist(),
        vectors.home.tolist(),
        vectors.cost.tolist(),
        vectors.state.tolist(),
        strict=True,
    )
    assert Counter(alike) == dict(zip(records, vectors.count.tolist(), strict=True))
    load = np.bincount(targets, weights=compacted.cost, minlength=4)
    assert vectors.loads(4) == pytest.approx(load)


def test_of_keys_that_are_alike_those_with_the_largest_psi_leave() -> None:
    zeros, ones = np.zeros(3, np.int32), np.ones(3)
    compacted = Compacted.of(zeros, zeros, ones, ones, 1)
    planned = compacted.vectors.move(0, 2, 1)
    assert compacted.targets(planned, np.array([1.0, 9.0, 5.0])).tolist() == [0, 2, 0]
    assert compacted.targets(planned.move_back(1), ones).tolist() == [0, 0, 0]


def test_taken_records_merge_and_need_a_target() -> None:
    """The example of §IV-A: two records that become equal when they are taken are one."""
    two, one = np.array([1, 1], np.int32), np.array([0, 0], np.int32)
    vectors = Vectors.of(
        np.array([0, 1], np.int32), two, one, np.array([4.0, 4]), np.array([4.0, 4]), np.array([2, 1])
    )
    taken = vectors.move(0, NIL).move(1, NIL)
    assert taken.count.tolist() == [3]
    assert taken.loads(2).tolist() == [0, 0]
    ones = np.ones(3)
    whole = Compacted.of(np.ones(3, np.int32), np.zeros(3, np.int32), ones, ones, 1)
    with pytest.raises(ConfigError, match="no target"):
        whole.targets(taken, ones)


def test_what_cannot_be_is_refused() -> None:
    ones = np.ones(3)
    compacted = Compacted.of(np.ones(3, np.int32), np.ones(3, np.int32), ones, ones, 1)
    with pytest.raises(ConfigError, match="power of two"):
        hlhe(ones, 6)
    with pytest.raises(ConfigError, match="has 3 keys, so 4"):
        compacted.vectors.move(0, 2, 4)
    with pytest.raises(ConfigError, match="not 3"):
        compacted.targets(compacted.vectors.of(*(c[:0] for c in vars(compacted.vectors).values())), ones)
