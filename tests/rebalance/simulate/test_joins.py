"""Every pair of a join is found exactly once, whatever the scheme, its splits and its changes of routing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance import Band, Equal, Side
from ckpt.rebalance.hashing import hash_longs
from ckpt.rebalance.simulate.joins import (
    BicliqueScheme,
    Costs,
    JoinRun,
    KeyedScheme,
    MatrixScheme,
    Rows,
    Scheme,
    run_join,
)
from ckpt.rebalance.splitting import Predicate

Schemes = dict[str, Callable[[Predicate], Scheme]]

SCHEMES: Schemes = {
    planner: lambda predicate, planner=planner: KeyedScheme(  # type: ignore[misc]
        planner, 3, theta=0.05, capacity_rows=20, predicate=predicate
    )
    for planner in ("qmmp", "mnrt", "mixed", "kg")
}
SCHEMES["dynamic"] = lambda _: MatrixScheme(capacity_rows=20)
SCHEMES["bi"] = lambda predicate: BicliqueScheme(capacity_rows=20, predicate=predicate)
SCHEMES["bi6"] = lambda predicate: BicliqueScheme(6, capacity_rows=10, predicate=predicate)
PREDICATES: dict[str, Predicate] = {"equal": Equal(), "band": Band(1)}


def skewed(count: int, seed: int, keys: int = 12, exponent: float = 1.5, *, hashed: bool = False) -> Rows:
    draw = np.random.default_rng(seed)
    weights = np.arange(1.0, keys + 1) ** -exponent
    value = draw.choice(keys, count, p=weights / weights.sum())
    if hashed:
        value = hash_longs(value).astype(np.int64)
    side = draw.choice([Side.LEFT, Side.RIGHT], count)
    return Rows.of(side, value, np.sort(draw.uniform(0, 10, count)), seed)


def brute_force(rows: Rows, width: int, window_s: float | None) -> set[tuple[int, int]]:
    left, right = (np.flatnonzero(rows.side == side) for side in (Side.LEFT, Side.RIGHT))
    near = np.abs(rows.value[left][:, None] - rows.value[right][None, :]) <= width
    if window_s is not None:
        apart_s = np.abs(rows.time_s[left][:, None] - rows.time_s[right][None, :])
        near &= apart_s <= window_s
    i, j = np.nonzero(near)
    return set(zip(left[i].tolist(), right[j].tolist(), strict=True))


@pytest.mark.parametrize("predicate", PREDICATES)
@pytest.mark.parametrize("scheme", SCHEMES)
@given(seed=st.integers(0, 1000), window_s=st.sampled_from([None, 0.5, 3.0]))
@settings(max_examples=15, deadline=None)
def test_every_pair_in_the_window_is_found_exactly_once(
    scheme: str, predicate: str, seed: int, window_s: float | None
) -> None:
    rows, meets = skewed(150, seed), PREDICATES[predicate]
    run = run_join(rows, SCHEMES[scheme](meets), meets, interval_rows=25, window_s=window_s, collect=True)
    assert run.pairs is not None
    found = list(map(tuple, run.pairs.tolist()))
    assert len(found) == len(set(found)) == run.matches
    assert set(found) == brute_force(rows, 0 if predicate == "equal" else 1, window_s)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_schemes_of_these_tests_do_change_their_routing(scheme: str) -> None:
    run = run_join(skewed(300, 1), SCHEMES[scheme](Equal()), Equal(), interval_rows=25)
    assert any(step.moved for step in run.steps)
    assert run.steps[-1].instances > run.steps[0].instances


def run(scheme: Scheme, rows: Rows, interval_rows: int = 200, predicate: Predicate | None = None) -> JoinRun:
    return run_join(rows, scheme, Equal() if predicate is None else predicate, interval_rows=interval_rows)


def test_nothing_is_lost_or_stored_twice_where_rows_are_not_copied() -> None:
    rows = skewed(1000, 3, hashed=True)
    for scheme in (KeyedScheme("mnrt", 4), KeyedScheme("mixed", 4), BicliqueScheme(2, members=2)):
        steps = run(scheme, rows).steps
        assert [int(step.stored.sum()) for step in steps] == [200, 400, 600, 800, 1000]


def test_a_matrix_stores_and_compares_evenly_whatever_the_skew() -> None:
    scheme = MatrixScheme(rows=2, columns=4)
    step = run(scheme, skewed(4000, 5, exponent=3), 4000).steps[0]
    left = np.count_nonzero(skewed(4000, 5, exponent=3).side == Side.LEFT)
    assert step.stored.sum() == 4 * left + 2 * (4000 - left)
    assert step.stored.max() < 1.1 * step.stored.mean()
    assert step.compared.sum() == left * (4000 - left)  # any two rows of different sides meet in one cell


def test_a_split_makes_the_slowest_instance_faster_and_its_rows_more_travelled() -> None:
    rows = skewed(4000, 7, keys=40, exponent=1.5, hashed=True)
    whole, split = (run(KeyedScheme(planner, 4, theta=0.05), rows) for planner in ("mixed", "mnrt"))
    assert split.steps[-1].stored.max() <= 1.1 * split.steps[-1].stored.mean()
    assert whole.steps[-1].stored.max() > 1.2 * whole.steps[-1].stored.mean()  # one key is a third of it
    assert split.steps[-1].busy_s.max() < whole.steps[-1].busy_s.max()
    assert split.steps[-1].received.sum() > whole.steps[-1].received.sum() == 200


def test_a_matrix_that_grows_keeps_a_quarter_of_each_cell() -> None:
    rows = skewed(400, 9)
    scheme = MatrixScheme(capacity_rows=300)
    steps = run(scheme, rows).steps
    assert [step.instances for step in steps] == [1, 1]
    assert scheme.instances == 4
    assert 550 < steps[1].moved < 650  # of 800 copies


def test_a_biclique_that_grows_moves_the_new_members_share_only() -> None:
    rows = Rows.of([Side.LEFT] * 3000, np.arange(3000), np.arange(3000.0))
    scheme = BicliqueScheme(members=2, capacity_rows=1000)
    run_ = run(scheme, rows, interval_rows=3000)
    assert scheme.instances == 5
    assert 850 < run_.steps[0].moved < 1150


def test_work_waits_where_the_rows_come_faster_than_the_slowest_instance_takes_them() -> None:
    rows = skewed(1000, 11)
    slow, fast = (
        run_join(rows, KeyedScheme("kg", 2), Equal(), interval_rows=100, costs=Costs(receive_s=cost_s))
        for cost_s in (0.05, 1e-6)
    )
    assert fast.latency_s == [0.0] * 10
    assert all(now < later for now, later in pairwise(slow.latency_s))
    assert slow.throughput < 1000 / 10 < fast.throughput


@pytest.mark.parametrize("scheme", ["mnrt", "dynamic", "bi6"])
def test_the_same_rows_give_the_same_run(scheme: str) -> None:
    first, second = (run(SCHEMES[scheme](Equal()), skewed(600, 13)) for _ in range(2))
    assert first.makespan_s == second.makespan_s
    assert [s.received.tolist() for s in first.steps] == [s.received.tolist() for s in second.steps]


def test_rows_and_settings_that_make_no_sense_are_refused() -> None:
    rows = skewed(10, 0)
    with pytest.raises(ConfigError, match="interval has at least one row"):
        run_join(rows, MatrixScheme(), Equal(), interval_rows=0)
    with pytest.raises(ConfigError, match="no rows to join"):
        run_join(Rows.of([], [], []), MatrixScheme(), Equal(), interval_rows=5)
    with pytest.raises(ConfigError, match="window is a number of seconds"):
        run_join(rows, MatrixScheme(), Equal(), interval_rows=5, window_s=float("nan"))
    with pytest.raises(ConfigError, match="in the order of their times"):
        Rows.of([Side.LEFT, Side.LEFT], [1, 1], [2.0, 1.0])
    with pytest.raises(ConfigError, match="left or of the right"):
        Rows.of([Side.BOTH], [1], [2.0])
    with pytest.raises(ConfigError, match="groups with members"):
        BicliqueScheme(0)
