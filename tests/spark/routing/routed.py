"""Queries whose keys get another routing table before each file, and are looked at after it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckpt.contract.opening import open_to_read
from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import open_tables
from ckpt.spark.rebalancing.placement import misplaced, rows_of
from tests.effort import SEED
from tests.spark.conftest import SHUFFLE_PARTITIONS, STATE_STORE
from tests.spark.operators import FILES, LAST, SCHEMA, Operator, is_right
from tests.spark.operators import rows_of as rows_of_file
from tests.spark.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

MODE = f"{STATE_STORE}.ckpt.rebalance.mode"
SETTINGS_BY_CLOCK = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def routing_session(spark: SparkSession, **settings: str) -> SparkSession:
    """A session of its own settings whose queries are routed."""
    session = spark.newSession()
    for name, value in {MODE: "apply", **settings}.items():
        session.conf.set(name, value)
    return session


class RoutedQuery:
    """A query that is started anew for each file; after each one its keys are looked at and placed anew."""

    def __init__(self, spark: SparkSession, address: str, folder: Path, operator: Operator) -> None:
        self.misplaced: list[object] = []
        self.moved = 0
        self._address = address
        self._random = random.Random(f"{SEED} {operator.name}")
        self.rows, self.right = (Stream(spark, folder / name, SCHEMA) for name in ("rows", "right"))
        for file in (*map(rows_of_file, range(FILES)), LAST):
            self.rows.feed(file)
            self.right.feed([row for row in file if is_right(row)])
            query = self.rows.run(operator.query(self.rows.stream(), self.right.stream()), operator.mode)
            self.moved += moved_rows(query)
            found, hashes = look(address, str(query.id))
            self.misplaced += found
            place(address, str(query.id), hashes, self._table)

    def _table(self, hashes: list[int]) -> RoutingTable:
        """Places for half of the keys, over all partitions or fewer."""
        instances = self._random.randint(1, SHUFFLE_PARTITIONS)
        chosen = [key for key in hashes if self._random.random() < 0.5]
        places = [self._random.randrange(instances) for _ in chosen]
        return RoutingTable(instances, np.array(chosen, np.uint64), np.array(places, np.int32))

    @property
    def batches(self) -> list[list[Row]]:
        """What each batch has put out."""
        return self.rows.batches


def moved_rows(query: Any) -> int:
    """How many rows came to a partition from another one."""
    states = [state for progress in query.recentProgress for state in progress["stateOperators"]]
    return sum(state["customMetrics"]["ckptMovedRows"] for state in states)


def look(address: str, query: str) -> tuple[list[object], dict[int, list[int]]]:
    """The rows that are not where their table says, and the hashes of the keys of each operator."""
    hashes: dict[int, set[int]] = {}
    with open_to_read(address) as backend:
        for rows, _ in rows_of(backend, query):
            hashes.setdefault(rows.store.operator, set()).update(rows.hashes.tolist())
        return list(misplaced(backend, query)), {op: sorted(known) for op, known in hashes.items()}


def place(
    address: str,
    query: str,
    hashes: dict[int, list[int]],
    table_for: Callable[[list[int]], RoutingTable],
) -> None:
    """Give each operator the table that is made for its hashes."""
    with open_tables(address, query) as tables:
        for operator, known in hashes.items():
            tables.write(operator, table_for(known))
