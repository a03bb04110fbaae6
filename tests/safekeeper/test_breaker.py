"""Closed, open, half-open: in that order, by the clock, with one probe at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ckpt.keeper.breaker import Breaker, BreakerState
from ckpt.testing import ManualClock


def make(failures: int = 3) -> tuple[Breaker, ManualClock]:
    clock = ManualClock()
    return Breaker(failures=failures, pause_s=10, clock=clock), clock


def test_only_failures_in_a_row_count() -> None:
    breaker, _ = make()
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        assert breaker.allows()
        outcome()
    assert breaker.state is BreakerState.CLOSED


def test_one_probe_decides() -> None:
    breaker, clock = make(1)
    breaker.failed()
    assert not breaker.allows()
    assert breaker.remaining_s() == 10
    clock.advance(10)
    assert breaker.allows()
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.allows()
    breaker.failed()
    assert not breaker.allows()
    clock.advance(10)
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.allows()
    assert breaker.times_opened == 2


@given(st.lists(st.sampled_from(["fail", "succeed", "wait"]), max_size=60))
def test_never_a_call_within_the_pause_and_always_one_after(steps: list[str]) -> None:
    breaker, clock = make(2)
    opened_s: float | None = None
    in_a_row = 0
    for step in steps:
        if step == "wait":
            clock.advance(4)
            continue
        assert breaker.untroubled == (opened_s is None and in_a_row == 0)
        allowed = breaker.allows()
        assert allowed == (opened_s is None or clock() - opened_s >= 10)
        if not allowed:
            continue
        if step == "succeed":
            breaker.succeeded()
            opened_s, in_a_row = None, 0
        else:
            breaker.failed()
            in_a_row += 1
            if opened_s is not None or in_a_row >= 2:
                opened_s = clock()
