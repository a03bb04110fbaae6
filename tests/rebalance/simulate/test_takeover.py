"""Replicas as a recovery of the fluid simulator: keys go on elsewhere, sooner than from a store."""

from __future__ import annotations

import numpy as np
import pytest

from ckpt.errors import ConfigError
from ckpt.rebalance import Importance, Router, RoutingTable
from ckpt.rebalance.simulate import (
    Balancing,
    Cluster,
    Crash,
    Failure,
    FromStore,
    Interval,
    Network,
    Recovery,
    Result,
    run,
)
from ckpt.rebalance.simulate.replicas import FromReplicas
from tests.rebalance.simulate.streams import skewed

CLUSTER = Cluster(4, interval_s=10.0, max_pending=200.0, network=Network(latency_s=0.01))
DIED = Failure(22.0, 1)
STATE_BYTES = 1_000_000


def crash(instances: int = 4) -> Crash:
    table = RoutingTable(instances)
    (interval,) = skewed(3, 1, keys=100)
    cluster = Cluster(instances, network=Network(latency_s=0.01))
    return Crash(DIED, interval.loads(table.place(interval.keys)), table, np.zeros(instances), cluster)


def simulated(recovery: Recovery) -> Result:
    heavy = [
        Interval(each.keys, each.tuples, each.cost, each.state * STATE_BYTES / 50)
        for each in skewed(5, 6, keys=400)
    ]
    return run(heavy, CLUSTER, Balancing("mixed"), failures=[DIED], recovery=recovery)


def test_keys_of_the_dead_instance_go_on_where_their_backups_are() -> None:
    failed = crash()
    importance = Importance(default=2)
    found = FromReplicas(importance)(failed)
    assert found.table is not None
    mine = failed.loads.keys[failed.loads.instance == 1]
    assert sorted(found.keys.tolist()) == sorted(mine.tolist())
    backups = Router(failed.table, importance).route(mine).backups
    assert (found.table.place(mine)[:, None] == backups).any(axis=1).all()
    others = np.setdiff1d(failed.loads.keys, mine)
    assert found.table.place(others).tolist() == failed.table.place(others).tolist()
    assert found.resume_s == pytest.approx(22.0 + 0.5 + 0.03, abs=1e-3)


def test_keys_without_replicas_are_read_on_several_instances() -> None:
    failed = crash()
    found = FromReplicas(Importance(), read_bytes_s=1000.0)(failed)
    assert found.table is not None
    assert set(found.table.place(found.keys).tolist()) == {0, 2, 3}
    assert (found.resume_s > FromReplicas()(failed).resume_s.max()).all()
    assert found.until_s < 22.5 + failed.lost_bytes / 1000.0


def test_a_failure_costs_less_throughput_and_latency_than_with_a_store() -> None:
    replicas, spread, stored = map(
        simulated, (FromReplicas(), FromReplicas(Importance()), FromStore(detect_s=0.5))
    )
    for each in (replicas, spread, stored):
        assert each.processed + each.records[-1].pending == pytest.approx(6000.0)
    latency_s = [float(each.column("latency_s")[2]) for each in (replicas, spread, stored)]
    assert latency_s[0] < latency_s[1] / 3 < latency_s[2] / 9
    assert replicas.records[2].throughput > stored.records[2].throughput


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is one instance"):
        FromReplicas()(crash(1))
    with pytest.raises(ConfigError, match="detect_s and then restart_s"):
        FromReplicas(detect_s=2.0, restart_s=1.0)
