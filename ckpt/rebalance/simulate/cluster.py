"""What a stream runs on: instances, their speed, the network between them, and how much may be under way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import MAX_INSTANCES


@dataclass(frozen=True, slots=True)
class Network:
    """Every instance sends and receives at this rate, all of them at once; a message takes the latency."""

    bandwidth_bytes_s: float = 125e6
    """1 Gbit/s."""
    latency_s: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bytes_s < math.inf:
            raise ConfigError(f"bandwidth_bytes_s must be above 0, not {self.bandwidth_bytes_s}")
        if not 0 <= self.latency_s < math.inf:
            raise ConfigError(f"latency_s must be from 0, not {self.latency_s}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Instances of one keyed operator behind one source.

    The source offers the tuples of an interval evenly over `interval_s`. It is held back while `max_pending`
    tuples wait, in queues or for their key to resume, as a spout of Storm is by `topology.max.spout.pending`.
    Nothing is dropped: an interval that the instances cannot keep up with takes longer.
    """

    instances: int
    interval_s: float = 10.0
    max_pending: float = 10_000.0
    network: Network = Network()

    def __post_init__(self) -> None:
        if not 1 <= self.instances <= MAX_INSTANCES:
            raise ConfigError(f"instances must be from 1 to {MAX_INSTANCES}, not {self.instances}")
        if not 0 < self.interval_s < math.inf:
            raise ConfigError(f"interval_s must be above 0, not {self.interval_s}")
        if not self.max_pending > 0:
            raise ConfigError(f"max_pending must be above 0, not {self.max_pending}")
