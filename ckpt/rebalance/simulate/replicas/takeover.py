"""Replicas as a recovery of the fluid simulator: `run(…, recovery=FromReplicas(importance))`.

Here tuples are a fluid, as everywhere in `simulate`: it has back pressure, which `replicate` does not have;
single tuples, their versions and the work of backups are what `replicate` has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.importance import Importance
from ckpt.rebalance.loads import F64, I32, Loads
from ckpt.rebalance.routing import Router, preferred
from ckpt.rebalance.simulate.engine import Halt
from ckpt.rebalance.simulate.failing import Crash, Recovered
from ckpt.rebalance.simulate.replicas.recovery import VERSION_BYTES
from ckpt.rebalance.table import NO_BACKUP, RoutingTable


@dataclass(frozen=True)
class FromReplicas:
    """Keys of a dead instance go on where they have a backup; those without are read from a store elsewhere.

    The instance starts again without any state, and gets keys by later plans; keys that are new wait for it.
    With one instance its keys have nowhere to go, which is refused.
    """

    importance: Importance = field(default_factory=lambda: Importance(default=1))
    detect_s: float = 0.5
    restart_s: float = 10.0
    """From the failure until the instance is there again."""
    read_bytes_s: float = 100e6
    """From the store, on each instance."""

    def __post_init__(self) -> None:
        if not (0 <= self.detect_s <= self.restart_s < math.inf and 0 < self.read_bytes_s < math.inf):
            raise ConfigError("detect_s and then restart_s must be from 0, and read_bytes_s above 0")

    def __call__(self, crash: Crash) -> Recovered:
        """The three steps of ftlb-2019 §3.2: triggered, confirmed downstream, recovered."""
        at_s, dead, network = crash.failure.at_s, crash.failure.instance, crash.cluster.network
        if crash.table.instances < 2:
            raise ConfigError("keys of a dead instance cannot go anywhere: there is one instance")
        loads = crash.loads.take(np.flatnonzero(crash.loads.instance == dead))
        backup = Router(crash.table, self.importance).route(loads.keys, _names(loads)).backups
        held = (backup != NO_BACKUP).any(axis=1)
        target = _elsewhere(loads, crash.table, dead)
        if held.any():
            target[held] = backup[held, 0]
        triggered_s = at_s + self.detect_s + network.latency_s
        confirmed_s = triggered_s + 2 * network.latency_s
        confirmed_s += VERSION_BYTES * len(loads) / network.bandwidth_bytes_s
        bytes_ = np.bincount(target[~held], weights=loads.state[~held], minlength=crash.table.instances)
        read_s: F64 = triggered_s + bytes_[target] / self.read_bytes_s
        return Recovered(
            [Halt(dead, at_s, at_s + self.restart_s)],
            _moved(crash.table, loads, target),
            loads.keys,
            np.where(held, confirmed_s, read_s),
        )


def _names(loads: Loads) -> list[str | bytes | None] | None:
    return None if loads.names is None else loads.names.tolist()


def _elsewhere(loads: Loads, table: RoutingTable, dead: int) -> I32:
    """The first instance of each key's own order that lives."""
    order = preferred(loads.keys, table.instances, min(2, table.instances - 1))
    home = table.place(loads.keys)
    rest = order[:, -1] if order.shape[1] > 1 else (home + 1) % np.int32(table.instances)
    return np.asarray(np.where(order[:, 0] == dead, rest, order[:, 0]), np.int32)


def _moved(table: RoutingTable, loads: Loads, target: I32) -> RoutingTable:
    """The table with these keys at their new instances; keys that never came keep their home."""
    stays = ~np.isin(table.keys, loads.keys)
    return RoutingTable(
        table.instances,
        np.concatenate([table.keys[stays], loads.keys]),
        np.concatenate([table.active[stays], target]),
        splits=table.splits,
        version=table.version + 1,
        effective_from=table.effective_from,
    )
