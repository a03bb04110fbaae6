"""F(k): for each key the instance that computes (active) and those that hold a replica (backups).

The active instance is what the table says, else the base hash. The backups are what the table's entry says,
else they follow from the key: each key has an order of all instances that only its hash decides, and its
replicas are on the first of that order. ftlb-2019 puts the backup of home d on d + 1; then all replicas of a
failed instance fall on one neighbour, and two balanced instances rarely share keys that could switch roles.

A key that moves to an instance with a replica switches roles with it: the backups are then the instance that
the key came from (its home) and the other replicas, so nothing but the roles changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance.hashing import Name, homes, mixed
from ckpt.rebalance.importance import Importance
from ckpt.rebalance.loads import I32, U64
from ckpt.rebalance.table import NO_BACKUP, RoutingTable, find

_CELLS = 1 << 21
"""How many (key, instance) pairs are ranked at once; bounds the memory of `preferred`."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where keys are: an active instance each, and a row of backups, `NO_BACKUP` where there are fewer."""

    active: I32
    backups: I32


class Router:
    """Routes keys by a table over the base hash; the active instance is never among the backups.

    Examples
    --------
    >>> table = RoutingTable(4, np.array([5], np.uint64), np.array([3]))
    >>> router = Router(table, Importance.parse("replicas = 1"))
    >>> places = router.route(np.array([4, 5], np.uint64))
    >>> places.active.tolist(), places.backups.shape
    ([0, 3], (2, 1))
    """

    def __init__(self, table: RoutingTable, importance: Importance | None = None) -> None:
        self.table = table
        self.importance = Importance() if importance is None else importance

    def route(self, keys: U64, names: Sequence[Name | None] | None = None) -> Places:
        """The places of these keys; with fewer instances than replicas, every other instance is a backup."""
        table = self.table
        active = table.place(keys)
        wanted = np.minimum(self.importance.replicas(keys, names), table.instances - 1)
        at = find(table.keys, keys)
        said = table.backup_columns
        width = max(int(wanted.max(initial=0)), said.shape[1])
        backups = np.full((len(keys), width), NO_BACKUP, np.int32)
        if not width:
            return Places(active, backups)
        listed = np.zeros(len(keys), np.bool_)
        if said.shape[1]:
            listed[at >= 0] = (said[at[at >= 0]] != NO_BACKUP).any(axis=1)
            backups[listed, : said.shape[1]] = said[at[listed]]
        for count in np.unique(wanted[(wanted > 0) & ~listed]).tolist():
            chosen = np.flatnonzero((wanted == count) & ~listed)
            backups[chosen, :count] = derived_backups(keys[chosen], active[chosen], table.instances, count)
        return Places(active, backups)


def derived_backups(keys: U64, active: I32, instances: int, count: int) -> I32:
    """Per key the `count` instances that hold its replicas while it is active at this one."""
    home = homes(keys, instances)
    backups = preferred(keys, instances, count)
    switched = backups == active[:, None]
    return np.where(switched, home[:, None], backups).astype(np.int32)


def preferred(keys: U64, instances: int, count: int) -> I32:
    """Per key the first `count` instances of its own order, which never has its home."""
    chosen = np.empty((len(keys), count), np.int32)
    step = max(1, _CELLS // instances)
    every = mixed(np.arange(1, instances + 1, dtype=np.uint64))
    for start in range(0, len(keys), step):
        block = keys[start : start + step]
        scores = mixed(block[:, None] ^ every[None, :])
        scores[np.arange(len(block)), homes(block, instances)] = np.iinfo(np.uint64).max
        chosen[start : start + step] = np.argsort(scores, axis=1, kind="stable")[:, :count]
    return chosen
