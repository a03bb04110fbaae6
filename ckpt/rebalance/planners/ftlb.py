"""FTLB: ftlb-2019 Algorithm 3, and Algorithm 4 (KSM) as the diff that `rb.plan` makes of every answer.

LLFD that knows replicas: a key that becomes active where it has a backup moves no state. Names of the paper:
C the candidates, upb the upper bound of a load, M(k) what it costs to move a key for its load (lower is
better, first out), cursor[d] the load that a key has to be lighter than to leave d for another, dn(k) the
number of k's replicas.

Deviations:
- M(k) = S(k, w) / c(k)^β · dn(k)^γ makes a key without replicas free (dn = 0) and, for γ > 0, penalises the
  keys whose roles switch for nothing. Here a key with a backup on an instance that is not overloaded costs 0,
  every other one S(k, w) / c(k)^β.
- Algorithm 3 uses replicas by accident only. Here a key goes to an instance with a backup if it fits there,
  before the least loaded instance is asked.
- Line 15 takes one key out; if that is not enough, Line 18 undoes `Line 14-19`, itself included. Here as many
  keys as needed are taken out, or none: a trial, which leaves nothing behind if it fails. The cursor of Line
  14 is the load of the key that comes in; loads that come in only become lighter, so it need not be kept.
- Algorithm 2 adds the load only inside its `if`; it is always added.
- A key that fits nowhere goes to the least loaded instance, as in `llfd`.

KSM: F_i ⊕ F_{i-1}, the keys whose place differs, is what becomes the plan's moves.

Cost: that of LLFD.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planners.llfd import AWAY, assign, prepare
from ckpt.rebalance.planners.minmig import BETA, priority
from ckpt.rebalance.planning import Problem, planner
from ckpt.rebalance.planning.problem import I32


@planner("ftlb", exempt={"minimal": "the paper does not take moves back"})
def ftlb(problem: Problem, *, beta: float = BETA) -> I32:
    """Overloaded instances first give away the keys whose roles can switch."""
    place = problem.current.copy()
    psi = priority(problem, beta)  # 1 / M(k)
    upb, load = problem.limits, problem.load.copy()
    if problem.backups is not None:
        held = problem.backups >= 0
        psi = np.where((held & (load <= upb)[problem.backups]).any(axis=1), np.inf, psi)
    prepare(problem, place, psi)  # 1st: select loads into C from tasks
    if problem.backups is not None:
        switch(problem, place)
    assign(problem, place, psi)  # 2nd: re-distribute loads in C to tasks
    return place


def switch(problem: Problem, place: I32) -> None:
    """Candidates, heaviest first, become active where they have a backup, on the least loaded of these."""
    assert problem.backups is not None
    candidates = np.flatnonzero(place == AWAY)
    here = place != AWAY
    load = problem.base + np.bincount(place[here], problem.cost[here], minlength=problem.instances)
    for k in candidates[np.argsort(-problem.cost[candidates], kind="stable")].tolist():
        backups = problem.backups[k]
        fitting = [int(d) for d in backups[backups >= 0] if load[d] + problem.cost[k] <= problem.limits[d]]
        if fitting:
            place[k] = min(fitting, key=lambda d: load[d])
            load[place[k]] += problem.cost[k]
