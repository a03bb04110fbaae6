"""Who does what, where: loads per key, routing by key, plans that move as little state as they can.

Needs numpy alone, and knows no backend and no Spark: loads go in as arrays, plans come out as arrays.
"""

# Loads and routing.
from ckpt.rebalance.files import from_arrow, read_loads
from ckpt.rebalance.importance import Importance
from ckpt.rebalance.loads import Loads

# Planning.
from ckpt.rebalance.planning import (
    Kind,
    Moves,
    Placement,
    Plan,
    PlannerError,
    Problem,
    Splits,
    Status,
    plan,
    planner,
    planner_names,
)
from ckpt.rebalance.reports import Report, loads_of
from ckpt.rebalance.routing import Places, Router
from ckpt.rebalance.sketch import LoadSketch
from ckpt.rebalance.table import RoutingTable, Side, Split
from ckpt.rebalance.window import Window, merge

__all__ = ["Importance", "LoadSketch", "Loads", "Places", "Report", "Router", "RoutingTable", "Side", "Split"]
__all__ += ["Window", "from_arrow", "loads_of", "merge", "read_loads"]
__all__ += ["Kind", "Moves", "Placement", "Plan", "PlannerError", "Problem", "Splits", "Status"]
__all__ += ["plan", "planner", "planner_names"]
