"""Who does what, where: loads per key, routing by key, plans that move as little state as they can.

Needs numpy alone, and knows no backend and no Spark: loads go in as arrays, plans come out as arrays.
"""

from ckpt.rebalance.controller import Controller, ControllerOptions, Decision, Quiet, State
from ckpt.rebalance.files import from_arrow, read_loads
from ckpt.rebalance.grouping import BicliqueRouter, MatrixRouter, PartialKeyRouter
from ckpt.rebalance.importance import Importance
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.outcome import Record, Verdict
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
from ckpt.rebalance.sparkhash import spark_hash
from ckpt.rebalance.splitting import Band, Equal, JoinRouter, TableRouter, Targets
from ckpt.rebalance.table import RoutingTable, Side, Split
from ckpt.rebalance.window import Window, merge

__all__ = ["Importance", "LoadSketch", "Loads", "Places", "Report", "Router", "RoutingTable", "Side", "Split"]
__all__ += ["Window", "from_arrow", "loads_of", "merge", "read_loads", "spark_hash"]
__all__ += ["Band", "BicliqueRouter", "Equal", "JoinRouter", "MatrixRouter", "PartialKeyRouter"]
__all__ += ["TableRouter", "Targets"]
__all__ += ["Controller", "ControllerOptions", "Decision", "Quiet", "Record", "State", "Verdict"]
__all__ += ["Kind", "Moves", "Placement", "Plan", "PlannerError", "Problem", "Splits", "Status"]
__all__ += ["plan", "planner", "planner_names"]
