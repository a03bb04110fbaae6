"""What a simulation measured: one row for each interval, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.loads import F64


@dataclass(frozen=True, eq=False)
class Record:
    """One interval, and the plan that was made after it."""

    start_s: float
    seconds: float
    """How long the source took to send it; longer than the cluster's interval if it was held back."""
    tuples: float
    """Sent by the source, copies included."""
    keys: int
    """With state in the window, or tuples."""
    skew: float
    """Load of the fullest instance over the mean, under the table in force."""
    skew_planned: float
    """The same for the loads that the plan was made for, under the table that is in force after it."""
    imb_score: float
    """Relative standard deviation of the loads in percent."""
    processed: F64
    """Tuples that each instance has completed."""
    received: F64
    """Tuples that came to each instance."""
    latency_s: float
    """Mean over all tuples that were completed, from the source to the end of their processing."""
    latency_p50_s: float
    latency_p99_s: float
    latency_slowest_s: float
    """The mean of the instance that has the highest."""
    throughput_slowest: float
    """Tuples per second of that instance."""
    pending: float
    """Tuples that wait when the source has sent the interval."""
    status: str
    """Of the plan, or why there is none."""
    plan_s: float
    """How long planning took on this machine; the only figure that is not the same in every run."""
    moved_keys: int
    migrated_bytes: float
    migrated_share: float
    """Of all state."""
    held_s: float
    """From the decision until the last moved key resumed."""
    table_size: int
    """Entries of the table in force after it."""

    @property
    def throughput(self) -> float:
        """Tuples completed per second."""
        return float(self.processed.sum()) / self.seconds if self.seconds > 0 else 0.0

    @property
    def instances_used(self) -> int:
        """Instances that got tuples."""
        return int(np.count_nonzero(self.received))


@dataclass(frozen=True, eq=False)
class Result:
    """A run: one record for each interval."""

    planner: str
    records: tuple[Record, ...]

    def column(self, name: str) -> npt.NDArray[Any]:
        """One figure of all intervals: a number each, or a row of numbers for the instances."""
        return np.array([getattr(record, name) for record in self.records])

    @property
    def seconds(self) -> float:
        """How long it all took."""
        return float(self.column("seconds").sum())

    @property
    def processed(self) -> float:
        """Tuples that were completed."""
        return float(self.column("processed").sum())

    def document(self) -> dict[str, Any]:
        """Every column, as JSON can hold it."""
        columns = [*(each.name for each in fields(Record)), "throughput", "instances_used"]
        return {"planner": self.planner} | {name: self.column(name).tolist() for name in columns}
