"""Triggers turn updates into checkpoints; a state is dirty until exactly it is durable."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, ManualClock, RecordingBackend, SlowBackend


def stored(backend: ckpt.Backend) -> dict[bytes, Any]:
    codec = ckpt.ValueCodec()
    return {k: codec.decode(v, namespace="words", key=k) for k, v in backend.scan("words")}


def dirty(keeper: ckpt.SafeKeeper) -> int:
    return keeper.metrics()["namespaces"]["words"]["dirty_states"]


def live(keeper: ckpt.SafeKeeper) -> int:
    return keeper.metrics()["namespaces"]["words"]["live_states"]


def test_without_a_trigger_nothing_is_saved_until_asked(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words")
    for n in range(1000):
        assert words.update("be", n) is None
    assert stored(memory) == {}
    assert words.load("be") == 999
    (ack,) = words.checkpoint()
    ack.result(5)
    assert stored(memory) == {b"be": 999}
    assert words.checkpoint() == []


def test_every_events_counts_each_key_by_itself(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words", every_events=3)
    triggered = [(key, n) for n in range(7) for key in "ab" if words.update(key, n) is not None]
    assert triggered == [("a", 2), ("b", 2), ("a", 5), ("b", 5)]
    keeper.flush()
    assert stored(memory) == {b"a": 5, b"b": 5}
    assert dirty(keeper) == 2


def test_every_s_saves_what_is_dirty(memory: ckpt.Backend, clock: ManualClock, open_keeper: Any) -> None:
    keeper = open_keeper(memory, clock=clock)
    words = keeper.namespace("words", every_s=5.0)
    words.update("a", 1)
    clock.advance(4.9)
    keeper.tick()
    keeper.flush()
    assert stored(memory) == {}
    clock.advance(0.1)
    keeper.tick()
    keeper.flush()
    assert stored(memory) == {b"a": 1}
    words.update("b", 2)
    keeper.tick()
    keeper.flush()
    assert stored(memory) == {b"a": 1}
    clock.advance(5)
    keeper.tick()
    keeper.flush()
    assert stored(memory) == {b"a": 1, b"b": 2}


def test_clean_states_are_not_saved_again(
    recording: RecordingBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(recording, clock=clock)
    words = keeper.namespace("words", every_s=1.0)
    words.update("a", 1)
    for _ in range(5):
        clock.advance(1)
        keeper.tick()
        keeper.flush()
    assert words.accounts().submitted == 1


def test_the_keepers_own_thread_ticks(open_keeper: Any) -> None:
    durable = threading.Event()
    keeper = open_keeper(on_result=lambda result: durable.set())
    words = keeper.namespace("words", every_s=0.01)
    words.update("a", 1)
    assert durable.wait(10)


def test_an_idle_state_is_evicted_and_comes_back(
    memory: ckpt.Backend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(memory, clock=clock)
    words = keeper.namespace("words", ttl_s=10)
    words.update("idle", {"count": 1})
    words.update("used", {"count": 2})
    clock.advance(6)
    words.load("used")
    clock.advance(5)
    keeper.tick()
    keeper.flush()
    assert live(keeper) == 1
    assert stored(memory) == {b"idle": {"count": 1}}
    assert words.load("idle") == {"count": 1}
    assert keeper.metrics()["loads"]["backend"] == 1


def test_an_evicted_state_is_loadable_while_its_save_is_under_way(
    slow: SlowBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(slow, clock=clock)
    words = keeper.namespace("words", ttl_s=10)
    words.update("a", 1)
    clock.advance(11)
    keeper.tick()
    slow.wait_for_calls(1)
    assert live(keeper) == 0
    assert words.load("a") == 1  # and that is a use: it stays
    assert live(keeper) == 1
    slow.open_gate()
    keeper.flush()
    assert live(keeper) == 1
    assert dirty(keeper) == 0


def test_an_update_during_eviction_wins(
    slow: SlowBackend, memory: ckpt.Backend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(slow, clock=clock)
    words = keeper.namespace("words", ttl_s=10)
    words.update("a", 1)
    clock.advance(11)
    keeper.tick()
    slow.wait_for_calls(1)
    words.update("a", 2)
    slow.open_gate()
    keeper.flush()
    assert words.load("a") == 2
    assert dirty(keeper) == 1
    keeper.checkpoint()
    keeper.flush()
    assert stored(memory) == {b"a": 2}


def test_a_failed_eviction_keeps_the_state(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty, clock=clock)
    words = keeper.namespace("words", ttl_s=10)
    words.update("a", 1)
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
    clock.advance(11)
    keeper.tick()
    with pytest.raises(ckpt.BackendUnavailableError):
        keeper.flush()
    assert words.load("a") == 1
    assert (live(keeper), dirty(keeper)) == (1, 1)
    faulty.mend()
    clock.advance(11)
    keeper.tick()
    keeper.flush()
    assert (live(keeper), dirty(keeper)) == (0, 0)
    assert words.load("a") == 1


def test_least_recently_used_states_leave_first(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words", max_states=2)
    words.update("a", 1)
    words.update("b", 2)
    words.load("a")
    words.update("c", 3)
    keeper.flush()
    assert stored(memory) == {b"b": 2}
    assert live(keeper) == 2
    assert words.load_many(["a", "b", "c"]) == {"a": 1, "b": 2, "c": 3}


def test_max_states_holds_under_many_keys(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words", max_states=10)
    for n in range(500):
        words.update(f"{n}", n)
        assert live(keeper) <= 10
    keeper.checkpoint()
    keeper.flush()
    assert stored(memory) == {b"%d" % n: n for n in range(500)}


def test_evict_saves_first_and_discard_does_not(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words")
    words.update("a", 1)
    words.evict("a").result(5)
    assert stored(memory) == {b"a": 1}
    words.update("a", 2)
    words.discard("a")
    assert words.load("a") == 1
    assert words.evict("a").done()
    assert words.evict("never seen").done()


def test_an_explicit_save_refreshes_the_live_state(open_keeper: Any) -> None:
    keeper = open_keeper()
    words = keeper.namespace("words")
    words.update("a", 1)
    words.save("a", 2).result(5)
    assert words.load("a") == 2
    assert dirty(keeper) == 0


def test_a_delete_forgets_the_live_state(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words", every_events=1)
    words.update("a", 1)
    words.delete("a")
    assert words.load("a") is None
    keeper.close()
    assert stored(memory) == {}


def test_close_saves_what_is_dirty(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory, queue_saves=2)
    words = keeper.namespace("words", every_events=100)
    for n in range(10):
        words.update(f"{n}", n)
    keeper.close()
    assert stored(memory) == {b"%d" % n: n for n in range(10)}


def test_update_copies_the_state(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words")
    state = {"seen": [1]}
    words.update("a", state)
    state["seen"].append(2)
    assert words.load("a") == {"seen": [1]}
    with pytest.raises(ckpt.SerializationError):
        words.update("a", threading.Lock())


def test_expiring_checkpoints() -> None:
    from ckpt_backends.memory import MemoryBackend

    clock = ManualClock()
    with MemoryBackend(clock=clock) as backend, ckpt.SafeKeeper(backend) as keeper:
        words = keeper.namespace("words", expire_s=60)
        words.save("a", 1).result(5)
        clock.advance(59)
        assert words.load("a") == 1
        clock.advance(2)
        assert words.load("a") is None


def test_expiry_needs_a_backend_that_can(memory: ckpt.Backend, open_keeper: Any) -> None:
    import dataclasses

    memory.capabilities = dataclasses.replace(memory.capabilities, ttl=False)
    with pytest.raises(ckpt.UnsupportedError, match="expire_s"):
        open_keeper(memory).namespace("words", expire_s=60)
