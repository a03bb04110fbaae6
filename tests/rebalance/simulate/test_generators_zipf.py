"""Drifting Zipf: the law is recovered, swaps conserve it, and the source of a pair shrinks as f says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import hash_longs, homes
from ckpt.rebalance.simulate.generators import DriftingZipf, drain, zipf
from ckpt.rebalance.simulate.interval import Interval

STREAMS = st.builds(
    DriftingZipf,
    keys=st.integers(1, 400),
    exponent=st.floats(0, 2),
    fluctuation=st.floats(0, 3),
    pairs=st.integers(0, 3),
    instances=st.integers(6, 9),
    intervals=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)


def loads(interval: Interval, instances: int) -> np.ndarray:
    return np.bincount(homes(interval.keys, instances), interval.tuples, minlength=instances)


@given(STREAMS)
def test_it_can_be_read_again(stream: DriftingZipf) -> None:
    for once, again in zip(stream, stream, strict=True):
        assert (once.keys == again.keys).all()
        assert (once.tuples == again.tuples).all()


@given(STREAMS)
def test_swaps_conserve_every_frequency_and_every_key(stream: DriftingZipf) -> None:
    intervals = list(stream)
    assert len(intervals) == stream.intervals
    for interval in intervals:
        assert (interval.keys == intervals[0].keys).all()
        assert (np.sort(interval.tuples) == np.sort(intervals[0].tuples)).all()
        assert interval.tuples.sum() == pytest.approx(stream.tuples)
        assert interval.cost.sum() == pytest.approx(stream.tuples * stream.tuple_s)
        assert interval.state.sum() == pytest.approx(stream.tuples * stream.tuple_bytes)


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=60),
    st.lists(st.floats(0, 100), max_size=60) | st.just([0.0] * 60),
    st.floats(0, 4),
    st.integers(0, 1000),
)
def test_the_source_shrinks_to_what_f_says_and_not_a_swap_further(
    source: list[float], target: list[float], f: float, seed: int
) -> None:
    load = np.array([*source, *target])
    place = np.repeat(np.array([0, 1], np.int32), [len(source), len(target)])
    after = drain(load, place, 0, 1, f, np.random.default_rng(seed))
    assert sorted(after) == sorted(load)
    wanted = sum(source) / (1 + f)
    ours, changed = after[place == 0], np.flatnonzero(after[place == 0] != source)
    if len(changed):
        lost = np.array(source)[changed] - ours[changed]
        assert (lost > 0).all()
        assert ours.sum() + lost.max() > wanted - 1e-9
    if len(target) >= len(source) and not any(target):
        assert ours.sum() <= wanted + 1e-9


def test_at_a_realistic_size_the_source_shrinks_as_defined() -> None:
    f, instances = 0.5, 10
    stream = DriftingZipf(keys=50_000, exponent=0.8, fluctuation=f, instances=instances, intervals=6, seed=3)
    for before, after in pairwise(loads(interval, instances) for interval in stream):
        shrunk = after / before
        changed = np.flatnonzero(np.abs(shrunk - 1) > 1e-9)
        assert len(changed) == 2  # one pair
        # The condition of the papers, |L_i - L_{i-1}| / L_i >= f, met with the granularity of a key.
        assert (shrunk.min() - 1) * -1 / shrunk.min() == pytest.approx(f, rel=0.1)
        assert shrunk.min() <= 1 / (1 + f)
        assert after.sum() == pytest.approx(before.sum())


def test_so_many_pairs_change_so_many_instances() -> None:
    first, second = DriftingZipf(keys=20_000, pairs=7, intervals=2, seed=5)
    change = loads(second, 15) / loads(first, 15)
    assert (change < 0.99).sum() == 7
    assert (change > 1.01).sum() == 7


def test_load_moves_between_the_instances_that_a_planner_uses() -> None:
    asked: list[np.ndarray] = []

    def place(keys: np.ndarray) -> np.ndarray:
        asked.append(keys)
        return (np.arange(len(keys)) % 2).astype(np.int32)  # only two of fifteen are in use

    first, second, third = DriftingZipf(keys=3000, pairs=7, intervals=3, seed=1).follow(place)
    assert len(asked) == 2
    for one, other in ((first, second), (second, third)):
        even, odd = (np.abs(one.tuples - other.tuples)[at::2].sum() for at in (0, 1))
        assert even == pytest.approx(odd)


@pytest.mark.parametrize("exponent", [0.5, 0.85, 1.2])
def test_the_exponent_can_be_recovered_from_rows(exponent: float) -> None:
    stream = DriftingZipf(keys=2000, exponent=exponent, intervals=1, tuples=400_000, seed=2)
    rows = next(stream.rows())
    came = np.sort(np.bincount(rows["key"], minlength=2000))[::-1][:100]
    slope, _ = np.polyfit(np.log(np.arange(1, 101)), np.log(came), 1)
    assert -slope == pytest.approx(exponent, abs=0.05)


def test_rows_and_intervals_are_of_the_same_keys() -> None:
    stream = DriftingZipf(keys=50, exponent=1.0, intervals=3, tuples=100_000, seed=4)
    for number, (interval, rows) in enumerate(zip(stream, stream.rows(), strict=True)):
        low = hash_longs(np.arange(50)).astype(np.uint64)
        by_hash = dict(zip((interval.keys & np.uint64(2**32 - 1)).tolist(), interval.tuples, strict=True))
        expected = np.array([by_hash[key] for key in low.tolist()])
        came = np.bincount(rows["key"], minlength=50)
        assert (np.abs(came - expected) < 6 * np.sqrt(expected)).all()
        assert number * 10 <= rows["at_s"].min() <= rows["at_s"].max() < (number + 1) * 10
        assert (np.diff(rows["at_s"]) >= 0).all()


def test_probabilities_are_those_of_the_law() -> None:
    assert zipf(4, 0).tolist() == [0.25] * 4
    assert zipf(1000, 1.3).sum() == pytest.approx(1)
    assert zipf(10, 2.0)[2] / zipf(10, 2.0)[0] == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DriftingZipf(keys=0), "keys must be at least 1"),
        (lambda: DriftingZipf(exponent=-1), "exponent must be a number from 0, not -1"),
        (lambda: DriftingZipf(fluctuation=float("nan")), "fluctuation must be"),
        (lambda: DriftingZipf(pairs=8), "8 pairs take 16 instances, and there are 15"),
        (lambda: DriftingZipf(pairs=-1), "-1 pairs"),
    ],
)
def test_an_impossible_stream_is_refused(make: Callable[[], DriftingZipf], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_one_instance_needs_no_fluctuation() -> None:
    first, second = DriftingZipf(keys=10, instances=1, fluctuation=0, intervals=2)
    assert (first.tuples == second.tuples).all()
