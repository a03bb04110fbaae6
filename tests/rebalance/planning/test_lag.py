"""What LAG does where its table is full: entries become free, and what moves stays near the bound."""

from __future__ import annotations

import numpy as np
import pytest

import ckpt.rebalance as rb
from ckpt.rebalance.simulate.generators import DriftingZipf

HEAVY, LIGHT = 30.0, 1.0
FULL = 1400.0
"""What each of the instances 1 to 3 carries: 200 light keys of each other's, and heavy ones of their own."""


def full_homes() -> rb.Loads:
    """Instance 0 has too much, 1 to 3 are full and hold each other's light keys, 4 has room."""
    cost: list[float] = []
    instance: list[int] = []
    home: list[int] = []

    def add(count: int, each: float, at: int, of: int) -> None:
        cost.extend([each] * count)
        instance.extend([at] * count)
        home.extend([of] * count)

    add(50, HEAVY, 0, 0)
    for d in (1, 2, 3):
        add(200, LIGHT, d, 1 + d % 3)
        add(40, HEAVY, d, d)
    add(30, HEAVY, 4, 4)
    state = np.where(np.array(cost) > LIGHT, 900.0, 20.0)
    return rb.Loads(np.arange(1, len(cost) + 1, dtype=np.uint64), cost, state, instance, home=home)


def test_a_full_table_is_freed_at_homes_without_room() -> None:
    loads = full_homes()
    entries = int((loads.instance != loads.home_of(5)).sum())
    plan = rb.plan(
        loads, "lag", instances=5, theta=FULL / loads.per_instance(5).mean() - 1, table_limit=entries
    )
    assert plan.status is rb.Status.OK, plan.reason
    assert len(plan.table) <= entries
    kinds = plan.moves.kind.tolist()
    assert kinds.count("move back") > kinds.count("move"), "many light keys go home for a few heavy ones"


@pytest.mark.parametrize("pairs", [1, 3])
def test_what_moves_stays_near_the_bound_once_the_table_is_full(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    count, instances, limit = 8000, 8, 250
    cost = rng.permutation(np.round(1e6 / np.arange(1, count + 1) ** 0.85) + 1)
    keys = np.arange(1, count + 1, dtype=np.uint64)
    home = rng.integers(0, instances, count)
    place, moved, bound, plans = home.copy(), 0.0, 0.0, []
    for _ in range(8):
        loads = rb.Loads(keys, cost, cost * rng.uniform(1, 5, count), place, home=home)
        plans.append(plan := rb.plan(loads, "lag", instances=instances, table_limit=limit))
        place, moved, bound = plan.place, moved + plan.migrated_bytes, bound + plan.lower_bound
        for source, target in rng.permutation(instances)[: 2 * pairs].reshape(-1, 2):
            ours, theirs = np.flatnonzero(place == source), np.flatnonzero(place == target)
            both = min(len(ours), len(theirs)) // 3
            heavy, light = ours[np.argsort(-cost[ours])][both // 9 :][:both], theirs[:both]
            cost[heavy], cost[light] = cost[light].copy(), cost[heavy].copy()
    assert max(len(plan.table) for plan in plans) == limit
    assert {plan.status for plan in plans} <= {rb.Status.OK, rb.Status.NOOP}
    assert moved <= 1.4 * bound


def test_a_switch_that_has_no_room_is_not_paid_for_as_a_move() -> None:
    """Half of the overloaded instance's load has backups, on an instance with room for little of it."""
    count = 200
    cost = np.full(count, 10.0)
    state = np.where(np.arange(count) < 40, 1e6, 1000.0)
    instance = np.where(np.arange(count) < 80, 0, 1 + np.arange(count) % 3)
    backups = np.where(np.arange(count) < 40, 1, -1)
    loads = rb.Loads(np.arange(1, count + 1, dtype=np.uint64), cost, state, instance, home=instance)
    plan = rb.plan(loads, "lag", instances=4, theta=0.08, backups=backups)
    assert plan.status is rb.Status.OK
    heavy = plan.moves.at < 40
    assert set(plan.moves.kind[heavy]) == {"switch"}, "what has a backup goes there, or stays"
    assert heavy.sum() > 5
    assert plan.migrated_bytes <= 1000 * (~heavy).sum()


@pytest.mark.parametrize("seed", [3, 6, 7, 10])
def test_limits_are_kept_beside_several_giants(seed: int) -> None:
    """Instances of giants give up nearly all other keys, which a table of 300 entries has hardly room for."""
    rng, count, instances, limit = np.random.default_rng(seed), 2000, 15, 300
    stream = DriftingZipf(keys=count, pairs=3, instances=instances, intervals=6, seed=seed)
    giants = rng.choice(count, 3, replace=False)
    places = [np.empty(0, np.int32)]
    for interval in stream.follow(lambda _: places[-1]):
        cost = interval.cost.copy()
        cost[giants] = cost.sum() / instances * np.linspace(1.2, 3, 3) * rng.uniform(0.9, 1.1, 3)
        if not len(places[-1]):
            places.append(interval.loads(np.zeros(count, np.int32)).home_of(instances))
        loads = rb.Loads(interval.keys, cost, interval.state, places[-1])
        plan = rb.plan(loads, "lag", instances=instances, table_limit=limit)
        assert plan.status is rb.Status.GIANT, plan.reason
        assert len(plan.table) <= limit
        places.append(plan.place)
