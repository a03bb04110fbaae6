"""A stream whose load drifts among the instances on which a planner has put the keys.

The stream is `DriftingZipf`; state is that of the last `window` intervals. All intervals have the same keys
in the same order, so a window is a sum of columns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import ckpt.rebalance as rb
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.simulate.generators import DriftingZipf


@dataclass(frozen=True, slots=True)
class Setting:
    """The defaults of mixed-2017 Table II where it has some; the others are those of the project's notes."""

    keys: int
    pairs: int
    """How many pairs of instances exchange load before an interval: p1 and p7."""
    instances: int = 15
    theta: float = 0.08
    window: int = 5
    table_limit: int | None = 3000
    exponent: float = 0.85
    fluctuation: float = 1.0
    spread: float = 1.0
    """A tuple of one key leaves up to so many times the state of a tuple of another."""

    @property
    def name(self) -> str:
        """Such as `p7, f 0.5, 1,000,000 keys`."""
        return f"p{self.pairs}, f {self.fluctuation:g}, {self.keys:,} keys"


class Trajectory:
    """The loads that a planner meets if its own plans are carried out.

    Examples
    --------
    >>> trajectory = Trajectory(Setting(keys=500, pairs=1, table_limit=100), seed=1)
    >>> loads = trajectory.advance()
    >>> plan = trajectory.plan(loads, "lag")
    >>> trajectory.apply(plan)
    >>> bool((trajectory.advance().instance == plan.place).all())
    True
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        stream = DriftingZipf(
            keys=setting.keys,
            exponent=setting.exponent,
            fluctuation=setting.fluctuation,
            pairs=setting.pairs,
            instances=setting.instances,
            intervals=1 << 30,
            tuples=10.0 * setting.keys,
            seed=seed,
        )
        self._tuple_state = np.random.default_rng(seed).uniform(1.0, setting.spread, setting.keys)
        self._intervals = iter(stream.follow(lambda _: self._place))
        self._states: deque[npt.NDArray[np.float64]] = deque(maxlen=setting.window)
        self._place = np.empty(0, np.int32)
        self._home = self._place

    def advance(self) -> rb.Loads:
        """The loads of the next interval, with the state of the window."""
        interval = next(self._intervals)
        if not len(self._home):
            self._home = self._place = homes(interval.keys, self.setting.instances)
        self._states.append(interval.state * self._tuple_state)
        return rb.Loads(interval.keys, interval.cost, sum(self._states), self._place, home=self._home)

    def plan(self, loads: rb.Loads, planner: str) -> rb.Plan:
        """A plan within the limits of the setting."""
        setting = self.setting
        return rb.plan(
            loads,
            planner,
            instances=setting.instances,
            theta=setting.theta,
            table_limit=setting.table_limit,
        )

    def apply(self, plan: rb.Plan) -> None:
        """Keys are where the plan puts them; a plan that may not be carried out changes nothing."""
        if plan.applicable:
            self._place = plan.place
