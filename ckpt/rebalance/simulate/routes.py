"""Who gets how much of an interval: by a routing table, or by a rule that looks at every tuple."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import ckpt.rebalance.planning as planning
from ckpt.rebalance.loads import F64, I32
from ckpt.rebalance.simulate.interval import Interval
from ckpt.rebalance.table import I64, RoutingTable


@dataclass(frozen=True, eq=False)
class Parts:
    """Columns of what instances get: a key has a row for each instance that gets some of its tuples.

    The tuples of a key may add up to more than came of it, where tuples are copied.
    """

    key: I64
    """The key's position in the interval."""
    instance: I32
    tuples: F64
    work: F64


Route = Callable[[Interval], Parts]
"""Divides an interval among the instances; the same interval is always divided alike."""


@dataclass(frozen=True, slots=True, eq=False)
class ByTable:
    """Every key goes where a table says; a split key goes to its parts by their shares."""

    table: RoutingTable

    def __call__(self, interval: Interval) -> Parts:
        """One row for each key, or for each part of a split one."""
        key, instance, share = self.table.shares(interval.loads(self.table.place(interval.keys)))
        return Parts(key, instance, interval.tuples[key] * share, interval.cost[key] * share)


@dataclass(frozen=True, slots=True, eq=False)
class ByRule:
    """A planner whose rule every sender knows, as `pkg`, sees tuples as they come, not an interval later."""

    planner: str
    instances: int

    def __call__(self, interval: Interval) -> Parts:
        """The shares to which the rule leads for just these tuples; no state is moved."""
        home = RoutingTable(self.instances).place(interval.keys)
        made = planning.plan(interval.loads(home), self.planner, instances=self.instances, theta=0)
        whole = np.setdiff1d(np.arange(len(interval)), made.splits.key)
        shares = made.splits.shares[made.splits.pattern]
        row, part = np.nonzero(shares)
        key = np.concatenate([whole, made.splits.key[row]])
        share = np.concatenate([np.ones(len(whole)), shares[row, part]])
        instance = np.concatenate([made.place[whole], part.astype(np.int32)])
        return Parts(key, instance, interval.tuples[key] * share, interval.cost[key] * share)
