"""Replicas agree version by version, and no failure loses a tuple or applies one twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance import Importance, Router, RoutingTable
from ckpt.rebalance.hashing import mixed
from ckpt.rebalance.simulate import Failure, Network
from ckpt.rebalance.simulate.replicas import (
    Copies,
    Direction,
    Settings,
    Synchronisation,
    Tuples,
    recover,
    released,
    reload_task,
    replicate,
)
from ckpt.rebalance.table import NO_BACKUP

KEYS = mixed(np.arange(1, 21, dtype=np.uint64))
MODES = list(Synchronisation)


def stream(count: int = 600, seed: int = 0, rate: float = 1000.0) -> Tuples:
    """Tuples at random times, some keys more often than others."""
    draw = np.random.default_rng(seed)
    weights = np.arange(1.0, len(KEYS) + 1) ** -0.8
    chosen = KEYS[draw.choice(len(KEYS), count, p=weights / weights.sum())]
    return Tuples.of(chosen, np.cumsum(draw.exponential(1 / rate, count) + 1e-9))


def router(replicas: int = 1, instances: int = 5) -> Router:
    return Router(RoutingTable(instances), Importance(default=replicas))


def places(copies: Copies, key: int) -> list[int]:
    """Its active instance, then its backups."""
    found = copies.router.route(np.array([key], np.uint64))
    return [int(found.active[0]), *(int(b) for b in found.backups[0] if b != NO_BACKUP)]


CAREFUL = Settings(buffer_tuples=600)
"""The buffer holds the whole stream, so that nothing is out of order."""


@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 100), replicas=st.integers(1, 3), jitter_s=st.sampled_from([0.0, 1e-3, 0.05]))
@settings(max_examples=10, deadline=None)
def test_a_backup_at_a_version_equals_the_active_instance_at_it(
    mode: Synchronisation, seed: int, replicas: int, jitter_s: float
) -> None:
    tuples = stream(300, seed)
    options = Settings(jitter_s=jitter_s, buffer_tuples=300, seed=seed)
    copies = replicate(tuples, router(replicas), mode, options)
    for key in KEYS.tolist():
        every = np.flatnonzero(tuples.keys == np.uint64(key)).tolist()
        for place in places(copies, key):
            assert copies.history(key, place).tolist() == every


@given(seed=st.integers(0, 100), at_s=st.floats(0.0, 0.6))
@settings(max_examples=20, deadline=None)
def test_with_process_synchronisation_replicas_never_differ(seed: int, at_s: float) -> None:
    copies = replicate(
        stream(seed=seed), router(2), Synchronisation.PROCESS, Settings(jitter_s=0.02, seed=seed)
    )
    for key in KEYS.tolist():
        assert len({copies.version(key, place, at_s) for place in places(copies, key)}) == 1


@pytest.mark.parametrize("mode", MODES)
@given(
    seed=st.integers(0, 1000),
    at_s=st.floats(0.0, 0.7),
    instance=st.integers(0, 4),
    replicas=st.integers(0, 2),
)
@settings(max_examples=25, deadline=None)
def test_no_tuple_is_lost_or_applied_twice_across_a_failure(
    mode: Synchronisation, seed: int, at_s: float, instance: int, replicas: int
) -> None:
    tuples = stream(seed=seed)
    options = Settings(jitter_s=5e-3, buffer_tuples=600, seed=seed, detect_s=0.05, checkpoint_s=0.1)
    copies = replicate(tuples, router(replicas), mode, options, Failure(at_s, instance))
    found = recover(copies)
    assert (found.lost, found.repeated) == (0, 0)
    assert np.isfinite(found.delivered_s).all()
    assert (found.delivered_s > tuples.time_s).all()
    assert (found.took_s >= options.detect_s).all()
    for key, direction, target in zip(found.keys.tolist(), found.direction, found.target, strict=True):
        assert places(copies, key)[0] == instance
        assert target != instance
        if direction == Direction.STORE:
            assert replicas == 0
            continue
        had, goes_on = copies.history(key, instance), copies.history(key, int(target))
        downstream = goes_on if direction == Direction.AHEAD else [*had, *goes_on[len(had) :]]
        assert list(downstream) == np.flatnonzero(tuples.keys == np.uint64(key)).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_results_of_other_instances_do_not_wait_for_a_recovery(mode: Synchronisation) -> None:
    tuples, without = stream(), router(0)
    calm = replicate(tuples, without, mode, CAREFUL)
    failed = replicate(tuples, without, mode, CAREFUL, Failure(0.3, 2))
    found = recover(failed)
    others = ~np.isin(tuples.keys, found.keys)
    assert others.any()
    assert (found.delivered_s - tuples.time_s)[others] == pytest.approx(
        calm.latency_s[others] + CAREFUL.network.latency_s
    )


def directions(settings_: Settings, mode: Synchronisation) -> set[str]:
    found: set[str] = set()
    for instance in range(5):
        copies = replicate(stream(), router(), mode, settings_, Failure(0.3, instance))
        found |= set(recover(copies).direction.tolist())
    return found


def test_a_backup_can_be_behind_and_ahead_and_is_neither_when_it_keeps_step() -> None:
    quick = Settings(jitter_s=0.02, buffer_tuples=64, detect_s=0.0, network=Network(latency_s=1e-4))
    assert directions(quick, Synchronisation.ORDER) == {"behind", "level", "ahead"}
    assert "behind" not in directions(quick, Synchronisation.PROCESS)


def test_an_active_instance_that_fell_behind_is_replaced_by_its_backup_which_is_ahead() -> None:
    slow_key, busy_key = 5, 10  # both active on instance 0 of 5
    table = RoutingTable(5, np.array([slow_key, busy_key], np.uint64), np.array([0, 0]), np.array([[1], [2]]))
    keys = [busy_key] * 200 + [slow_key] * 5
    tuples = Tuples.of(keys, np.arange(len(keys)) * 1e-4 + 1e-4)
    options = Settings(jitter_s=0.0, buffer_tuples=0, detect_s=0.01)
    copies = replicate(tuples, Router(table), Synchronisation.ORDER, options, Failure(0.1, 0))
    found = recover(copies)
    ahead = found.direction[found.keys == slow_key]
    assert ahead.tolist() == [Direction.AHEAD]
    assert copies.version(slow_key, 0, 0.1) == 0
    assert copies.version(slow_key, 1, 0.1) == 5
    assert found.loaded_bytes[found.keys == slow_key].tolist() == [5 * options.tuple_bytes]


def test_too_small_a_buffer_lets_replicas_diverge_and_a_recovery_says_what_it_gets_wrong() -> None:
    def wrong(buffer_tuples: int) -> int:
        count = 0
        for seed in range(20):
            options = Settings(jitter_s=0.1, buffer_tuples=buffer_tuples, detect_s=0.0, seed=seed)
            copies = replicate(stream(seed=seed), router(), Synchronisation.ORDER, options, Failure(0.3, 1))
            found = recover(copies)
            count += found.lost + found.repeated
        return count

    assert wrong(0) > 0 == wrong(600)


def test_stronger_synchronisation_takes_longer_without_a_failure() -> None:
    options = Settings(jitter_s=5e-3, buffer_tuples=16)
    means = [float(replicate(stream(), router(), mode, options).latency_s.mean()) for mode in MODES]
    assert means == sorted(means)
    assert means[0] < means[2]


def test_a_larger_buffer_makes_tuples_wait_longer() -> None:
    means = [
        float(
            replicate(stream(), router(), Synchronisation.ORDER, Settings(buffer_tuples=b)).latency_s.mean()
        )
        for b in (0, 8, 64)
    ]
    assert means[0] < means[1] < means[2]


def test_keys_with_replicas_come_back_sooner_and_a_whole_task_last() -> None:
    tuples = stream(4000, 3)
    importance = Importance.parse("\n".join(f"[[keys]]\nhash = {key}\nreplicas = 1" for key in KEYS[::2]))
    options = Settings(checkpoint_s=2.0, tuple_bytes=100_000, detect_s=0.1)
    copies = replicate(
        tuples, Router(RoutingTable(4), importance), Synchronisation.ORDER, options, Failure(3.5, 0)
    )
    by_key, whole = recover(copies), reload_task(copies)
    assert set(by_key.replicas.tolist()) == {0, 1}
    assert by_key.mean_s(1) < by_key.mean_s(0) < whole.mean_s()
    assert by_key.mean_s(1) < 0.2
    assert np.isnan(by_key.mean_s(7))
    assert whole.target.tolist() == [4] * len(whole.keys)
    assert np.isfinite(whole.delivered_s).all()
    during = (3.5, 3.5 + whole.mean_s())
    assert by_key.throughput(*during) > whole.throughput(*during)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30), st.integers(0, 40))
@settings(deadline=None)
def test_a_buffer_releases_every_tuple_once_and_not_before_it_came(arrivals: list[float], size: int) -> None:
    numbers, arrival_s = np.arange(len(arrivals)), np.array(arrivals)
    order, at_s = released(numbers, arrival_s, size)
    assert sorted(order.tolist()) == numbers.tolist()
    assert (at_s >= arrival_s[order]).all()
    assert (np.diff(at_s) >= 0).all()
    if size >= len(arrivals):
        assert order.tolist() == numbers.tolist()


def test_the_same_seed_gives_the_same_copies() -> None:
    first, second = (
        recover(replicate(stream(), router(), Synchronisation.ORDER, Settings(seed=7), Failure(0.2, 0)))
        for _ in range(2)
    )
    assert first.took_s.tolist() == second.took_s.tolist()
    assert first.delivered_s.tolist() == second.delivered_s.tolist()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="times must rise"):
        Tuples.of([1, 2], [1.0, 1.0])
    with pytest.raises(ConfigError, match="do not fit"):
        Tuples.of([1, 2], [1.0])
    with pytest.raises(ConfigError, match="no tuples"):
        replicate(Tuples.of([], []), router(), Synchronisation.ORDER)
    with pytest.raises(ConfigError, match="instance 9 cannot fail"):
        replicate(stream(10), router(), Synchronisation.ORDER, failure=Failure(0.0, 9))
    with pytest.raises(ConfigError, match="nothing failed"):
        recover(replicate(stream(10), router(), Synchronisation.ORDER))
    with pytest.raises(ConfigError, match="jitter_s must be from 0"):
        Settings(jitter_s=-1.0)
    with pytest.raises(ConfigError, match="checkpoint_s must be above 0"):
        Settings(checkpoint_s=0.0)
    with pytest.raises(ConfigError, match="at least 0 tuples"):
        released(np.arange(1), np.zeros(1), -1)
