"""QMMP, quickly make a migration plan: mnrt-2017 Algorithms 2 and 3. Keys are split wherever it is
convenient.

Names of the paper: UL the most that an instance may carry, L̄ the mean load, χ how much has to leave an
instance or fits into one, C the parts under way, (φ, ψ) the part φ of the whole ψ.

Overloaded instances give up whole keys, as they come, until the next is heavier than what is left over; of
that one, exactly χ. Instances below the mean then take parts, as they come, up to the mean: the last one
only as far as it fits.

Deviations:
- Where fixed load (`base`) leaves no instance below the mean, what is left goes to the least loaded ones.

Cost: O(K), the point of it.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning import Placement, Problem, planner
from ckpt.rebalance.planning.problem import F64, I32, I64, SLACK


@planner(
    "qmmp",
    splits=True,
    exempt={
        "minimal": "the paper does not take moves back",
        "permute": "takes keys as they come",
        "relabel": "takes instances as they come",
    },
)
def qmmp(problem: Problem) -> Placement:
    """Loads at their limits or better, by as many splits as it takes."""
    key, instance, share = parts_of(problem)
    load, part = problem.load.copy(), problem.cost[key] * share
    upper = problem.limits * (1 - SLACK / 2)  # UL; shares are rounded
    moved: list[tuple[int, int, float]] = []
    for d in np.flatnonzero(load > problem.limits).tolist():  # UNLOAD
        mine = np.flatnonzero((instance == d) & (part > 0))
        given = np.cumsum(part[mine])
        whole = int(np.searchsorted(given, load[d] - upper[d], side="right"))
        chi = float(load[d] - upper[d]) - (float(given[whole - 1]) if whole else 0.0)
        for at in mine[:whole].tolist():
            moved.append((int(key[at]), d, float(share[at])))
            share[at] = 0.0
        if chi > 0 and whole < len(mine):
            at = int(mine[whole])
            moved.append((int(key[at]), d, float(share[at] * chi / part[at])))
            share[at] *= 1 - chi / part[at]
        load[d] = max(upper[d], load[d] - given.max(initial=0.0))
    receivers = [d for d in range(problem.instances) if load[d] <= problem.mean]
    added: list[tuple[int, int, float]] = []
    for k, _, q in moved:  # LOADING
        while q > 0:
            d = receivers[0] if receivers else int(load.argmin())
            chi = max(problem.mean - float(load[d]), 0.0) if receivers else np.inf
            amount = min(q, chi / problem.cost[k])
            if amount < q:
                receivers.pop(0)
            if amount > 0:
                added.append((k, d, amount))
                load[d] += amount * problem.cost[k]
                q -= amount
    return collected(problem, key, instance, share, added)


def parts_of(problem: Problem) -> tuple[I64, I32, F64]:
    """Every part of every key: its key, where it is, and which share of the key it is."""
    splits = problem.splits
    whole = np.ones(len(problem.cost), np.bool_)
    whole[splits.key] = False
    keys = np.flatnonzero(whole)
    row, d = np.nonzero(splits.shares[splits.pattern])
    return (
        np.concatenate([keys, splits.key[row]]),
        np.concatenate([problem.current[keys], d.astype(np.int32)]),
        np.concatenate([np.ones(len(keys)), splits.shares[splits.pattern[row], d]]),
    )


def collected(
    problem: Problem, key: I64, instance: I32, share: F64, added: list[tuple[int, int, float]]
) -> Placement:
    """The placement of the parts that stayed and of those that were added."""
    keys, places, shares = zip(*added, strict=True) if added else ((), (), ())
    touched = np.zeros(len(problem.cost), np.bool_)
    touched[list(keys)] = True
    touched[problem.splits.key] = True
    stays = touched[key]
    return Placement.of_fragments(
        problem,
        np.concatenate([key[stays], np.array(keys, np.int64)]),
        np.concatenate([instance[stays], np.array(places, np.int32)]),
        np.concatenate([share[stays], np.array(shares, np.float64)]),
    )
