"""A SafeKeeper over a backend that fails and waits at random behaves as a dict of what was said last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import ckpt
from ckpt.testing import FaultyBackend, ManualClock
from tests.effort import effort

KEYS = st.sampled_from(["a", "b", "c", "d"])
STATES = (
    st.integers()
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
    | st.lists(st.text(max_size=2))
)


class KeeperMachine(RuleBasedStateMachine):
    """`said` is the newest state of each key, `durable` what a new keeper must find after a crash."""

    @initialize(
        max_states=st.none() | st.integers(1, 3),
        every_events=st.none() | st.integers(1, 3),
        queue_saves=st.integers(1, 5),
    )
    def open(self, max_states: int | None, every_events: int | None, queue_saves: int) -> None:
        self.clock = ManualClock()
        self.backend = FaultyBackend(ckpt.open_backend("memory://"))
        self.options = {
            "max_states": max_states,
            "every_events": every_events,
            "every_s": 10.0,
            "ttl_s": 30.0,
        }
        self.queue_saves = queue_saves
        self.said: dict[str, Any] = {}
        self.start()

    def start(self) -> None:
        self.keeper = ckpt.SafeKeeper(self.backend, clock=self.clock, retry_s=0, queue_saves=self.queue_saves)
        self.words = self.keeper.namespace("words", **self.options)

    @rule(key=KEYS, state=STATES)
    def save(self, key: str, state: Any) -> None:
        self.words.save(key, state).result(10)
        self.said[key] = state

    @rule(key=KEYS, state=STATES)
    def save_without_waiting(self, key: str, state: Any) -> None:
        self.words.save(key, state)
        self.said[key] = state

    @rule(key=KEYS, state=STATES)
    def update(self, key: str, state: Any) -> None:
        self.words.update(key, state)
        self.said[key] = state

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.words.delete(key)
        self.said.pop(key, None)

    @rule(key=KEYS)
    def evict(self, key: str) -> None:
        self.words.evict(key)

    @rule(key=KEYS)
    def load(self, key: str) -> None:
        assert self.words.load(key) == self.said.get(key)

    @rule()
    def load_all(self) -> None:
        assert self.words.load_many(["a", "b", "c", "d"]) == self.said

    @rule(seconds=st.sampled_from([1.0, 11.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.keeper.tick()

    @rule()
    def recover(self) -> None:
        assert self.words.recover().wait(10)

    @rule(key=KEYS, state=STATES)
    def a_failing_save_of_a_live_state_loses_nothing(self, key: str, state: Any) -> None:
        self.keeper.flush()
        self.words.update(key, state)
        self.said[key] = state
        self.backend.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
        for ack in self.words.checkpoint():
            assert ack.exception(10) is not None
        with pytest.raises(ckpt.BackendUnavailableError):
            self.keeper.flush()
        self.backend.mend()

    @rule()
    def restart(self) -> None:
        self.keeper.close()
        self.start()

    @invariant()
    @precondition(lambda self: hasattr(self, "words"))
    def accounts_balance(self) -> None:
        assert self.words.accounts().balanced

    def teardown(self) -> None:
        if hasattr(self, "keeper"):
            self.keeper.close()
            codec = ckpt.ValueCodec()
            found = {
                k.decode(): codec.decode(v, namespace="words", key=k) for k, v in self.backend.scan("words")
            }
            assert found == self.said
            self.backend.close()


KeeperMachine.TestCase.settings = settings(
    max_examples=effort(20, 300),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestKeeper = KeeperMachine.TestCase
