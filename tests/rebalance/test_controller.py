"""The controller, over simulated intervals: when it plans, what it does, and what it makes of the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.controller import (
    Controller,
    ControllerOptions,
    Decision,
    Quiet,
    State,
    imb_score,
)
from ckpt.rebalance.loads import I32, Loads
from ckpt.rebalance.outcome import Verdict
from ckpt.rebalance.planning import Placement, Plan, Problem, plan
from ckpt.rebalance.planning.registry import forget, planner
from ckpt.rebalance.stage import Caps, stage
from ckpt.rebalance.table import RoutingTable, Split

INSTANCES, KEYS = 4, 64
EVEN = np.ones(KEYS)
INTERVAL_S = 10.0


def hot(*keys: int, by: float = 6.0) -> npt.NDArray[np.float64]:
    """The cost of each key if these are hot."""
    cost = EVEN.copy()
    cost[list(keys)] = by
    return cost


class Stream:
    """Keys of a simulated stream, routed by whatever the controller decides."""

    def __init__(self, planner_name: str = "mixed", **options: Any) -> None:
        self.planned = 0
        self.table = RoutingTable(INSTANCES)
        self.options = ControllerOptions(**options)
        self.controller = Controller(self.plan, self.options)
        self.interval = 0
        self.planner = planner_name
        self.keys = np.arange(KEYS, dtype=np.uint64)
        self.states: list[State] = []
        self._next: RoutingTable | None = None

    def plan(self, loads: Loads, table: RoutingTable, pinned: npt.NDArray[np.bool_], theta: float) -> Plan:
        self.planned += 1
        assert theta == self.options.theta * self.options.aim
        return plan(loads, self.planner, instances=INSTANCES, theta=theta, table=table, pinned=pinned)

    def loads(self, cost: npt.NDArray[np.float64]) -> Loads:
        return Loads(self.keys, cost, np.full(KEYS, 10.0), self.table.place(self.keys))

    def run(self, cost: npt.NDArray[np.float64], intervals: int = 1) -> Decision:
        """Some intervals with these costs; the last decision."""
        decision = Decision(self.controller.state, "")
        for _ in range(intervals):
            if self._next is not None and self._next.effective_from <= self.interval:
                self.table, self._next = self._next, None
            now_s = self.interval * INTERVAL_S
            decision = self.controller.observe(now_s, self.interval, self.loads(cost), self.table)
            self.states.append(decision.state)
            if decision.table is not None:
                assert decision.table.effective_from == self.interval + 1
                assert decision.table.version == self.table.version + 1, "each decision is the next version"
                self._next = decision.table
            self.interval += 1
        return decision

    def peak(self, cost: npt.NDArray[np.float64]) -> float:
        load = self.table.instance_loads(self.loads(cost))
        return float(load.max() / load.mean() - 1)


SKEW = hot(0, 4, 8)
"""Three hot keys on instance 0: the home of such small identities is their remainder."""


def test_nothing_is_planned_while_instances_are_within_their_limits() -> None:
    stream = Stream()
    stream.run(EVEN, 20)
    assert stream.planned == 0
    assert set(stream.states) == {State.BALANCED}


def test_a_short_burst_is_waited_out_and_a_longer_one_is_not() -> None:
    stream = Stream(wait_intervals=3)
    for _ in range(4):
        stream.run(SKEW, 2)
        assert stream.states[-1] is State.IMBALANCED
        stream.run(EVEN)
    assert stream.planned == 0
    decision = stream.run(SKEW, 3)
    assert stream.planned == 1
    assert decision.state is State.PLANNED


def test_a_plan_that_keeps_its_word_is_recorded_beside_its_forecast() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=2)
    decision = stream.run(SKEW)
    assert decision.plan is not None
    assert "instance 0 is" in decision.reason
    stream.run(SKEW, 2)
    (record,) = stream.controller.history
    assert record.verdict is Verdict.ARRIVED
    assert record.outcome == pytest.approx(record.forecast)
    assert record.gain == pytest.approx(record.forecast_gain)
    assert record.moves == len(decision.plan.moves)
    assert stream.peak(SKEW) <= 0.08 + 1e-6
    assert stream.states == [State.PLANNED, State.JUDGING, State.COOLING]
    stream.run(SKEW, 20)
    assert stream.planned == 1
    assert stream.states[-1] is State.BALANCED


def test_a_plan_of_which_less_than_half_arrives_is_rolled_back_and_stops_the_controller() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=2)
    decision = stream.run(SKEW)
    assert decision.plan is not None
    stayed = np.setdiff1d(np.arange(KEYS), stream.controller.history[0].keys.astype(int))
    target = int(decision.plan.moves.target[0])
    places = RoutingTable(INSTANCES).place(stream.keys)
    heavier = SKEW.copy()  # another key becomes hot on an instance that the plan moved a hot key to
    heavier[int(next(key for key in stayed if places[key] == target))] = 40
    decision = stream.run(heavier, 2)
    assert decision.state is State.ROLLING_BACK
    assert decision.record is not None
    assert decision.record.verdict is Verdict.ROLLED_BACK
    assert decision.table is not None
    assert decision.table.place(stream.keys).tolist() == places.tolist()
    stream.run(heavier, 10)
    assert stream.states[-1] is State.STOPPED
    assert stream.planned == 1
    stream.controller.resume()
    stream.run(heavier)
    assert stream.planned == 2


def test_what_happens_elsewhere_does_not_count_against_a_plan() -> None:
    """An instance that the plan did not touch gets a hot key of its own."""
    stream = Stream(wait_intervals=1, judge_intervals=2, max_moves=1)
    decision = stream.run(SKEW)
    assert decision.plan is not None
    (key,) = stream.controller.history[0].keys.tolist()
    target = int(decision.table.place(np.array([key], np.uint64))[0]) if decision.table else -1
    untouched = next(d for d in range(INSTANCES) if d not in (0, target))
    elsewhere = SKEW.copy()
    elsewhere[untouched] = 40
    stream.run(elsewhere, 2)
    (record,) = stream.controller.history
    assert record.verdict is Verdict.ARRIVED
    assert record.outcome == pytest.approx(record.forecast)


def test_a_stream_that_changes_in_the_meantime_is_not_the_plans_doing() -> None:
    """One more key of the instance that was relieved becomes hot: the peak is higher than before the plan."""
    stream = Stream(wait_intervals=1, judge_intervals=2)
    stream.run(SKEW)
    moved = stream.controller.history[0].keys.tolist()
    hotter = SKEW.copy()
    hotter[next(key for key in range(12, KEYS, 4) if key not in moved)] = 30
    stream.run(hotter, 2)
    (record,) = stream.controller.history
    assert record.outcome is not None
    assert record.gain is not None
    assert record.outcome > record.before
    assert record.gain > 0.5 * record.forecast_gain
    assert record.verdict is Verdict.ARRIVED


def test_a_plan_that_gains_too_little_is_not_carried_out() -> None:
    stream = Stream(wait_intervals=1, min_gain=0.9)
    decision = stream.run(SKEW)
    assert stream.planned == 1
    assert "too little" in decision.reason
    assert decision.table is None
    assert not stream.controller.history
    stream.run(SKEW, 10)
    assert stream.planned == 1, "nothing has changed since"


def test_a_rollback_leaves_what_a_person_changed_in_the_meantime() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=1)
    decided = stream.run(SKEW).table
    assert decided is not None
    pinned = RoutingTable(INSTANCES, np.array([63], np.uint64), np.array([2]), version=decided.version + 1)
    stream._next = replace(decided.adopting(pinned, pinned.keys), effective_from=1)
    worse = SKEW.copy()
    worse[decided.active[0]] = 50  # a key that is at home on an instance that the plan has changed
    back = stream.run(worse).table
    assert back is not None
    assert back.keys.tolist() == [63]
    assert back.version == pinned.version + 1


def test_plans_keep_their_distance() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=1, cooldown_s=10 * INTERVAL_S)
    made = []
    for step in range(60):
        before = stream.planned
        stream.run(hot(*(step // 4 * 5 + at for at in (0, 4, 8) if step // 4 * 5 + at < KEYS), by=9))
        if stream.planned > before:
            made.append(step)
    assert len(made) > 2
    assert all(later - earlier >= 10 for earlier, later in pairwise(made))


def test_an_imbalance_that_no_plan_can_mend_is_planned_for_once() -> None:
    giant = hot(0, by=400)
    stream = Stream(wait_intervals=1, cooldown_s=0)
    stream.run(giant, 30)
    assert stream.planned <= 2


def test_slow_drift_counts_against_the_last_plan() -> None:
    """Each interval differs from the one before by a tenth of the drift that a new plan needs."""
    stream = Stream(wait_intervals=1, cooldown_s=0, min_drift=0.1)
    cost = hot(0, by=400)
    stream.run(cost, 10)
    planned = stream.planned
    mean = cost.sum() / INSTANCES
    for step in range(1, 40):
        drifted = cost.copy()
        drifted[1] += 0.01 * mean * step
        stream.run(drifted)
    assert planned < stream.planned <= planned + 8


def test_a_dry_run_proposes_once_and_decides_nothing() -> None:
    stream = Stream(wait_intervals=1, dry_run=True, cooldown_s=30)
    decision = stream.run(SKEW)
    assert decision.table is None
    assert decision.plan is not None
    assert decision.record is not None
    assert decision.record.verdict is Verdict.PROPOSED
    stream.run(SKEW, 20)
    assert stream.planned == 1, "as long as nothing changes, there is nothing new to propose"
    assert stream.table.version == 0
    stream.run(hot(1, 5, 9, 13), 5)
    assert stream.planned == 2


def test_caps_spread_a_plan_over_intervals_without_a_pause_between() -> None:
    stream = Stream(wait_intervals=3, judge_intervals=1, cooldown_s=10_000, max_moves=1)
    skew = hot(0, 4, 8, 12, by=9)
    stream.run(skew, 30)
    records = list(stream.controller.history)
    assert len(records) > 1
    assert all(record.moves == 1 for record in records)
    assert [later.interval - earlier.interval for earlier, later in pairwise(records)] == [2] * (
        len(records) - 1
    )
    assert stream.peak(skew) <= 0.08 + 1e-6


def test_no_interval_moves_more_bytes_than_the_cap() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=1, max_bytes=25)
    stream.run(hot(0, 4, 8, 12, by=9), 20)
    assert [record.state_bytes <= 25 for record in stream.controller.history]
    assert max(record.state_bytes for record in stream.controller.history) == 20


def test_excluded_keys_stay_where_they_are() -> None:
    stream = Stream(wait_intervals=1, excluded=frozenset({0, 4}))
    stream.run(SKEW, 10)
    assert stream.table.version > 0
    assert {0, 4}.isdisjoint(stream.table.keys.tolist())


def test_nothing_is_planned_in_a_quiet_time() -> None:
    stream = Stream(wait_intervals=1, quiet=(Quiet(86_000, 100),))
    stream.run(SKEW, 10)
    assert stream.planned == 0
    stream.run(SKEW)
    assert stream.planned == 1
    assert 86_399 in Quiet(86_000, 100)
    assert 5 * 86_400 + 99 in Quiet(86_000, 100)
    assert 100 not in Quiet(86_000, 100)
    assert 50 in Quiet(0, 100)


def test_the_deviation_of_loads_can_be_a_reason_to_plan() -> None:
    cost = EVEN.copy()
    cost[(np.arange(KEYS) % INSTANCES) >= 2] = 0.95
    assert imb_score(np.array([16, 16, 15.2, 15.2])) == pytest.approx(100 * 0.4 / 15.6)
    for threshold, planned in ((3.0, 0), (2.0, 1)):
        stream = Stream(wait_intervals=1, imb_score=threshold)
        stream.run(cost, 3)
        assert stream.planned == planned


def test_a_paused_controller_decides_nothing() -> None:
    stream = Stream(wait_intervals=1)
    stream.controller.pause()
    stream.run(SKEW, 5)
    assert stream.planned == 0
    stream.controller.resume()
    stream.run(SKEW)
    assert stream.planned == 1
    with pytest.raises(ConfigError, match="only a paused or stopped one"):
        stream.controller.resume()


def test_an_interval_cannot_be_told_twice() -> None:
    stream = Stream()
    stream.run(EVEN)
    with pytest.raises(ConfigError, match="interval 0 comes after interval 0"):
        stream.controller.observe(0, 0, stream.loads(EVEN), stream.table)


def test_a_table_that_comes_late_is_waited_for() -> None:
    stream = Stream(wait_intervals=1, judge_intervals=1)
    decided = stream.run(SKEW).table
    assert decided is not None
    stream._next = replace(decided, effective_from=5)
    stream.run(SKEW, 5)
    assert stream.states == [State.PLANNED] * 5 + [State.COOLING]


@pytest.fixture
def merging() -> Iterator[str]:
    """A planner that puts every key home and splits none."""

    @planner("merging", splits=True)
    def merge_all(problem: Problem) -> Placement:
        return Placement(problem.home)

    yield "merging"
    forget("merging")


@pytest.mark.parametrize(("light", "merged"), [(4, False), (5, True)])
def test_a_split_key_is_merged_only_after_it_was_light_for_long(
    merging: str, light: int, merged: bool
) -> None:
    stream = Stream(merging, wait_intervals=1, merge_intervals=6, theta=0.5)
    stream.table = RoutingTable(
        INSTANCES, np.array([4], np.uint64), np.array([1]), splits=(Split(0, (0, 1), (0.5, 0.5)),), version=1
    )
    stream.run(hot(0, by=17), 10)  # above half the mean
    stream.run(hot(0, by=2), light)
    assert stream.planned == 0
    overloading_1 = hot(0, *range(1, KEYS, 4), by=2)
    overloading_1[4] = 10
    decision = stream.run(overloading_1)
    assert decision.table is not None
    assert len(decision.table.splits) == (0 if merged else 1)
    assert 4 not in decision.table.keys.tolist()


COSTS = st.lists(
    st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 60)), max_size=5), min_size=1, max_size=25
)


@given(COSTS, st.sampled_from(["mixed", "simple"]), st.booleans(), st.none() | st.integers(0, 3), st.data())
@settings(max_examples=40, deadline=None)
def test_any_stream_keeps_to_the_states_and_is_decided_the_same_twice(
    costs: list[list[tuple[int, int]]], name: str, dry_run: bool, max_moves: int | None, data: st.DataObject
) -> None:
    options: dict[str, Any] = {"wait_intervals": 1, "judge_intervals": 2, "cooldown_s": 20.0}
    options |= {"dry_run": dry_run, "max_moves": max_moves}
    first, second = Stream(name, **options), Stream(name, **options)
    for hot_keys in costs:
        cost = EVEN.copy()
        for key, by in hot_keys:
            cost[key] = by
        decisions = [stream.run(cost) for stream in (first, second)]
        assert decisions[0].state is decisions[1].state
        assert decisions[0].reason == decisions[1].reason
        tables = [b"" if made.table is None else made.table.to_bytes() for made in decisions]
        assert tables[0] == tables[1]
        act: Callable[[Controller], None] | None = None
        if data.draw(st.integers(0, 9)) == 0:
            state = first.controller.state
            act = Controller.resume if state in (State.PAUSED, State.STOPPED) else Controller.pause
        if act is not None:
            act(first.controller)
            act(second.controller)
    if dry_run or max_moves == 0:
        assert first.table.version == 0


@st.composite
def situations(draw: st.DrawFn) -> tuple[Loads, RoutingTable]:
    count = draw(st.integers(1, 12))
    amount = st.lists(st.integers(0, 20), min_size=count, max_size=count)
    table = RoutingTable(3, np.array([1], np.uint64), np.array([2]), splits=(Split(0, (1, 2), (0.5, 0.5)),))
    keys = np.arange(count, dtype=np.uint64)
    return Loads(keys, draw(amount), draw(amount), table.place(keys), rest=[1, 2, 0]), table


def scattered(problem: Problem) -> I32:
    """A bad plan that moves nearly every key."""
    return ((problem.current + 1) % problem.instances).astype(np.int32)


@given(situations(), st.none() | st.integers(0, 5), st.none() | st.integers(0, 40))
@settings(max_examples=80, deadline=None)
def test_a_stage_is_within_its_caps_and_its_loads_are_those_of_a_recount(
    situation: tuple[Loads, RoutingTable], moves: int | None, state_bytes: int | None
) -> None:
    loads, table = situation
    made = plan(loads, scattered, instances=3, theta=0.0, table=table)
    caps = Caps(moves, state_bytes)
    staged = stage(made, table, caps)
    place = loads.instance.copy()
    chosen = np.isin(loads.keys, staged.keys)
    place[chosen] = made.place[chosen]
    moved = Loads(loads.keys, loads.cost, loads.state, place, rest=loads.rest)
    assert staged.table.instance_loads(moved).tolist() == pytest.approx(staged.after.tolist())
    single = ~np.isin(loads.keys, staged.table.split_keys)
    assert staged.table.place(loads.keys)[single].tolist() == place[single].tolist()
    assert moves is None or staged.moves <= moves
    assert state_bytes is None or staged.state_bytes <= state_bytes
    if caps == Caps():
        assert staged.after.tolist() == pytest.approx(made.loads_after.tolist())
        assert staged.table.to_bytes() == made.table.to_bytes()
    else:
        assert staged.after.max() <= staged.before.max() + 1e-9


def test_a_change_of_the_number_of_instances_is_one_stage_whatever_the_caps() -> None:
    table = RoutingTable(2)
    keys = np.arange(8, dtype=np.uint64)
    loads = Loads(keys, np.ones(8), np.ones(8), table.place(keys))
    made = plan(loads, "mixed", instances=4, table=table)
    staged = stage(made, table, Caps(1, 1.0))
    assert staged.whole
    assert staged.table.instances == 4
    assert staged.after.tolist() == made.loads_after.tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"theta": -1}, "theta"),
        ({"theta": float("nan")}, "theta"),
        ({"wait_intervals": 0}, "wait_intervals"),
        ({"max_moves": -1}, "max_moves"),
        ({"imb_score": float("nan")}, "imb_score"),
        ({"quiet": (Quiet(0, 100_000),)}, "quiet time"),
    ],
)
def test_options_that_cannot_be_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ControllerOptions(**changed)
