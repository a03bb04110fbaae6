"""A full queue does what the named policy says, and a queued key always takes a newer save."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ckpt
from ckpt.testing import ManualClock, SlowBackend


def full(
    open_keeper: Any, slow: SlowBackend, **options: Any
) -> tuple[ckpt.SafeKeeper, ckpt.Namespace, list[Any]]:
    """A keeper whose writer waits at the gate with one save, and whose queue holds a, b and c."""
    keeper = open_keeper(slow, queue_saves=3, **options)
    words = keeper.namespace("words")
    words.save("first", 0)
    slow.wait_for_calls(1)
    return keeper, words, [words.save(key, 1) for key in "abc"]


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), name="ckpt-test-producer")
    thread.start()
    return thread, results


def until_blocked(keeper: ckpt.SafeKeeper, count: int = 1) -> None:
    while keeper._queue._blocked < count:
        threading.Event().wait(0.001)


@pytest.mark.parametrize("policy", [p.value for p in ckpt.Overflow])
def test_a_queued_key_always_takes_a_newer_save(policy: str, slow: SlowBackend, open_keeper: Any) -> None:
    keeper, words, acks = full(open_keeper, slow, overflow=policy)
    again = words.save("b", 2)
    assert not again.done()
    slow.open_gate()
    again.result(5)
    keeper.flush()
    assert words.load("b") == 2
    assert all(ack.exception(5) is None for ack in acks)


@pytest.mark.parametrize("policy", ["block", "adapt"])
def test_an_explicit_save_waits_for_room(policy: str, slow: SlowBackend, open_keeper: Any) -> None:
    keeper, words, _ = full(open_keeper, slow, overflow=policy)
    thread, results = in_thread(lambda: words.save("d", 1))
    until_blocked(keeper)
    assert words.accounts().submitted == 4
    slow.open_gate()
    thread.join(5)
    results[0].result(5)
    assert words.accounts().dropped == 0


def test_waiting_for_room_may_have_an_end(slow: SlowBackend, open_keeper: Any) -> None:
    _, words, _ = full(open_keeper, slow, overflow="block", block_timeout_s=0.01)
    ack = words.save("d", 1)
    with pytest.raises(ckpt.QueueFullError, match="key b'd' of namespace 'words' was dropped"):
        ack.result(0)
    assert words.accounts().dropped == 1


def test_closing_frees_whoever_waits_for_room(slow: SlowBackend, open_keeper: Any) -> None:
    keeper, words, acks = full(open_keeper, slow, overflow="block")
    threads = [in_thread(lambda n=n: words.save(f"d{n}", 1)) for n in range(4)]
    until_blocked(keeper, 4)
    closer, _ = in_thread(keeper.close)
    for thread, results in threads:
        thread.join(5)
        with pytest.raises(ckpt.BackendUnavailableError, match="closed"):
            results[0].result(0)
    slow.open_gate()
    closer.join(5)
    assert all(ack.exception(0) is None for ack in acks)
    assert words.accounts().balanced


def test_a_save_that_was_overtaken_while_it_waited_changes_nothing(
    slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    """One thread waits to save an evicted state; once there is room, a newer state of it is durable."""
    keeper, words, _ = full(open_keeper, slow, overflow="block")
    words.update("k", "old")
    waiting, results = in_thread(lambda: words.evict("k"))
    until_blocked(keeper)
    words.update("k", "new")
    with keeper._queue.lock:  # as if a newer save had been through queue and backend, and the state evicted
        keeper._lanes[0].live.remove(b"k")
    slow.open_gate()
    waiting.join(5)
    results[0].result(5)
    keeper.flush()
    assert b"k" not in dict(memory.scan("words"))
    assert words.accounts().balanced


def test_coalesce_only_neither_waits_nor_drops(slow: SlowBackend, open_keeper: Any) -> None:
    _, words, _ = full(open_keeper, slow, overflow="coalesce-only")
    acks = [words.save(f"d{n % 50}", n) for n in range(500)]
    accounts = words.accounts()
    assert (accounts.dropped, accounts.coalesced, accounts.pending) == (0, 450, 54)
    slow.open_gate()
    assert all(ack.exception(5) is None for ack in acks)


def test_drop_oldest_drops_what_has_waited_longest(slow: SlowBackend, open_keeper: Any) -> None:
    _, words, (a, b, c) = full(open_keeper, slow, overflow="drop-oldest")
    newest = words.save("d", 1)
    with pytest.raises(ckpt.QueueFullError, match="key b'a'"):
        a.result(0)
    slow.open_gate()
    for ack in (b, c, newest):
        ack.result(5)
    assert words.load("a") is None


def test_drop_oldest_looks_across_namespaces(slow: SlowBackend, open_keeper: Any) -> None:
    clock = ManualClock()
    keeper = open_keeper(slow, queue_saves=2, overflow="drop-oldest", clock=clock)
    one, two = keeper.namespace("one"), keeper.namespace("two")
    one.save("first", 0)
    slow.wait_for_calls(1)
    clock.advance(1)
    oldest = two.save("a", 1)
    clock.advance(1)
    newer = one.save("a", 1)
    one.save("b", 1)
    assert isinstance(oldest.exception(0), ckpt.QueueFullError)
    assert not newer.done()
    assert two.accounts().dropped == 1


def test_drop_new_drops_the_newcomer(slow: SlowBackend, open_keeper: Any) -> None:
    keeper, words, acks = full(open_keeper, slow, overflow="drop-new")
    dropped = words.save("d", 1)
    with pytest.raises(ckpt.QueueFullError, match="raise queue_saves"):
        dropped.result(0)
    slow.open_gate()
    assert all(ack.exception(5) is None for ack in acks)
    keeper.flush()  # what the policy dropped is no failure


def test_a_dropped_save_leaves_the_live_state_dirty(slow: SlowBackend, open_keeper: Any) -> None:
    keeper, words, _ = full(open_keeper, slow, overflow="drop-new")
    words.update("d", 5)
    (dropped,) = words.checkpoint()
    assert isinstance(dropped.exception(0), ckpt.QueueFullError)
    slow.open_gate()
    keeper.flush()
    (saved,) = words.checkpoint()
    saved.result(5)
    assert words.checkpoint() == []


def test_adapt_stretches_triggers_while_saturated_and_shrinks_back(
    slow: SlowBackend, open_keeper: Any
) -> None:
    keeper = open_keeper(slow, queue_saves=4, overflow="adapt", max_batch_records=1)
    words = keeper.namespace("words", every_events=1)
    for n in range(20):
        words.update(f"{n}", n)  # never blocks: what does not fit is put off and stays dirty
    slow.wait_for_calls(1)
    for n in range(20):
        words.update(f"{n}", n)
    metrics = keeper.metrics()
    assert metrics["queue"]["deferred"] > 0
    assert metrics["namespaces"]["words"]["dropped"] == 0
    slow.open_gate()
    keeper.flush()
    assert keeper.metrics()["queue"]["stretch"] > 1.0
    for n in range(200):
        words.update("calm", n)
        keeper.flush()
    assert keeper.metrics()["queue"]["stretch"] == 1.0
    assert words.update("calm", 200) is not None
    keeper.checkpoint()
    keeper.flush()
    assert words.load_many([f"{n}" for n in range(20)]) == {f"{n}": n for n in range(20)}


def test_adapt_slows_triggers_down_and_catches_up(
    slow: SlowBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper, _, _ = full(open_keeper, slow, overflow="adapt", clock=clock)
    counted = keeper.namespace("counted", every_events=2)
    timed = keeper.namespace("timed", every_s=10)
    keeper._queue.stretch = 4.0
    assert [counted.update("be", n) is not None for n in range(7)] == [False] * 7
    timed.update("be", 1)
    clock.advance(39)
    keeper.tick()
    assert timed.accounts().submitted == 0
    slow.open_gate()
    keeper.flush()  # the queue is empty: the intervals shrink back at each question
    keeper.tick()
    keeper.flush()
    assert timed.accounts().durable == 1
    assert [counted.update("be", n) is not None for n in range(2)] == [True, False]
