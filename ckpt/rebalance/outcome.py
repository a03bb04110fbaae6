"""What came of a plan, beside its forecast.

Over the intervals that follow, the peak of the instances that the plan changed is measured, beside the peak
that the same loads would have made if its keys had stayed. The difference is what the plan gained: a stream
that changes in the meantime is not taken for the plan's doing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ckpt.rebalance.loads import U64, Loads
from ckpt.rebalance.stage import peak
from ckpt.rebalance.table import RoutingTable


class Verdict(enum.Enum):
    """What came of a plan."""

    PROPOSED = "proposed"
    """Dry run: nothing was done."""
    OPEN = "open"
    """Not yet known, or given up by a pause."""
    ARRIVED = "arrived"
    """At least half the forecast gain was measured."""
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True, eq=False)
class Record:
    """One plan: what was forecast, and beside it what came.

    Peaks are those of the instances that the plan changed, above their mean and as a fraction of it.
    """

    planned_s: float
    interval: int
    planner: str
    keys: U64
    """The keys that moved."""
    moves: int
    state_bytes: float
    verdict: Verdict
    before: float
    """The peak when it was planned."""
    forecast: float
    """The peak that the plan promised."""
    outcome: float | None = None
    """The peak that was measured; None: not known."""
    unmoved: float | None = None
    """The peak that the same loads would have made if the keys had stayed; None: not known."""

    @property
    def forecast_gain(self) -> float:
        """By how much the peak was to fall."""
        return self.before - self.forecast

    @property
    def gain(self) -> float | None:
        """By how much it was lower than without the plan; None: not known."""
        return None if self.outcome is None or self.unmoved is None else self.unmoved - self.outcome


@dataclass
class Trial:
    """A plan that was decided, what a rollback needs, and the peaks under it and without it."""

    record: Record
    changed: npt.NDArray[np.bool_]
    old_table: RoutingTable
    peaks: list[float] = field(default_factory=list)
    unmoved: list[float] = field(default_factory=list)

    def measure(self, loads: Loads, table: RoutingTable) -> None:
        """One more interval under this table."""
        measured = table.instance_loads(loads)
        changed = self.changed[: len(measured)]
        self.peaks.append(peak(measured, changed))
        if table.instances != self.old_table.instances:
            self.unmoved.append(self.record.before)  # the same loads have no places under such a table
            return
        instance = loads.instance.copy()
        moved = np.isin(loads.keys, self.record.keys)
        instance[moved] = self.old_table.place(loads.keys, loads.home)[moved]
        old = table.adopting(self.old_table, self.record.keys)
        self.unmoved.append(peak(old.instance_loads(replace(loads, instance=instance)), changed))
