"""Whole runs: where keys are processed, what moves, what dies, and that all of it can be told again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance import ControllerOptions, RoutingTable, planner_names
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.loads import U64
from ckpt.rebalance.simulate import (
    PROTOCOLS,
    Balancing,
    Cluster,
    Crash,
    Failure,
    FromStore,
    Halt,
    Interval,
    Migration,
    Network,
    Protocol,
    Recovered,
    Schedule,
    Splitter,
    pause_and_resume,
    run,
)
from ckpt.rebalance.simulate.running import RULES
from tests.rebalance.simulate.streams import constant, skewed

INSTANCES = 3
TIGHT = Cluster(INSTANCES, interval_s=5.0, max_pending=300, network=Network(5e3, 0.05))
"""Moving takes seconds, and queues are long."""
protocols = st.sampled_from([*PROTOCOLS.values(), Splitter(2e4, keys_at_once=3)])
planners = st.sampled_from(["lag", "mixed", "lptf", "dlb-h"])


class Where:
    """When each key was processed where."""

    def __init__(self) -> None:
        self.spans: dict[int, list[tuple[float, float, int]]] = {}

    def __call__(self, instance: int, keys: U64, start_s: float, end_s: float) -> None:
        for key in keys.tolist():
            self.spans.setdefault(key, []).append((start_s, end_s, instance))

    def check(self) -> None:
        """No key is processed on an instance before another one is done with it."""
        for spans in self.spans.values():
            for (_, end_s, before), (start_s, _, after) in pairwise(spans):
                assert before == after or end_s <= start_s + 1e-9


class TestMoves:
    @settings(max_examples=25)
    @given(st.integers(0, 999), planners, protocols)
    def test_no_key_is_processed_on_two_instances_at_once(
        self, seed: int, planner: str, protocol: Protocol
    ) -> None:
        where, moves = Where(), 0
        for number, record in enumerate(
            run(skewed(seed, 8), TIGHT, Balancing(planner, protocol=protocol), watch=where).records
        ):
            moves += record.moved_keys
            assert number == 7 or record.moved_keys == 0 or record.held_s > 0
        assert moves > 0
        where.check()

    @settings(max_examples=25)
    @given(st.integers(0, 999), planners, protocols, st.integers(1, 4))
    def test_state_is_always_in_one_place_and_all_of_it_moves(
        self, seed: int, planner: str, protocol: Protocol, size: int
    ) -> None:
        stream = skewed(seed, 8)
        seen: list[Migration] = []

        def spied(migration: Migration) -> Schedule:
            seen.append(migration)
            return protocol(migration)

        records = run(stream, TIGHT, Balancing(planner, window=size, protocol=spied)).records
        place = {
            key: int(home)
            for part in stream
            for key, home in zip(part.keys.tolist(), homes(part.keys, INSTANCES).tolist(), strict=True)
        }
        moving = iter(seen)
        for number, record in enumerate(records):
            held = dict.fromkeys(place, 0.0)
            for part in stream[max(0, number + 1 - size) : number + 1]:
                for key, state in zip(part.keys.tolist(), part.state.tolist(), strict=True):
                    held[key] += state
            if record.moved_keys:
                migration = next(moving)
                for key, source, target, state in zip(
                    migration.keys.tolist(),
                    migration.source.tolist(),
                    migration.target.tolist(),
                    migration.state_bytes.tolist(),
                    strict=True,
                ):
                    assert place[key] == source
                    assert held[key] == state
                    place[key] = target
                assert record.migrated_share == pytest.approx(
                    migration.state_bytes.sum() / sum(held.values())
                )
        assert next(moving, None) is None

    @settings(max_examples=20)
    @given(st.integers(0, 999), planners, protocols)
    def test_every_tuple_is_processed_or_waits(self, seed: int, planner: str, protocol: Protocol) -> None:
        stream = skewed(seed, 6)
        result = run(stream, TIGHT, Balancing(planner, protocol=protocol))
        sent = sum(float(interval.tuples.sum()) for interval in stream)
        assert result.column("tuples").sum() == pytest.approx(sent)
        assert result.processed + result.records[-1].pending == pytest.approx(sent)

    def test_balance_makes_a_held_back_stream_faster(self) -> None:
        # All keys have their home on instance 0, and their work is three times what it can do.
        interval = Interval(np.arange(0, 30, 3, dtype=np.uint64), *(np.full(10, x) for x in (30.0, 1.5, 9.0)))
        cluster = Cluster(3, interval_s=5.0, max_pending=100)
        slow, quick = (run([interval] * 10, cluster, Balancing(name)).records[-1] for name in ("kg", "lag"))
        assert slow.throughput == pytest.approx(20)  # 0.05 s of work each, on one instance
        assert quick.throughput == pytest.approx(60, rel=0.25)  # as the source offers; ten keys on three
        assert (slow.instances_used, quick.instances_used) == (1, 3)
        assert slow.skew == 3.0
        assert quick.skew < 1.3

    def test_only_keys_that_move_wait_for_a_pause(self) -> None:
        stream = [constant([1.0, 1.0, 1.0])] * 3
        seen = []

        def told(migration: Migration) -> Schedule:
            seen.append(migration)
            return pause_and_resume(migration)

        heavy = Interval(np.array([0, 1, 3, 6], np.uint64), *(np.array([9, 1, 9, 9.0]),) * 3)
        records = run(
            [heavy, *stream], replace(TIGHT, max_pending=1e9), Balancing("lag", protocol=told)
        ).records
        moved = {int(key) for migration in seen for key in migration.keys}
        assert moved
        assert moved <= {0, 3, 6}
        assert records[0].held_s > 0

    def test_the_later_of_two_ways_decides_when_a_key_resumes(self) -> None:
        network = Network(bandwidth_bytes_s=100, latency_s=0.5)
        two = (np.array([1, 2], np.uint64), np.array([0, 1], np.int32), np.array([2, 2], np.int32))
        migration = Migration(10.0, *two, np.array([100.0, 300.0]), np.array([2.0, 0.0, 5.0]), network)
        # Told at 10.5; the first source is drained 2 s later and sends for 1 s, the second sends for 3 s; the
        # target receives 400 bytes from 10.5 on; then a message each for arrival, acknowledgement and resume.
        assert pause_and_resume(migration).resume_s == pytest.approx([14.5 + 1.5] * 2)
        # From the store: 1 s and then 3 s of reading; the first key's old instance is busy until 12.
        assert Splitter(100, keys_at_once=1)(migration).resume_s == pytest.approx([12.5, 16.0])
        assert Splitter(100, keys_at_once=2)(migration).resume_s == pytest.approx([15.0, 15.0])

    def test_a_reload_stops_what_stays_as_well(self) -> None:
        network = Network(bandwidth_bytes_s=100, latency_s=0.0)
        one = (np.array([1], np.uint64), np.array([0], np.int32), np.array([2], np.int32), np.array([500.0]))
        schedule = PROTOCOLS["reload"](Migration(10.0, *one, np.array([2.0, 0.0, 0.0]), network))
        assert schedule.halts == (Halt(0, 12.0, 17.0), Halt(2, 12.0, 17.0))
        assert schedule.resume_s.tolist() == [17.0]


class TestWhenToPlan:
    def test_by_the_score_of_the_loads(self) -> None:
        stream = skewed(3, 6)
        never = run(stream, TIGHT, Balancing("dlb-h", theta=0.0, above_score=1e6))
        assert {record.status for record in never.records} == {"balanced"}
        often = run(stream, TIGHT, Balancing("dlb-h", theta=0.0, above_score=10.0))
        for record in often.records:
            assert (record.status in {"balanced", "still moving"}) or record.imb_score > 10

    def test_by_a_controller_that_waits_and_judges(self) -> None:
        interval = Interval(np.arange(0, 30, 3, dtype=np.uint64), *(np.full(10, x) for x in (30.0, 1.5, 9.0)))
        controller = ControllerOptions(theta=0.3, aim=1.0, wait_intervals=3, judge_intervals=2, cooldown_s=0)
        records = run([interval] * 9, Cluster(3, 5.0, 100), Balancing("lag", controller=controller)).records
        assert [record.moved_keys > 0 for record in records].index(True) == 2
        assert sum(record.moved_keys > 0 for record in records) == 1
        assert "judging" in {record.status for record in records}
        assert records[-1].skew < 1.3

    @pytest.mark.parametrize("planner", sorted(RULES - {"kg"}))
    def test_a_rule_sees_tuples_as_they_come(self, planner: str) -> None:
        cluster = Cluster(4, 5.0)
        result, by_key = (run(skewed(1, 5), cluster, Balancing(name)) for name in (planner, "kg"))
        assert result.column("skew").mean() < by_key.column("skew").mean()
        assert result.column("migrated_bytes").sum() == 0
        assert result.column("received").sum() == pytest.approx(5000)

    def test_every_planner_without_a_table_is_a_rule(self) -> None:
        for name in set(planner_names()) - {"exact"}:
            result = run(skewed(1, 3), Cluster(4, 5.0), Balancing(name))
            assert (name in RULES) == (not result.column("table_size").any()), name
            assert result.processed + result.records[-1].pending == pytest.approx(3000), name


class TestFailures:
    def test_a_dead_instance_reads_its_state_and_then_catches_up(self) -> None:
        stream = [constant([2.0, 2.0, 2.0])] * 6  # 100 bytes each a time, two fifths of an instance busy
        died = Failure(12.0, 1)
        recovery = FromStore(detect_s=1.0, read_bytes_s=100.0)
        where = Where()
        result = run(
            stream, Cluster(3, 5.0, 1e6), Balancing("kg"), failures=[died], recovery=recovery, watch=where
        )
        # Two intervals of state had been measured: 200 bytes, so it is back at 12 + 1 + 2 seconds.
        idle = [start_s for start_s, _, _ in where.spans[1] if start_s >= 12.0]
        assert min(idle) == pytest.approx(15.0)
        assert result.processed == pytest.approx(1800)
        assert result.records[2].pending == pytest.approx(100 * 3 / 5)
        assert result.column("latency_p99_s").max() == pytest.approx(3.0, rel=0.1)

    def test_keys_may_be_given_to_others(self) -> None:
        def to_the_next(crash: Crash) -> Recovered:
            dead = crash.failure.instance
            keys = crash.loads.keys[crash.loads.instance == dead]
            table = RoutingTable(3, keys, np.full(len(keys), (dead + 1) % 3))
            gone = [Halt(dead, crash.failure.at_s, math.inf)]
            return Recovered(gone, table, keys, np.full(len(keys), crash.failure.at_s + 2.0))

        where = Where()
        stream = [constant([4.0, 4.0, 2.0])] * 6
        result = run(
            stream,
            Cluster(3, 5.0, 1e6),
            Balancing("kg"),
            failures=[Failure(12.0, 1)],
            recovery=to_the_next,
            watch=where,
        )
        later = [(start_s, instance) for start_s, _, instance in where.spans[1] if start_s >= 12.0]
        assert {instance for _, instance in later} == {2}
        assert min(start_s for start_s, _ in later) == pytest.approx(14.0)
        assert result.processed + result.records[-1].pending == pytest.approx(1800)

    @settings(max_examples=20)
    @given(
        st.integers(0, 99),
        protocols,
        st.lists(st.tuples(st.floats(0, 40), st.integers(0, INSTANCES - 1)), max_size=4),
    )
    def test_in_the_middle_of_a_move_nothing_is_lost(
        self, seed: int, protocol: Protocol, died: list[tuple[float, int]]
    ) -> None:
        failures = [Failure(5.3, 0), *(Failure(at_s, instance) for at_s, instance in died)]
        where = Where()
        result = run(
            skewed(seed, 6),
            TIGHT,
            Balancing("lptf", protocol=protocol),
            failures=failures,
            recovery=FromStore(3.0, 1e4),
            watch=where,
        )
        assert result.processed + result.records[-1].pending == pytest.approx(6000)
        where.check()

    def test_an_instance_that_is_not_there_cannot_die(self) -> None:
        with pytest.raises(ConfigError, match="instance 3 cannot die"):
            run([], TIGHT, failures=[Failure(1.0, 3)])


def test_the_same_run_gives_the_same_figures() -> None:
    def figures() -> dict[str, object]:
        found = run(skewed(2, 6), TIGHT, Balancing("mixed"), failures=[Failure(7.0, 1)]).document()
        del found["plan_s"]
        return found

    assert figures() == figures()


def test_a_run_may_end_before_its_workload() -> None:
    result = run(skewed(2, 6), Cluster(INSTANCES, 5.0), until_s=12.0)
    assert result.seconds == pytest.approx(12.0)
    assert result.column("tuples").tolist() == pytest.approx([1000, 1000, 400])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cluster(0), "instances must be from 1"),
        (lambda: Cluster(2, interval_s=0), "interval_s must be above 0"),
        (lambda: Cluster(2, max_pending=0), "max_pending must be above 0"),
        (lambda: Network(bandwidth_bytes_s=0), "bandwidth_bytes_s must be above 0"),
        (lambda: Network(latency_s=-1), "latency_s must be from 0"),
        (lambda: Splitter(keys_at_once=0), "keys_at_once at least 1"),
        (lambda: FromStore(read_bytes_s=0), "read_bytes_s above 0"),
        (lambda: Balancing(window=3, load_intervals=4), "load_intervals must be from 1 to the window"),
        (lambda: run(skewed(1, 1), TIGHT, Balancing("mixt")), "did you mean 'mixed'"),
        (lambda: run(skewed(1, 1), TIGHT, Balancing("mixed", options={"beto": 1})), "no option 'beto'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
