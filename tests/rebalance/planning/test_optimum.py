"""Small problems against the exact optimum, and what LAG and the portfolio promise beside others."""

from __future__ import annotations

import numpy as np
import pytest

import ckpt.rebalance as rb
from tests.rebalance.planning.instances import Case

pytest.importorskip("highspy")


def drifted(seed: int, *, tight: bool, keys: int = 30, instances: int = 5) -> Case:
    """A balanced placement whose loads then change: half of what one instance has goes to another."""
    rng = np.random.default_rng(seed)
    cost = np.round(10_000 / np.arange(1, keys + 1) ** 0.85)
    cost = rng.permutation(np.minimum(cost, np.floor(0.8 * cost.sum() / instances)))
    home = rng.integers(0, instances, keys)
    old = np.round(cost * rng.uniform(1, 5, keys))
    identity = np.arange(1, keys + 1, dtype=np.uint64)
    balanced = rb.plan(rb.Loads(identity, cost, old, home, home=home), "mixed", instances=instances)
    place, limit = balanced.place.copy(), len(balanced.table) if tight else None
    source, target = rng.permutation(instances)[:2]
    ours, theirs = np.flatnonzero(place == source), np.flatnonzero(place == target)
    swapped = min(len(ours), len(theirs)) // 2 + 1
    heavy, light = ours[np.argsort(-cost[ours])][:swapped], theirs[np.argsort(cost[theirs])][:swapped]
    both = min(len(heavy), len(light))
    cost[heavy[:both]], cost[light[:both]] = cost[light[:both]].copy(), cost[heavy[:both]].copy()
    state = old + np.round(cost * rng.uniform(1, 5, keys))
    loads = rb.Loads(identity, cost, state, place, home=home)
    return Case(loads, {"instances": instances, "theta": 0.08, "table_limit": limit})


@pytest.mark.parametrize(("tight", "mean", "infeasible"), [(False, 1.02, 0), (True, 1.05, 1)])
def test_lag_is_near_the_optimum(tight: bool, mean: float, infeasible: int) -> None:
    ratios, failed = [], 0
    for seed in range(12):
        case = drifted(seed, tight=tight)
        best = case.plan("exact")
        if best.status is not rb.Status.OK or not best.migrated_bytes:
            continue
        plan = case.plan("lag")
        if plan.status is rb.Status.OK:
            ratios.append(plan.migrated_bytes / best.migrated_bytes)
        else:
            failed += 1
        assert best.lower_bound <= best.migrated_bytes * (1 + 1e-6)
    assert len(ratios) >= 6
    assert min(ratios) > 1 - 1e-6, "less than the optimum"
    assert np.mean(ratios) <= mean
    assert failed <= infeasible


@pytest.mark.parametrize("seed", range(5))
def test_the_portfolio_is_never_worse_than_mixed(seed: int) -> None:
    case = drifted(seed, tight=True)
    ours, theirs = case.plan("portfolio"), case.plan("mixed")
    if theirs.status is rb.Status.OK:
        assert ours.status is rb.Status.OK
        assert ours.migrated_bytes <= theirs.migrated_bytes


def test_lag_moves_less_state_than_mixed_within_the_same_table() -> None:
    rng = np.random.default_rng(5)
    count, instances = 20_000, 15
    cost = rng.permutation(np.round(1e6 / np.arange(1, count + 1) ** 0.85) + 1)
    home = rng.integers(0, instances, count)
    shifted = np.where((home == 3) & (rng.random(count) < 0.5), 4, home)
    loads = rb.Loads(
        np.arange(count, dtype=np.uint64), cost, cost * rng.uniform(1, 9, count), shifted, home=home
    )
    limit = int((shifted != home).sum()) - 100
    lag = rb.plan(loads, "lag", instances=instances, table_limit=limit)
    mixed = rb.plan(loads, "mixed", instances=instances, table_limit=limit)
    assert lag.status is rb.Status.OK
    assert len(lag.table) <= limit
    assert lag.migrated_bytes <= mixed.migrated_bytes


@pytest.mark.parametrize("planner", ["lag", "portfolio"])
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_table_that_is_too_small_is_kept_and_the_loads_are_told(planner: str, limit: int) -> None:
    rng = np.random.default_rng(limit)
    home = np.minimum(rng.integers(0, 9, 300), 4)
    loads = rb.Loads(np.arange(300, dtype=np.uint64), rng.uniform(1, 2, 300), np.ones(300), home, home=home)
    plan = rb.plan(loads, planner, instances=5, table_limit=limit)
    assert plan.status is rb.Status.BEST_EFFORT
    assert len(plan.table) <= limit
    assert "instance 4" in plan.reason


def test_giants_are_parted_pinned_and_told() -> None:
    loads = rb.Loads(
        ["a", "b", "c", "d", "e"],
        [100, 90, 5, 5, 5],
        [10, 99, 1, 1, 1],
        [0, 0, 0, 1, 2],
        home=[0, 0, 0, 1, 2],
    )
    plan = rb.plan(loads, "lag", instances=3)
    assert plan.status is rb.Status.GIANT
    assert "'a'" in plan.reason
    assert plan.place[1] == 0, "the giant with the most state stays"
    assert plan.place[0] != 0
    assert len(rb.plan(plan.applied(), "lag", instances=3, table=plan.table).moves) == 0


def test_instances_that_are_given_up_are_emptied() -> None:
    rng = np.random.default_rng(0)
    loads = rb.Loads(np.arange(200, dtype=np.uint64), np.ones(200), np.ones(200), rng.integers(0, 6, 200))
    plan = rb.plan(loads, "lag", instances=4)
    assert plan.status is rb.Status.OK
    assert plan.place.max() < 4
    assert plan.loads_before[4:].sum() > 0


def test_entries_of_keys_without_load_stay_and_count() -> None:
    loads = rb.Loads(np.array([1, 2, 3], np.uint64), [9, 9, 1], [1, 1, 1], [0, 0, 1], home=[0, 0, 1])
    table = rb.RoutingTable(2, np.array([8], np.uint64), np.array([1]))
    free = rb.plan(loads, "mixed", instances=2, theta=0.2, table=table)
    assert set(free.table.keys.tolist()) > {8}
    full = rb.plan(loads, "mixed", instances=2, theta=0.2, table=table, table_limit=1)
    assert full.status is rb.Status.INFEASIBLE
    assert not full.applicable
