"""A workload on a cluster, interval by interval: measure, plan, move, and record what came of it.

After an interval the loads of its tuples are measured, and a plan is made for them. Its table is in force
from then on, as the protocol carries it out. While keys wait or an instance is stopped, no further plan is
made.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.controller import Controller, ControllerOptions, Decision, imb_score
from ckpt.rebalance.loads import F64, Loads
from ckpt.rebalance.planning import Kind, Moves, Plan, plan
from ckpt.rebalance.simulate.cluster import Cluster
from ckpt.rebalance.simulate.engine import Engine, Passed, Watch
from ckpt.rebalance.simulate.failing import Crash, Failure, FromStore, Recovery
from ckpt.rebalance.simulate.flow import holds
from ckpt.rebalance.simulate.interval import Interval, Workload
from ckpt.rebalance.simulate.moving import Migration, Protocol, pause_and_resume
from ckpt.rebalance.simulate.result import Record, Result
from ckpt.rebalance.simulate.routes import ByRule, ByTable, Route
from ckpt.rebalance.table import RoutingTable, find
from ckpt.rebalance.window import Window

RULES = frozenset({"bi", "bi6", "dynamic", "kg", "pkg"})
"""Planners whose rule every sender follows for each tuple: nothing is planned afterwards, and nothing moves.

`rb.plan` moves even for `kg` if two keys that are heavier than any instance should be meet on one. Copies of
rows, which joins need by some of these rules, are not simulated here.
"""


@dataclass(frozen=True, slots=True)
class Balancing:
    """Which planner, when, and how its plans are carried out."""

    planner: str = "lag"
    theta: float = 0.08
    """A load may exceed the mean by this fraction."""
    table_limit: int | None = None
    window: int | None = 5
    """So many intervals a key's state stays (w in the papers); None: for good."""
    load_intervals: int = 1
    """What a key is taken to cost is its mean over so many intervals; 1: as in the newest (mixed-2017)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the planner calls its own, such as `beta` of `mixed`."""
    protocol: Protocol = pause_and_resume
    above_score: float | None = None
    """Plan only when the relative standard deviation of loads exceeds this, in percent (dlb-cep-2016); a plan
    still aims at `theta`, or at an option of the planner. None: when a load exceeds the mean by `theta`."""
    controller: ControllerOptions | None = None
    """Leave it to a controller when to plan and what to carry out; its `theta` counts then."""

    def __post_init__(self) -> None:
        if self.load_intervals < 1 or self.load_intervals > (self.window or math.inf):
            raise ConfigError("load_intervals must be from 1 to the window: a key without state has no load")


def run(
    workload: Workload,
    cluster: Cluster,
    balancing: Balancing | None = None,
    *,
    failures: Sequence[Failure] = (),
    recovery: Recovery | None = None,
    until_s: float = math.inf,
    watch: Watch | None = None,
    progress: Callable[[Record], object] = lambda _: None,
) -> Result:
    """What happens; the same arguments give the same figures, the time that planning took aside.

    Parameters
    ----------
    workload
        What comes, interval by interval.
    cluster
        What it runs on.
    balancing
        How keys are placed; None: with the defaults.
    failures
        Instances that die, and when.
    recovery
        How they come back; None: `FromStore`.
    until_s
        When to stop, if the workload is longer.
    watch
        Told of what is processed where and when, see `Engine`.
    progress
        Told of each interval that is over.

    Examples
    --------
    >>> stream = [Interval.of([0, 2, 4], [60, 30, 30], [6, 3, 3], [60, 30, 30])] * 3
    >>> result = run(stream, Cluster(2, interval_s=10, max_pending=50), Balancing("lag", window=1))
    >>> result.column("skew").tolist(), result.column("migrated_share").tolist()
    ([2.0, 1.0, 1.0], [0.5, 0.0, 0.0])
    """
    simulated = _Run(cluster, balancing or Balancing(), failures, recovery or FromStore(), watch)
    for interval in workload:
        if simulated.engine.now_s >= until_s:
            break
        progress(simulated.interval(interval, until_s))
    return Result(simulated.balancing.planner, tuple(simulated.records))


class _Run:
    """A run between two intervals: the engine, the table in force, and the loads in the window."""

    def __init__(
        self,
        cluster: Cluster,
        balancing: Balancing,
        failures: Sequence[Failure],
        recovery: Recovery,
        watch: Watch | None,
    ) -> None:
        for failure in failures:
            if not 0 <= failure.instance < cluster.instances:
                raise ConfigError(f"instance {failure.instance} cannot die: there are {cluster.instances}")
        self.balancing = balancing
        self._cluster = cluster
        self.table = RoutingTable(cluster.instances)
        self.engine = Engine(cluster, self._route(), watch)
        self.records: list[Record] = []
        self._failures = deque(sorted(failures, key=lambda failure: failure.at_s))
        self._recovery = recovery
        self._window = Window(balancing.window, cost="last")
        self._costs = Window(balancing.load_intervals)
        self._controller = None
        if balancing.controller is not None:
            self._controller = Controller(self._plan, balancing.controller)

    def interval(self, interval: Interval, until_s: float) -> Record:
        """The source sends it, its loads are measured, and a plan is made."""
        engine = self.engine
        engine.begin(interval)
        while not engine.done and engine.now_s < until_s:
            next_failure_s = self._failures[0].at_s if self._failures else math.inf
            engine.advance(min(until_s, next_failure_s))
            while self._failures and self._failures[0].at_s <= engine.now_s:
                self._fail(self._failures.popleft())
        passed = engine.passed()
        newest = interval.loads(np.zeros(len(interval), np.int32))
        self._window.add(newest)
        self._costs.add(newest)
        loads = self._loads()
        decided = self._decide(loads, len(self.records))
        self.records.append(_record(passed, loads, decided, engine.pending))
        return self.records[-1]

    def _route(self) -> Route:
        if self.balancing.planner in RULES - {"kg"}:
            return ByRule(self.balancing.planner, self._cluster.instances)
        return ByTable(self.table)

    def _loads(self) -> Loads:
        """All keys with state, at their places, with the cost that plans are made for."""
        loads = self._window.loads()
        if self.balancing.load_intervals == 1:
            return self._placed(loads)
        recent = self._costs.loads()
        order = np.argsort(recent.keys)
        at = find(recent.keys[order], loads.keys)
        cost = np.where(at >= 0, recent.cost[order][at], 0.0)
        return self._placed(replace(loads, cost=cost))

    def _placed(self, loads: Loads) -> Loads:
        return replace(loads, instance=self.table.place(loads.keys))

    def _decide(self, loads: Loads, number: int) -> _Decided:
        balancing, measured = self.balancing, self.table.instance_loads(loads)
        nothing = _Decided(len(self.table), measured)
        if balancing.planner in RULES:
            return replace(nothing, status="routed by rule")
        if not self.engine.settled:
            return replace(nothing, status="still moving")
        if self._controller is not None:
            return self._decided_by(self._controller, loads, number, nothing)
        if balancing.above_score is not None and imb_score(measured) <= balancing.above_score:
            return replace(nothing, status="balanced")
        made = self._plan(loads, self.table, None, balancing.theta)
        if not made.applicable:
            return replace(nothing, status=made.status.value, plan_s=made.plan_s)
        held_s = self._move(made.table, made.moves)
        return _Decided(len(self.table), made.loads_after, made.status.value, made.plan_s, made.moves, held_s)

    def _decided_by(self, controller: Controller, loads: Loads, number: int, nothing: _Decided) -> _Decided:
        decision = controller.observe(self.engine.now_s, number, loads, self.table)
        plan_s = 0.0 if decision.plan is None else decision.plan.plan_s
        nothing = replace(nothing, status=decision.state.value, plan_s=plan_s)
        if decision.table is None:
            return nothing
        moves = _moves(loads, self.table, decision)
        held_s = self._move(decision.table, moves)
        after = self.table.instance_loads(self._placed(loads))
        return replace(nothing, table_size=len(self.table), after=after, moves=moves, held_s=held_s)

    def _plan(
        self, loads: Loads, table: RoutingTable, pinned: npt.NDArray[np.bool_] | None, theta: float
    ) -> Plan:
        balancing = self.balancing
        return plan(
            loads,
            balancing.planner,
            instances=self._cluster.instances,
            theta=theta,
            table_limit=balancing.table_limit,
            table=table,
            pinned=pinned,
            **balancing.options,
        )

    def _move(self, table: RoutingTable, moves: Moves) -> float:
        """A table comes into force: how long it takes until the last key that moves has resumed."""
        engine = self.engine
        migration = Migration(
            engine.now_s,
            moves.key,
            moves.source,
            moves.target,
            moves.state_bytes,
            engine.backlog_s(),
            self._cluster.network,
        )
        schedule = self.balancing.protocol(migration)
        self.table = table
        engine.reroute(self._route(), holds(moves.key, schedule.resume_s), schedule.halts)
        return float(schedule.resume_s.max(initial=engine.now_s)) - engine.now_s

    def _fail(self, failure: Failure) -> None:
        engine = self.engine
        loads = (
            self._placed(self._window.loads()) if len(self._window) else Loads([], [], [], np.empty(0, int))
        )
        crash = Crash(failure, loads, self.table, engine.backlog_s(), self._cluster)
        recovered = self._recovery(crash)
        engine.delay(max(0.0, recovered.until_s - engine.now_s))
        engine.halt(recovered.halts)
        if recovered.table is not None:
            self.table = recovered.table
        engine.reroute(self._route(), holds(recovered.keys, recovered.resume_s))
        if recovered.table is not None:
            engine.resend(failure.instance)


@dataclass(frozen=True, eq=False)
class _Decided:
    """What was decided after an interval."""

    table_size: int
    after: F64
    """The load of each instance, had the table been in force."""
    status: str = ""
    plan_s: float = 0.0
    moves: Moves | None = None
    held_s: float = 0.0


def _moves(loads: Loads, table: RoutingTable, decision: Decision) -> Moves:
    """What a controller's decision moves: a part of a plan, or everything back to where it was."""
    assert decision.table is not None
    if decision.plan is not None and decision.record is not None:
        return decision.plan.moves.take(np.isin(decision.plan.moves.key, decision.record.keys))
    at = table.moved(decision.table, loads.keys)
    target = decision.table.place(loads.keys[at])
    kinds = np.full(len(at), Kind.MOVE_BACK.value)
    return Moves(at, loads.keys[at], loads.instance[at], target, kinds, loads.state[at])


def _record(passed: Passed, loads: Loads, decided: _Decided, pending: float) -> Record:
    moves, latencies, count = decided.moves, passed.latencies, len(passed.loads)
    moved_bytes = 0.0 if moves is None else float(moves.state_bytes.sum())
    total_bytes = float(loads.state.sum())
    processed, means_s = latencies.tuples(count), latencies.means_s(count)
    slowest, seconds = int(means_s.argmax()), passed.end_s - passed.start_s
    return Record(
        start_s=passed.start_s,
        seconds=seconds,
        tuples=passed.sent,
        keys=len(loads),
        skew=_skew(passed.loads),
        skew_planned=_skew(decided.after),
        imb_score=imb_score(passed.loads),
        processed=processed,
        received=passed.received,
        latency_s=latencies.mean_s(),
        latency_p50_s=latencies.quantile_s(0.5),
        latency_p99_s=latencies.quantile_s(0.99),
        latency_slowest_s=float(means_s[slowest]),
        throughput_slowest=float(processed[slowest]) / seconds if seconds > 0 else 0.0,
        pending=pending,
        status=decided.status,
        plan_s=decided.plan_s,
        moved_keys=0 if moves is None else len(np.unique(moves.key)),
        migrated_bytes=moved_bytes,
        migrated_share=moved_bytes / total_bytes if total_bytes > 0 else 0.0,
        held_s=decided.held_s,
        table_size=decided.table_size,
    )


def _skew(loads: F64) -> float:
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean > 0 else 1.0
