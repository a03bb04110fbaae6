"""Exact: the optimum by integer programming, for small problems and as the judge in tests.

One binary variable for each key and instance, mixed-2017 Eq. 3 as it stands: least migrated state, loads
within their limits, at most A_max keys away from home. If that has no solution, the least sum of load
outside the limits is found first, and then the least state with no more than that.

Needs HiGHS (`pip install 'ckpt[rebalance]'`). Cost: exponential; a thousand variables take seconds.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.planning import Placement, Problem, planner
from ckpt.rebalance.planning.problem import F64

NODES = 1_000
"""How many nodes HiGHS may branch; if that is not enough, its best plan so far is the answer."""
GAP = 1e-7
"""The relative difference from the optimum at which HiGHS may stop."""


@planner(
    "exact",
    exempt={
        "minimal": "a key without state may move for nothing",
        "permute": "of the optimal plans, HiGHS chooses one",
        "relabel": "of the optimal plans, HiGHS chooses one",
    },
)
def exact(problem: Problem, *, nodes: int = NODES) -> Placement:
    """No plan within the limits moves less state."""
    if not len(problem.cost):
        return Placement(problem.current.copy())
    place = _solve(problem, 0.0, nodes)
    if place is None:
        outside = _solve(problem, None, nodes)
        if outside is None:
            return Placement(problem.current.copy(), note=f"HiGHS found no plan in {nodes} nodes")
        load = problem.loads(outside)
        least = np.maximum(load - problem.limits, 0).sum() + np.maximum(problem.floors - load, 0).sum()
        place = _solve(problem, float(least) * (1 + 1e-7), nodes)
        place = outside if place is None else place
    return Placement(place)


def _solve(problem: Problem, outside: float | None, nodes: int) -> Any:
    """The best targets; `outside`: how much load may be outside the limits, None: as little as possible."""
    highs = _highs()
    inf = highs.kHighsInf
    keys, n = len(problem.cost), problem.instances
    binaries = keys * n
    model = highs.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", GAP)
    model.setOptionValue("mip_feasibility_tolerance", 1e-9)
    model.setOptionValue("primal_feasibility_tolerance", 1e-9)
    model.setOptionValue("time_limit", nodes)
    model.setOptionValue("threads", 1)
    state = _unit(problem.state)
    price = np.where(np.arange(n) == problem.current[:, None], 0.0, state[:, None])
    if problem.backups is not None:
        for column in problem.backups.T:
            held = np.flatnonzero(column >= 0)
            price[held, column[held]] = 0.0
    slack = 0 if outside == 0.0 else 2 * n
    objective = np.concatenate(
        [price.ravel() * (outside is not None), np.full(slack, float(outside is None))]
    )
    unit = max(float(problem.cost.max()), 1e-300)
    for value, upper in zip(objective, [1.0] * binaries + [inf] * slack, strict=True):
        model.addVar(0.0, upper)
        model.changeColCost(model.getNumCol() - 1, float(value))
    for column in range(binaries):
        model.changeColIntegrality(column, highs.HighsVarType.kInteger)
    cells = np.arange(binaries).reshape(keys, n)
    for k in range(keys):
        model.addRow(1.0, 1.0, n, cells[k].astype(np.int32), np.ones(n))
    for d in range(n):
        column, weight = list(cells[:, d]), list(problem.cost / unit)
        if slack:
            column, weight = [*column, binaries + d, binaries + n + d], [*weight, -1.0, 1.0]
        floor = float((problem.floors[d] - problem.base[d]) / unit)
        limit = float((problem.limits[d] - problem.base[d]) / unit)
        model.addRow(floor, limit, len(column), np.array(column, np.int32), np.array(weight))
    away = np.flatnonzero((np.arange(n) != problem.home[:, None]).ravel()).astype(np.int32)
    model.addRow(-inf, float(problem.table_limit), len(away), away, np.ones(len(away)))
    if slack and outside is not None:
        extra = np.arange(binaries, binaries + slack, dtype=np.int32)
        model.addRow(-inf, outside / unit, slack, extra, np.ones(slack))
    model.run()
    solution = np.array(model.getSolution().col_value)
    if model.getInfo().primal_solution_status != 2 or len(solution) < binaries:
        return None
    return solution[:binaries].reshape(keys, n).argmax(axis=1).astype(np.int32)


def _unit(state: F64) -> F64:
    """The states with the largest at 1, so that tolerances mean the same for every unit."""
    largest = float(state.max(initial=0.0))
    return np.asarray(state / largest) if largest > 0 else state


def _highs() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError as error:
        raise ConfigError(
            "the planner 'exact' needs a package that is not installed; "
            "install it with: pip install 'ckpt[rebalance]'"
        ) from error
