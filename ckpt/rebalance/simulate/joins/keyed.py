"""Joins by key: a routing table, made by a planner, says where the rows of each key are stored."""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.loads import Loads
from ckpt.rebalance.planning import Status, plan
from ckpt.rebalance.simulate.joins.scheme import Change, Stored
from ckpt.rebalance.splitting import Equal, JoinRouter, Predicate, TableRouter
from ckpt.rebalance.table import RoutingTable


class KeyedScheme:
    """Any planner that places keys or splits them: `qmmp`, `mnrt`, and those that move whole keys.

    The load of a key is the rows that it has stored, as mnrt-2017 §3.2 defines it; so an instance is added
    when the stored rows are more than the instances in use can hold, and rows move when an instance holds
    more than (1 + θ) times the mean.

    Parameters
    ----------
    planner
        A registered name.
    instances
        How many there are at first.
    capacity_rows
        What one instance can hold; None: no instance is ever added.
    """

    def __init__(
        self,
        planner: str,
        instances: int,
        *,
        theta: float = 0.1,
        capacity_rows: int | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        self._planner = planner
        self._theta = theta
        self._capacity_rows = capacity_rows
        self._predicate = Equal() if predicate is None else predicate
        self._use(RoutingTable(instances))

    @property
    def instances(self) -> int:
        """How many instances the table routes to."""
        return self.table.instances

    def adapt(self, stored: Stored) -> Change | None:
        """By the planner's next table, if a limit is exceeded."""
        wanted = self._wanted(len(stored))
        keys, counts = np.unique(self._predicate.identities(stored.value), return_counts=True)
        loads = Loads(keys, counts, counts, self.table.place(keys))
        made = plan(loads, self._planner, instances=wanted, theta=self._theta, table=self.table)
        if not made.applicable and wanted == self.instances:
            return None
        assert made.status is not Status.INFEASIBLE  # no limit was given
        self._use(made.table)
        return Change(stored.placed(self.router), made.plan_s)

    def _use(self, table: RoutingTable) -> None:
        self.table = table
        self.router: JoinRouter = TableRouter(table, self._predicate)

    def _wanted(self, rows: int) -> int:
        if self._capacity_rows is None:
            return self.instances
        return max(self.instances, -(-rows // self._capacity_rows))
