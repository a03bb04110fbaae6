"""Who does what, where: loads per key, routing by key, plans that move as little state as they can.

Needs numpy alone, and knows no backend and no Spark: loads go in as arrays, plans come out as arrays.
"""

# Loads and routing.
from ckpt.rebalance.importance import Importance
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.routing import Router
from ckpt.rebalance.table import RoutingTable, Side, Split

__all__ = ["Importance", "Loads", "Router", "RoutingTable", "Side", "Split"]
