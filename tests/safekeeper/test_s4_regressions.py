"""The bugs of Apache S4's checkpointing (s4-core, package `ft`), one test each: ours must not have them."""

from __future__ import annotations

import pathlib
import re
import threading
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, ManualClock, SlowBackend

DOWN = ckpt.BackendUnavailableError("down")


def stored(backend: ckpt.Backend, namespace: str = "words") -> dict[bytes, Any]:
    codec = ckpt.ValueCodec()
    return {k: codec.decode(v, namespace=namespace, key=k) for k, v in backend.scan(namespace)}


def test_a_full_queue_does_not_stall_on_its_own_lock_nor_drop_the_checkpoint(
    slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    """S4 waits for room while it holds the lock that whoever makes room needs, then drops the checkpoint."""
    keeper = open_keeper(slow, queue_saves=1)
    words = keeper.namespace("words")
    words.save("first", 0)
    slow.wait_for_calls(1)
    words.save("second", 0)
    threads = [threading.Thread(target=words.save, args=(f"{n}", n)) for n in range(10)]
    for thread in threads:
        thread.start()
    while keeper._queue._blocked < 10:
        threading.Event().wait(0.001)
    assert words.load("second") == 0  # the queue is usable while others wait for room
    words.save("second", 1)
    slow.open_gate()
    for thread in threads:
        thread.join(10)
    keeper.flush()
    assert stored(memory) == {b"first": 0, b"second": 1, **{b"%d" % n: n for n in range(10)}}
    assert words.accounts().dropped == 0


def test_fetches_are_off_during_the_pause_and_on_after_it(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    """S4 compares the times the wrong way round: fetches go on during the pause and stay off after it."""
    keeper = open_keeper(faulty, clock=clock, breaker_failures=2, breaker_pause_s=10)
    words = keeper.namespace("words")
    words.save("be", 1).result(5)
    faulty.fail(DOWN, methods=["get_many"])
    for _ in range(2):
        with pytest.raises(ckpt.BackendUnavailableError):
            words.load("be")
    faulty.mend()
    with pytest.raises(ckpt.BackendUnavailableError, match="loads are off"):
        words.load("be")
    clock.advance(10)
    assert words.load("be") == 1


def test_a_state_is_dirty_until_it_is_durable(
    faulty: FaultyBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    """S4 clears the dirty flag when it hands the state over; a failed write then loses it for good."""
    gate = SlowBackend(faulty, methods=["write_many"])
    keeper = open_keeper(gate)
    words = keeper.namespace("words", every_events=1)
    ack = words.update("be", 1)
    gate.wait_for_calls(1)
    assert keeper.metrics()["namespaces"]["words"]["dirty_states"] == 1
    faulty.fail(DOWN, methods=["write_many"], times=1)
    gate.open_gate()
    with pytest.raises(ckpt.BackendUnavailableError):
        ack.result(5)
    assert keeper.metrics()["namespaces"]["words"]["dirty_states"] == 1
    (again,) = words.checkpoint()
    again.result(5)
    assert keeper.metrics()["namespaces"]["words"]["dirty_states"] == 0
    assert stored(memory) == {b"be": 1}


def test_a_serialisation_error_reaches_future_and_callback(open_keeper: Any) -> None:
    """In S4 it is logged by a thread of a pool and the callback is never called."""
    results: list[ckpt.SaveResult] = []
    keeper = open_keeper(on_result=results.append)
    ack = keeper.namespace("words").save("be", {"x": object()})
    with pytest.raises(ckpt.SerializationError):
        ack.result(5)
    with pytest.raises(ckpt.SerializationError):
        keeper.flush()
    assert [(r.key, type(r.error)) for r in results] == [(b"be", ckpt.SerializationError)]


@pytest.mark.parametrize("policy", ["fail", "wait", "blank"])
def test_a_failed_fetch_is_not_a_missing_key(
    policy: str, faulty: FaultyBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    """In S4 both are null: a blank state is created and its next checkpoint overwrites the good one."""
    with ckpt.SafeKeeper(memory) as keeper:
        keeper.namespace("words").save("be", {"count": 1000})
    keeper = open_keeper(faulty)
    words = keeper.namespace("words", on_unavailable=policy, wait_s=0.01, every_events=1)
    faulty.fail(DOWN, methods=["get_many"])
    if policy == "blank":
        assert words.load("be") is None
    else:
        with pytest.raises(ckpt.BackendUnavailableError):
            words.load("be")
        return
    faulty.mend()
    with pytest.raises(ckpt.BlankStateError):
        words.update("be", {"count": 1}).result(5)
    assert stored(memory) == {b"be": {"count": 1000}}


def test_writes_of_one_key_are_never_reordered(memory: ckpt.Backend, open_keeper: Any) -> None:
    """S4 has a pool of storage threads; two of them may write two states of one key in either order."""

    class Watching(FaultyBackend):
        def write_many(self, batches: Any) -> None:
            writing.append(threading.get_ident())
            super().write_many(batches)
            for changes in batches.values():
                for key, value in changes.puts.items():
                    order.setdefault(key, []).append(
                        ckpt.ValueCodec().decode(value, namespace="words", key=key)
                    )

    writing: list[int] = []
    order: dict[bytes, list[int]] = {}
    keeper = open_keeper(Watching(memory), max_batch_records=3)
    words = keeper.namespace("words")

    def produce(number: int) -> None:
        for n in range(300):
            words.save(f"{number}", n)

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    keeper.flush()
    assert len(set(writing)) == 1
    assert all(written == sorted(written) and written[-1] == 299 for written in order.values())


def test_two_operators_of_one_class_and_keys_with_white_space_do_not_collide(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    """S4 joins class name and key with a separator: prototypes of one class share ids, spaces break them."""
    keeper = open_keeper(memory)
    spaces = [keeper.namespace(name) for name in ("Counter", "Counter 2", "Counter 2 a", "Counter\n")]
    keys = ["a", " a", "a ", "2 a", "a b", "a\tb", "a\nb", ""]
    for number, space in enumerate(spaces):
        for key in keys:
            space.save(key, [number, key])
    keeper.flush()
    for number, space in enumerate(spaces):
        assert space.load_many(keys) == {key: [number, key] for key in keys}


def test_every_setting_of_s4_has_an_equivalent_and_every_setting_of_ours_is_documented() -> None:
    """S4 parses settings that nothing reads; see also test_options.py::test_every_setting_is_read."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "s4-migration.md").read_text()
    for setting in (
        "storageMaxThreads",
        "storageThreadKeepAliveSeconds",
        "storageMaxOutstandingRequests",
        "serializationMaxThreads",
        "serializationThreadKeepAliveSeconds",
        "serializationMaxOutstandingRequests",
        "maxSerializationLockTime",
        "fetchingMaxThreads",
        "fetchingThreadKeepAliveSeconds",
        "fetchingMaxWaitMs",
        "fetchingMaxConsecutiveFailuresBeforeDisabling",
        "fetchingDisabledDurationMs",
        "fetchingQueueSize",
        "filesystem.storageRootPath",
    ):
        assert f"s4.checkpointing.{setting}`" in page, setting
    for kind in (ckpt.KeeperOptions, ckpt.NamespaceOptions):
        for name in kind.__dataclass_fields__:
            assert re.search(rf"`{name}\b", page), name


def test_an_error_message_never_prints_the_value(open_keeper: Any) -> None:
    """Quix Streams prints the whole value when it cannot be serialised."""
    keeper = open_keeper()
    words = keeper.namespace("words")
    for state in (
        {"password": "hunter2", "x": object()},
        {"password": "hunter2\ud800"},
        ["hunter2", lambda: 0],
    ):
        error = words.save("be", state).exception(5)
        assert isinstance(error, ckpt.SerializationError)
        assert "hunter2" not in str(error)
