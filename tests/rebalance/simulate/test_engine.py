"""The engine: closed forms that it has to meet, and what holds of any stream, hold and halt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance import RoutingTable
from ckpt.rebalance.simulate import ByTable, Cluster, Engine, Halt, Hold, Interval, Latencies
from tests.rebalance.simulate.streams import constant, skewed


def engine_of(cluster: Cluster) -> Engine:
    return Engine(cluster, ByTable(RoutingTable(cluster.instances)))


class TestClosedForms:
    """Without moves, what happens can be said beforehand."""

    @given(
        work_s=st.lists(st.floats(0.1, 50), min_size=1, max_size=6),
        interval_s=st.floats(0.5, 20),
        max_pending=st.floats(1, 500),
        intervals=st.integers(1, 8),
    )
    def test_the_slowest_instance_sets_the_pace_or_else_the_source(
        self, work_s: list[float], interval_s: float, max_pending: float, intervals: int
    ) -> None:
        engine = engine_of(Cluster(len(work_s), interval_s, max_pending))
        passed = [engine.send(constant(work_s)) for _ in range(intervals)][-1]
        slowest = int(np.argmax(work_s))
        if work_s[slowest] <= interval_s:
            assert passed.end_s == pytest.approx(intervals * interval_s, rel=1e-9)
        else:  # it is never idle
            done_s = intervals * work_s[slowest] - engine.backlog_s()[slowest]
            assert passed.end_s == pytest.approx(done_s, rel=1e-9)
            assert engine.pending <= max_pending * (1 + 1e-9)

    def test_a_full_queue_makes_tuples_wait_for_all_of_it(self) -> None:
        engine = engine_of(Cluster(2, interval_s=10, max_pending=50))
        passed = [engine.send(constant([20.0, 10.0])) for _ in range(5)][-1]
        slow, quick = passed.latencies.means_s(2)
        assert slow == pytest.approx(50 * 0.2 + 0.2)  # 50 tuples of 0.2 s before it, and its own work
        assert quick == pytest.approx(0.1)
        assert passed.latencies.tuples(2) == pytest.approx([100, 100])

    def test_a_queue_that_grows_makes_later_tuples_wait_longer(self) -> None:
        passed = engine_of(Cluster(1, interval_s=10, max_pending=1000)).send(constant([20.0]))
        # 100 tuples in 10 s; one takes 0.2 s: 50 are done, the one that came at t waits t.
        assert passed.latencies.tuples(1) == pytest.approx([50])
        assert passed.latencies.quantile_s(0.5) == pytest.approx(2.5 + 0.2)
        assert passed.latencies.quantile_s(1.0) == pytest.approx(5.0 + 0.2)

    def test_a_halt_delays_what_comes_in_it_and_then_the_queue_empties(self) -> None:
        engine = engine_of(Cluster(2, interval_s=10, max_pending=1000))
        engine.halt([Halt(0, 2.0, 4.0)])
        passed = engine.send(constant([5.0, 5.0]))
        # 20 tuples came in the halt, and the instance works at twice the rate at which they come.
        assert passed.end_s == pytest.approx(10)
        assert engine.pending == pytest.approx(0)
        assert passed.latencies.quantile_s(1.0) == pytest.approx(2.0 + 0.05)
        assert passed.latencies.means_s(2)[1] == pytest.approx(0.05)
        # Waits fall from 2 s to 0 over 4 s, evenly: 40 of 100 tuples wait 1 s in the mean.
        assert passed.latencies.means_s(2)[0] == pytest.approx(0.4 * 1.0 + 0.05)

    def test_held_tuples_wait_and_others_do_not(self) -> None:
        engine = engine_of(Cluster(2, interval_s=10, max_pending=1000))
        engine.reroute(
            ByTable(RoutingTable(2, np.array([1], np.uint64), np.array([0]))),
            [Hold(np.array([1], np.uint64), 6.0)],
        )
        passed = engine.send(constant([2.0, 2.0]))
        assert passed.received == pytest.approx([200, 0])
        held = 60  # in 6 s; then they are 1.2 s of work for instance 0, with 0.4 s of work coming per second
        assert passed.latencies.quantile_s(1.0) == pytest.approx(6.0 + 0.02)
        assert passed.latencies.quantile_s(1 - 2 * held / 200) <= 1.2 + 0.02 + 1e-9

    def test_a_source_that_can_send_nothing_waits_for_the_key_to_resume(self) -> None:
        engine = engine_of(Cluster(1, interval_s=10, max_pending=20))
        engine.reroute(ByTable(RoutingTable(1)), [Hold(np.array([0], np.uint64), 8.0)])
        passed = engine.send(constant([5.0]))
        # 20 tuples in 2 s, then 6 s of silence; the queue empties at 20 per second while 10 come.
        assert passed.end_s == pytest.approx(2 + 6 + 8)
        assert passed.received == pytest.approx([100])

    def test_an_interval_without_tuples_lasts_as_long_as_any(self) -> None:
        empty = Interval.of(np.empty(0, np.uint64), [], [], [])
        assert engine_of(Cluster(3, interval_s=7)).send(empty).end_s == pytest.approx(7)


@st.composite
def disturbances(draw: st.DrawFn) -> list[tuple[float, list[int], float, int]]:
    """At a time, some keys are held for some seconds and an instance halts for as long."""
    one = st.tuples(
        st.floats(0, 40),
        st.lists(st.integers(0, 39), max_size=9, unique=True),
        st.floats(0, 15),
        st.integers(0, 2),
    )
    return sorted(draw(st.lists(one, max_size=5)))


@settings(max_examples=60)
@given(st.integers(0, 999), disturbances(), st.floats(5, 2000), st.floats(0.001, 0.05))
def test_tuples_are_processed_or_wait_and_nothing_else(
    seed: int, disturbed: list[tuple[float, list[int], float, int]], max_pending: float, work_s: float
) -> None:
    engine = engine_of(Cluster(3, 5.0, max_pending))
    stream = skewed(seed, 5, work_s=work_s)
    sent = processed = 0.0
    events = list(disturbed)
    for interval in stream:
        engine.begin(interval)
        while not engine.done:
            engine.advance(events[0][0] if events else float("inf"))
            while events and events[0][0] <= engine.now_s:
                _, held, lasts_s, instance = events.pop(0)
                keys = np.sort(stream[0].keys[np.array(held, np.int64) % len(stream[0])])
                table = RoutingTable(3, np.unique(keys), np.full(len(np.unique(keys)), instance))
                engine.reroute(
                    ByTable(table),
                    [Hold(np.unique(keys), engine.now_s + lasts_s)],
                    [Halt(instance, engine.now_s, engine.now_s + lasts_s)],
                )
        passed = engine.passed()
        sent += passed.sent
        processed += float(passed.latencies.tuples(3).sum())
        assert engine.pending <= max_pending * (1 + 1e-6)
        assert passed.end_s - passed.start_s >= 5.0 * (1 - 1e-9)
        assert min(passed.latencies.means_s(3)) >= 0
    assert sent == pytest.approx(sum(float(interval.tuples.sum()) for interval in stream))
    assert processed + engine.pending == pytest.approx(sent)


def test_tuples_of_a_dead_instance_are_sent_again_and_keep_their_times() -> None:
    engine = engine_of(Cluster(2, interval_s=10, max_pending=1000))
    engine.halt([Halt(0, 0.0, float("inf"))])
    engine.begin(constant([1.0, 1.0]))
    engine.advance(5.0)
    engine.reroute(ByTable(RoutingTable(2, np.array([0], np.uint64), np.array([1]))))
    engine.resend(0)
    engine.advance()
    passed = engine.passed()
    assert engine.pending == pytest.approx(0)
    assert passed.latencies.tuples(2) == pytest.approx([0, 200])
    assert passed.latencies.quantile_s(1.0) == pytest.approx(5.01)


def test_a_stream_that_can_never_go_on_is_an_error() -> None:
    engine = engine_of(Cluster(1, interval_s=1, max_pending=10))
    engine.halt([Halt(0, 0.0, float("inf"))])
    with pytest.raises(ConfigError, match="stands still"):
        engine.send(constant([1.0]))


@given(
    st.lists(
        st.tuples(st.floats(0.1, 50), st.floats(0, 5), st.sampled_from([0.0, 0.5, 3.0])),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 1),
)
def test_a_percentile_is_that_of_the_mixture(
    spans: list[tuple[float, float, float]], fraction: float
) -> None:
    latencies = Latencies()
    for tuples, first_s, width_s in spans:
        latencies.add(0, tuples, first_s, first_s + width_s)
    found = latencies.quantile_s(fraction)

    def at_most(time_s: float) -> float:
        shares = [
            min(1.0, max(0.0, (time_s - first_s) / width_s)) if width_s else float(first_s <= time_s)
            for _, first_s, width_s in spans
        ]
        return sum(tuples * share for (tuples, _, _), share in zip(spans, shares, strict=True))

    total = sum(tuples for tuples, _, _ in spans)
    assert at_most(found + 1e-6) >= fraction * total * (1 - 1e-6)
    assert at_most(found - 1e-6) <= fraction * total * (1 + 1e-6) + 1e-6
