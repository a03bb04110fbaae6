"""When to plan, what may be done, and what came of it. Knows no clock and no stream: both are arguments.

After each interval the caller gives the controller the loads and the table that was in force, and gets a
decision. With a table in it, the caller routes by that table from `table.effective_from` on, and says so by
giving it to the controller with the loads of that interval.

```
             over a limit                 a plan is worth it            its table is in force
  BALANCED ────────────────▶ IMBALANCED ────────────────────▶ PLANNED ────────────────────▶ JUDGING
   ▲  ▲ ▲  ◀────────────────  ▲      │                                                      │     │
   │  │ │    within limits     │      │ dry run                        its gain arrived      │     │
   │  │ │                      │      └─────────────▶ COOLING ◀──────────────────────────────┘     │
   │  │ └──────────────────────┼───────────────────────┘ │                                         │
   │  │     pause is over      └─────────────────────────┘                                         │
   │  │                          a part was left for later              less than half of it came  │
   │  └─────── STOPPED ◀──────────────────────────── ROLLING_BACK ◀────────────────────────────────┘
   │ resume()              the old places are in force
```

`pause()` leads from every state to PAUSED, `resume()` from PAUSED and STOPPED to BALANCED.

How gains are judged:

- Over what a plan changes: the peak of the instances whose load it changes, above their own mean. What other
  instances do counts neither for the plan nor against it.
- Against the last plan: if loads stay over a limit after it, the next plan is made only when the load of some
  instance has shifted enough since *that* plan. A comparison with the last interval would not see slow drift.
- By its outcome, see `outcome`.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, Loads
from ckpt.rebalance.outcome import Record, Trial, Verdict
from ckpt.rebalance.planning import Plan
from ckpt.rebalance.stage import Caps, peak, stage
from ckpt.rebalance.table import RoutingTable

DAY_S = 86_400
MAX_HISTORY = 1000


class State(enum.Enum):
    """What the controller is doing."""

    BALANCED = "balanced"
    IMBALANCED = "imbalanced"
    """Over a limit, but not for long enough, or no plan is worth it."""
    PLANNED = "planned"
    """A table was decided and is not in force yet."""
    JUDGING = "judging"
    """A table is in force, and its outcome is being measured."""
    COOLING = "cooling"
    """The pause after a plan."""
    ROLLING_BACK = "rolling back"
    """The old places were decided and are not in force yet."""
    STOPPED = "stopped"
    """A plan was rolled back. A person has to look at it and call `resume`."""
    PAUSED = "paused"


_ALLOWED: dict[State, frozenset[State]] = {
    State.BALANCED: frozenset({State.IMBALANCED, State.PAUSED}),
    State.IMBALANCED: frozenset({State.BALANCED, State.PLANNED, State.COOLING, State.PAUSED}),
    State.PLANNED: frozenset({State.JUDGING, State.PAUSED}),
    State.JUDGING: frozenset({State.COOLING, State.ROLLING_BACK, State.PAUSED}),
    State.COOLING: frozenset({State.BALANCED, State.IMBALANCED, State.PAUSED}),
    State.ROLLING_BACK: frozenset({State.STOPPED, State.PAUSED}),
    State.STOPPED: frozenset({State.BALANCED, State.PAUSED}),
    State.PAUSED: frozenset({State.BALANCED}),
}


@dataclass(frozen=True, slots=True)
class Quiet:
    """A time of each day (UTC) in which nothing is planned; it may go over midnight."""

    from_s: float
    to_s: float

    def __contains__(self, now_s: float) -> bool:
        at = now_s % DAY_S
        if self.from_s <= self.to_s:
            return self.from_s <= at < self.to_s
        return at >= self.from_s or at < self.to_s


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """When to plan and what may be done."""

    theta: float = 0.08
    """An instance is overloaded above the mean load by this fraction."""
    aim: float = 0.5
    """Plans are made for this part of `theta`. Many planners fill instances up to the limit, and at the limit
    the next small change would be a reason for the next plan."""
    imb_score: float | None = None
    """Also plan above this relative standard deviation of loads, in percent (dlb-cep-2016); None: do not."""
    wait_intervals: int = 2
    """So many intervals in a row must be over a limit."""
    min_gain: float = 0.02
    """A plan is worth it if it lowers the peak of the instances it changes by this fraction of their mean."""
    min_drift: float = 0.02
    """If an imbalance stays after a plan, the load of some instance must shift by this fraction of the mean
    before the next plan is made."""
    cooldown_s: float = 60.0
    """From one plan to the next, unless caps left a part of it for later."""
    judge_intervals: int = 3
    """The outcome is the mean of so many intervals."""
    least_outcome: float = 0.5
    """A plan of which less than this part of the forecast gain arrives is rolled back."""
    max_moves: int | None = None
    """Moves in one interval; None: any number."""
    max_bytes: float | None = None
    """State that travels in one interval; None: any amount."""
    excluded: frozenset[int] = frozenset()
    """Identities of keys that are left alone."""
    quiet: tuple[Quiet, ...] = ()
    """Times of the day in which nothing is planned."""
    merge_below: float = 0.5
    """A split key may be merged when it costs less than this fraction of the mean load …"""
    merge_intervals: int = 10
    """… in so many intervals in a row; else keys near the limit would be split and merged in turn."""
    dry_run: bool = False
    """Plan and record, but decide nothing."""

    def __post_init__(self) -> None:
        fractions = ("theta", "aim", "min_gain", "min_drift", "cooldown_s", "least_outcome", "merge_below")
        for name in fractions:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be a finite number from 0, not {getattr(self, name)}")
        for name in ("wait_intervals", "judge_intervals", "merge_intervals"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("imb_score", "max_moves", "max_bytes"):
            if getattr(self, name) is not None and not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be from 0, not {getattr(self, name)}")
        for quiet in self.quiet:
            if not (0 <= quiet.from_s <= DAY_S and 0 <= quiet.to_s <= DAY_S):
                raise ConfigError(f"a quiet time is between 0 and {DAY_S} s after midnight, not {quiet}")


@dataclass(frozen=True, eq=False)
class Decision:
    """What to do after an interval."""

    state: State
    reason: str
    """Why, for people."""
    table: RoutingTable | None = None
    """Route by it from its `effective_from` on; None: go on as before."""
    record: Record | None = None
    """The plan that this is about, for the history."""
    plan: Plan | None = None
    """The same in full, if it was made just now."""


PlanFunction = Callable[[Loads, RoutingTable, npt.NDArray[np.bool_], float], Plan]
"""From loads, the current table, which keys are pinned and theta to a plan; usually around `rb.plan`."""


class Controller:
    """Decides after each interval; the same intervals give the same decisions."""

    def __init__(self, plan: PlanFunction, options: ControllerOptions | None = None) -> None:
        self.options = ControllerOptions() if options is None else options
        self.state = State.BALANCED
        self.history: deque[Record] = deque(maxlen=MAX_HISTORY)
        """The last plans that were worth it, the oldest first."""
        self._plan = plan
        self._interval = -1
        self._over = 0
        """How many intervals in a row were over a limit."""
        self._cool_until_s = -float("inf")
        self._after_last_plan: F64 | None = None
        """Each instance's share of the load as the last plan had it; None: nothing stands against a plan."""
        self._decided = -1
        """The version of the table that is to come into force."""
        self._trial: Trial | None = None
        self._unfinished = False
        """Caps left a part of the last plan for later."""
        self._light = Counter[int]()
        """For each split key, how many intervals in a row it was light enough to be merged."""

    def observe(self, now_s: float, interval: int, loads: Loads, table: RoutingTable) -> Decision:
        """What to do after this interval, whose rows were routed by this table."""
        if interval <= self._interval:
            raise ConfigError(f"interval {interval} comes after interval {self._interval}")
        self._interval = interval
        measured = table.instance_loads(loads)
        self._count_light_splits(loads, table, float(measured.mean()))
        if self.state in (State.PAUSED, State.STOPPED):
            return self._nothing("until resume() is called")
        if self.state is State.PLANNED:
            if table.version < self._decided:
                return self._nothing(f"waiting for table {self._decided}")
            self._go(State.JUDGING)
        if self.state is State.ROLLING_BACK:
            if table.version < self._decided:
                return self._nothing(f"waiting for table {self._decided}")
            self._go(State.STOPPED)
            return self._nothing("the old places are in force")
        if self.state is State.JUDGING:
            return self._judge(loads, table)
        if self.state is State.COOLING:
            if now_s < self._cool_until_s and not self._unfinished:
                return self._nothing(f"for another {self._cool_until_s - now_s:.3g} s")
            self._go(State.IMBALANCED if self._unfinished else State.BALANCED)
        return self._consider(now_s, loads, table, measured)

    def pause(self) -> None:
        """Decide nothing until `resume`. A table that was decided stays decided."""
        if self.state is not State.PAUSED:
            self._go(State.PAUSED)
        self._trial = None

    def resume(self) -> None:
        """Go on after `pause`, or after a plan was rolled back."""
        if self.state not in (State.PAUSED, State.STOPPED):
            raise ConfigError(
                f"the controller is {self.state.value}; only a paused or stopped one is resumed"
            )
        self._go(State.BALANCED)
        self._over, self._after_last_plan, self._unfinished = 0, None, False

    def _consider(self, now_s: float, loads: Loads, table: RoutingTable, measured: F64) -> Decision:
        why = self._over_a_limit(measured)
        if why is None:
            self._over, self._unfinished, self._after_last_plan = 0, False, None
            if self.state is State.IMBALANCED:
                self._go(State.BALANCED)
            return self._nothing("every instance is within its limit")
        self._over += 1
        if self.state is State.BALANCED:
            self._go(State.IMBALANCED)
        if any(now_s in quiet for quiet in self.options.quiet):
            return self._nothing(f"{why}, in a quiet time")
        if self._over < self.options.wait_intervals and not self._unfinished:
            return self._nothing(f"{why}, for {self._over} of {self.options.wait_intervals} intervals")
        drift = self._drift(measured)
        if drift < self.options.min_drift:
            return self._nothing(f"{why}; loads shifted by {100 * drift:.2g} % at most since the last plan")
        return self._decide(now_s, loads, table, measured, why)

    def _decide(self, now_s: float, loads: Loads, table: RoutingTable, measured: F64, why: str) -> Decision:
        options = self.options
        pinned = np.isin(loads.keys, np.array([*options.excluded], np.uint64))
        made = self._plan(loads, table, pinned, options.theta * options.aim)
        heavy = frozenset(s.key for s in table.splits if self._light[s.key] < options.merge_intervals)
        staged = stage(made, table, Caps(options.max_moves, options.max_bytes), heavy)
        self._unfinished = False
        self._after_last_plan = _distribution(measured)
        if not made.applicable or not len(staged.keys):
            return self._nothing(f"{why}; nothing to do: {made.reason or made.status.value}")
        if staged.gain < options.min_gain:
            return self._nothing(f"{why}; a plan would gain {staged.gain:.2g}, too little")
        self._cool_until_s = now_s + options.cooldown_s
        record = Record(
            now_s,
            self._interval,
            made.planner,
            staged.keys,
            staged.moves,
            staged.state_bytes,
            Verdict.PROPOSED if options.dry_run else Verdict.OPEN,
            before=peak(staged.before, staged.changed),
            forecast=peak(staged.after, staged.changed),
        )
        self.history.append(record)
        if options.dry_run:
            self._go(State.COOLING)
            return Decision(self.state, f"{why}; dry run", None, record, made)
        self._after_last_plan = _distribution(staged.after)
        self._unfinished = not staged.whole
        self._decided = table.version + 1
        self._trial = Trial(record, staged.changed, table)
        self._go(State.PLANNED)
        return Decision(self.state, why, self._next(staged.table), record, made)

    def _judge(self, loads: Loads, table: RoutingTable) -> Decision:
        trial = self._trial
        assert trial is not None, "a table is judged from when it is decided"
        trial.measure(loads, table)
        needed = self.options.judge_intervals
        if len(trial.peaks) < needed:
            return self._nothing(f"interval {len(trial.peaks)} of {needed} under table {table.version}")
        outcome, unmoved = sum(trial.peaks) / needed, sum(trial.unmoved) / needed
        gain, promised = unmoved - outcome, trial.record.forecast_gain
        arrived = gain >= self.options.least_outcome * promised
        verdict = Verdict.ARRIVED if arrived else Verdict.ROLLED_BACK
        self.history[-1] = record = replace(trial.record, outcome=outcome, unmoved=unmoved, verdict=verdict)
        self._trial, self._over = None, 0
        reason = f"gained {gain:.2g} of {promised:.2g} forecast"
        if arrived:
            self._go(State.COOLING)
            return Decision(self.state, reason, None, record)
        self._unfinished = False
        self._go(State.ROLLING_BACK)
        self._decided = table.version + 1
        old = trial.old_table
        back = old if old.instances != table.instances else table.adopting(old, record.keys)
        return Decision(self.state, reason, self._next(back), record)

    def _over_a_limit(self, measured: F64) -> str | None:
        highest = peak(measured, np.ones(len(measured), np.bool_))
        if highest > self.options.theta * (1 + 1e-9):
            return f"instance {int(measured.argmax())} is {100 * highest:.3g} % over the mean"
        score = imb_score(measured)
        if self.options.imb_score is not None and score > self.options.imb_score:
            return f"the loads deviate by {score:.3g} %"
        return None

    def _drift(self, measured: F64) -> float:
        """By which fraction of the mean the load of some instance differs from that after the last plan."""
        last, now = self._after_last_plan, _distribution(measured)
        if last is None or len(last) != len(now) or self._unfinished:
            return float("inf")
        return float(np.abs(now - last).max()) * len(now)

    def _count_light_splits(self, loads: Loads, table: RoutingTable, mean: float) -> None:
        cost = dict(zip(loads.keys.tolist(), loads.cost.tolist(), strict=True)) if table.splits else {}
        light = {s.key for s in table.splits if cost.get(s.key, 0.0) < self.options.merge_below * mean}
        self._light = Counter({key: self._light[key] + 1 for key in light})

    def _next(self, table: RoutingTable) -> RoutingTable:
        return replace(table, version=self._decided, effective_from=self._interval + 1)

    def _nothing(self, reason: str) -> Decision:
        return Decision(self.state, reason)

    def _go(self, state: State) -> None:
        if state not in _ALLOWED[self.state]:
            raise AssertionError(f"no way leads from {self.state.value} to {state.value}")
        self.state = state


def imb_score(loads: F64) -> float:
    """The relative standard deviation of the loads in percent (dlb-cep-2016, Eq. 2), of the population.

    Examples
    --------
    >>> imb_score(np.array([1.0, 3.0]))
    50.0
    """
    mean = float(loads.mean())
    return 100 * float(loads.std()) / mean if mean > 0 else 0.0


def _distribution(loads: F64) -> F64:
    total = float(loads.sum())
    return np.asarray(loads / total if total > 0 else loads)
