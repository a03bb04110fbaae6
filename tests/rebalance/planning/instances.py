"""Random planning problems: small enough to solve, and with everything that a problem may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import assume, currently_in_test_context
from hypothesis import strategies as st

import ckpt.rebalance as rb


@dataclass(frozen=True)
class Case:
    """Arguments of `rb.plan`."""

    loads: rb.Loads
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        return int(self.arguments["instances"])

    def plan(self, planner: Any, **changed: Any) -> rb.Plan:
        if planner == "exact" and currently_in_test_context():
            assume(len(self.loads) * self.instances <= 40)  # a random problem may take minutes otherwise
        return rb.plan(self.loads, planner, **{**self.arguments, **changed})


def loads_of(
    rng: np.random.Generator, count: int, instances: int, *, generic: bool = False, away: float = 0.3
) -> rb.Loads:
    """Skewed loads, most keys at home; `generic`: no two keys alike, no two sums equal."""
    cost = 1000 / (1 + np.arange(count)) ** rng.uniform(0, 1.3) if count else np.empty(0)
    rng.shuffle(cost)
    state = cost * rng.uniform(0.2, 5, count)
    if not generic:
        cost, state = np.floor(cost / rng.choice([1, 50])), np.floor(state / rng.choice([1, 100]))
    home = rng.integers(0, instances, count)
    instance = np.where(rng.random(count) < away, rng.integers(0, instances, count), home)
    keys = rng.permutation(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761))
    return rb.Loads(keys, cost, state, instance, home=home)


@st.composite
def cases(draw: st.DrawFn, *, max_keys: int = 20, extras: bool = True) -> Case:
    """A problem with ties, zeros, giants, a table limit, backups, pins, a rest or an instance given up."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    instances, count = draw(st.integers(1, 6)), draw(st.integers(0, max_keys))
    loads = loads_of(rng, count, instances, generic=draw(st.booleans()))
    arguments: dict[str, Any] = {"instances": instances, "theta": draw(st.sampled_from([0.0, 0.08, 0.3]))}
    away = int((loads.instance != loads.home_of(instances)).sum())
    arguments["table_limit"] = draw(st.sampled_from([None, 0, away // 2, away, away + 3]))
    if not extras:
        return Case(loads, arguments)
    cost, state, instance, rest = loads.cost.copy(), loads.state.copy(), loads.instance.copy(), None
    for k in rng.permutation(count)[: draw(st.integers(0, 3))]:
        cost[k] += cost.sum()
    cost[rng.random(count) < draw(st.sampled_from([0, 0.2]))] = 0
    state[rng.random(count) < draw(st.sampled_from([0, 0.2]))] = 0
    if draw(st.booleans()):
        instance[rng.random(count) < 0.2] = instances  # is given up
    if draw(st.booleans()):
        rest = rng.integers(0, 100, instances).astype(float)
    if draw(st.booleans()):
        arguments["backups"] = _backups(rng, instance, instances)
    if draw(st.booleans()):
        arguments["pinned"] = (rng.random(count) < 0.1) & (instance < instances)
    arguments["two_sided"] = draw(st.booleans())
    return Case(rb.Loads(loads.keys, cost, state, instance, home=loads.home, rest=rest), arguments)


def _backups(
    rng: np.random.Generator, instance: npt.NDArray[np.int32], instances: int
) -> npt.NDArray[np.int32]:
    backups = rng.integers(-1, instances, (len(instance), 2)).astype(np.int32)
    backups[backups == instance[:, None]] = -1
    backups[backups[:, 0] == backups[:, 1], 1] = -1
    return backups
