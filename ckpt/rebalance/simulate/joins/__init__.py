"""A join of two streams on parallel instances, row by row: who stores, who compares, what moves and when.

Guarantees that each pair of rows that must meet within the window is found exactly once, under every scheme
and across every change of its routing. Knows no file, no store and no Spark.
"""

from ckpt.rebalance.simulate.joins.engine import Costs, JoinRun, Step, run_join
from ckpt.rebalance.simulate.joins.keyed import KeyedScheme
from ckpt.rebalance.simulate.joins.rows import Rows
from ckpt.rebalance.simulate.joins.scheme import Change, Scheme, Stored
from ckpt.rebalance.simulate.joins.unkeyed import BicliqueScheme, MatrixScheme

__all__ = ["BicliqueScheme", "Change", "Costs", "JoinRun", "KeyedScheme", "MatrixScheme", "Rows", "Scheme"]
__all__ += ["Step", "Stored", "run_join"]
