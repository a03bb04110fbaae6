"""From loads to a plan: what a planner is given, what it answers, and what is counted from that.

Guarantees that every figure of a plan was recounted from targets alone. Knows no planner but by its name.
"""

from ckpt.rebalance.planning.entry import plan
from ckpt.rebalance.planning.problem import Placement, Problem, Splits
from ckpt.rebalance.planning.recount import PlannerError
from ckpt.rebalance.planning.registry import planner, planner_names
from ckpt.rebalance.planning.result import Kind, Moves, Plan, Status

__all__ = [
    "Kind",
    "Moves",
    "Placement",
    "Plan",
    "PlannerError",
    "Problem",
    "Splits",
    "Status",
    "plan",
    "planner",
    "planner_names",
]
