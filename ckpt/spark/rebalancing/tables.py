"""The routing tables of a query, in the backend that holds its state.

They are the rows of the namespace `rebalance/<query>`, one for each group of operators: the stateful
operators whose rows come from the same exchange, called by the smallest of their numbers.

```
key             value
table/<group>   the bytes of a `ckpt.rebalance.RoutingTable`, without names
```

The session that runs the query reads them before each batch (`RouteState.scala`), so a table is effective
from the next batch on. A table that is not there places keys as Spark does. Each write is one version of the
namespace, so earlier tables can be read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ckpt.contract.backend import Backend
from ckpt.contract.opening import open_to_write
from ckpt.contract.versions import Commit
from ckpt.rebalance import RoutingTable
from ckpt.sidecar.client import SidecarClient
from ckpt.sidecar.life import Place, answers

KEPT_VERSIONS = 100
"""How many writes stay readable."""


class QueryTables:
    """The routing tables of one query; what is written is durable when the call returns.

    Examples
    --------
    >>> import ckpt, numpy as np
    >>> from ckpt.rebalance import RoutingTable
    >>> with ckpt.open_backend("memory://") as backend:
    ...     tables = QueryTables(backend, "1c7f0a52-0000-0000-0000-000000000000")
    ...     written = tables.write(0, RoutingTable(4, np.array([9], np.uint64), np.array([3])))
    ...     written.version, tables.read(0).active.tolist(), tables.read(1)
    (1, [3], None)
    """

    def __init__(self, store: Backend | SidecarClient, query: str) -> None:
        self.namespace = f"rebalance/{query}"
        self._store = store

    def read(self, group: int) -> RoutingTable | None:
        """The table of a group of operators; None if its keys are where Spark's hash places them."""
        found = self._store.get_many(self.namespace, [_key(group)])
        return RoutingTable.from_bytes(found[_key(group)]) if found else None

    def write(self, group: int, table: RoutingTable) -> RoutingTable:
        """Make this the table of a group from the next batch on; the table as it was numbered."""
        version = max((commit.version for commit in self._commits()), default=0) + 1
        written = replace(table, version=version, names=None)
        self._store.commit(self.namespace, version, {_key(group): written.to_bytes()})
        if version > KEPT_VERSIONS:
            self._store.truncate(self.namespace, version - KEPT_VERSIONS)
        return written

    def _commits(self) -> Iterable[Commit]:
        if isinstance(self._store, SidecarClient):
            return self._store.history(self.namespace).commits
        return self._store.history(self.namespace).commits()


@contextmanager
def open_tables(address: str, query: str) -> Iterator[QueryTables]:
    """The tables of a query, whether it runs on this host or not.

    A log has one writer. While the query runs that is its sidecar, which then does what is asked here.
    """
    place = Place.of(address)
    store = SidecarClient(place.socket) if answers(place) else open_to_write(address)
    with contextlib.closing(store):
        yield QueryTables(store, query)


def _key(group: int) -> bytes:
    return b"table/%d" % group
