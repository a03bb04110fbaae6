"""Rebalancing of running queries: the tables by which their keys are placed, and what their batches cost.

Guarantees that a running query finds its tables in the backend that holds its state. Knows no session of
Spark.
"""

from ckpt.spark.rebalancing.loads import QueryLoads
from ckpt.spark.rebalancing.options import Mode, Rebalance
from ckpt.spark.rebalancing.tables import QueryTables, open_tables

__all__ = ["Mode", "QueryLoads", "QueryTables", "Rebalance", "open_tables"]
