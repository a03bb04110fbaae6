"""Instances that die, and how the state that they held comes back.

A recovery is a function from a crash to what happens next. The tuples in the queue of a dead instance were
not acknowledged, so the source still has them: they stay where they are if the instance comes back, and are
sent again if the recovery gives its keys to others. Moves that are under way when an instance dies end as
much later as the recovery takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, U64, Loads
from ckpt.rebalance.simulate.cluster import Cluster
from ckpt.rebalance.simulate.engine import Halt
from ckpt.rebalance.table import RoutingTable


@dataclass(frozen=True, slots=True)
class Failure:
    """An instance dies at a time."""

    at_s: float
    instance: int


@dataclass(frozen=True, eq=False)
class Crash:
    """A failure, and what is known when it happens."""

    failure: Failure
    loads: Loads
    """All keys with their state, as measured last, with the places that they have now."""
    table: RoutingTable
    """In force now."""
    backlog_s: F64
    """For each instance, how long it takes to do what it was sent before."""
    cluster: Cluster

    @property
    def lost_bytes(self) -> float:
        """The state that the instance held."""
        return float(self.loads.state[self.loads.instance == self.failure.instance].sum())


@dataclass(frozen=True, eq=False)
class Recovered:
    """What a recovery does: the instance comes back, or its keys go elsewhere, or both."""

    halts: Sequence[Halt] = ()
    """The dead instance until it is back (`math.inf`: never), and any other that stops meanwhile."""
    table: RoutingTable | None = None
    """In force from the failure on; None: every key stays where it is."""
    keys: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """Keys whose tuples wait, although their instance works."""
    resume_s: F64 = field(default_factory=lambda: np.empty(0))
    """Until when each of them waits."""

    @property
    def until_s(self) -> float:
        """When everything works again, but for instances that never come back."""
        times = [halt.until_s for halt in self.halts if halt.until_s < math.inf]
        return max([*times, *self.resume_s.tolist()], default=-math.inf)


Recovery = Callable[[Crash], Recovered]


@dataclass(frozen=True, slots=True)
class FromStore:
    """The instance starts again and reads all its state from a store; its tuples wait until then."""

    detect_s: float = 1.0
    """How long it takes until the failure is noticed and a new process is there."""
    read_bytes_s: float = 100e6

    def __post_init__(self) -> None:
        if not (self.detect_s >= 0 and 0 < self.read_bytes_s < math.inf):
            raise ConfigError("detect_s must be from 0, and read_bytes_s above 0")

    def __call__(self, crash: Crash) -> Recovered:
        """Everything stays where it is."""
        at_s, instance = crash.failure.at_s, crash.failure.instance
        down_s = self.detect_s + crash.lost_bytes / self.read_bytes_s
        return Recovered([Halt(instance, at_s, at_s + down_s)])
