"""PKG, partial key grouping: each key has two instances, and each tuple goes to the less loaded one.

Source: Nasir et al., *The power of both choices* (ICDE 2015), the baseline of mixed-2017, dlb-cep-2016 and
mnrt-2017. The first choice is the key's home, the second another hash of it.

As a plan: keys with the same two choices are spread alike, so there is one pattern of shares for each pair of
instances. The shares are those to which the rule leads: tuples arrive in `rounds` equal parts of each pair's
load, and each part goes to the less loaded choice. A pair that is one instance twice is not split.

Decided: senders know the rule, so no key has an entry. State moves by the change of shares, which is what a
join or a moved window costs; counters that are merged later would leave theirs behind.

Cost: O(K + rounds · N²).
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.planning import Placement, Problem, Splits, planner
from ckpt.rebalance.planning.problem import I32, U64

ROUNDS = 64
"""Into how many parts the load of a pair is cut."""


@planner(
    "pkg",
    splits=True,
    exempt={
        "balances": "two choices of 400 keys need not do",
        "minimal": "splits every key",
        "relabel": "choices are hashes modulo the number of instances",
    },
)
def pkg(problem: Problem, *, rounds: int = ROUNDS) -> Placement:
    """Every key is on two instances at most, and needs no entry."""
    n = problem.instances
    second = other_hash(problem.key, n)
    pair = np.minimum(problem.home, second) * n + np.maximum(problem.home, second)
    weight = np.bincount(pair, weights=problem.cost, minlength=n * n)
    load = problem.base.copy()
    shares = np.zeros((n * n, n))
    for number in np.flatnonzero(np.bincount(pair, minlength=n * n)).tolist():
        shares[number, list(divmod(number, n))] = 1.0 if number // n == number % n else 0.0
    single = np.arange(n) * (n + 1)
    load += weight[single]
    pairs = np.flatnonzero(weight * (~np.isin(np.arange(n * n), single)))
    for _ in range(rounds):
        for number in pairs.tolist():
            one, other = divmod(number, n)
            d = one if load[one] <= load[other] else other
            load[d] += weight[number] / rounds
            shares[number, d] += 1 / rounds
    idle = (shares.sum(axis=1) == 0).nonzero()[0]
    shares[idle, idle // n] = 1.0
    split = np.flatnonzero((np.count_nonzero(shares, axis=1) > 1)[pair])
    return Placement(
        shares.argmax(axis=1)[pair].astype(np.int32), Splits(split, pair[split], shares), routed=True
    )


def other_hash(key: U64, instances: int) -> I32:
    """A second choice that is independent of the home: the finaliser of Murmur3 for 64 bits."""
    mixed = (key ^ (key >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.asarray((mixed ^ (mixed >> np.uint64(33))) % np.uint64(instances), np.int32)
