"""Eager recovery fills memory in the background and never replaces what the operator has."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ckpt
from ckpt.keeper.recovery import HOT_NAMESPACE, HotKeys
from ckpt.testing import FaultyBackend, ManualClock, RecordingBackend, SlowBackend


def fill(backend: ckpt.Backend, count: int) -> None:
    with ckpt.SafeKeeper(backend) as keeper:
        words = keeper.namespace("words")
        for n in range(count):
            words.save(f"{n:04}", n)


def live(keeper: ckpt.SafeKeeper) -> int:
    return keeper.metrics()["namespaces"]["words"]["live_states"]


def test_lazy_recovery_reads_nothing_ahead(recording: RecordingBackend, open_keeper: Any) -> None:
    fill(recording.inner, 10)
    keeper = open_keeper(recording)
    words = keeper.namespace("words")
    assert words.recover(eager=False) is None
    assert keeper.recover(eager=False) == {}
    assert words.load("0003") == 3
    assert [c.method for c in recording.calls if c.method in ("scan", "get_many")] == ["get_many"]


def test_eager_recovery_fills_memory_with_progress(recording: RecordingBackend, open_keeper: Any) -> None:
    fill(recording.inner, 1000)
    keeper = open_keeper(recording)
    words = keeper.namespace("words")
    seen: list[tuple[int, int | None]] = []
    recovery = words.recover(on_progress=lambda r: seen.append((r.done, r.total)))
    assert recovery.wait(10)
    assert recovery.finished
    assert (recovery.done, recovery.total, recovery.failed) == (1000, 1000, 0)
    assert seen[0] == (0, 1000)
    assert seen[-1] == (1000, 1000)
    assert seen == sorted(seen)
    calls = len(recording.calls)
    assert words.load_many(f"{n:04}" for n in range(1000)) == {f"{n:04}": n for n in range(1000)}
    assert len(recording.calls) == calls
    assert keeper.metrics()["namespaces"]["words"]["dirty_states"] == 0


def test_all_namespaces_at_once(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 5)
    keeper = open_keeper(memory)
    words, empty = keeper.namespace("words"), keeper.namespace("empty")
    begun = keeper.recover()
    assert set(begun) == {"words", "empty"}
    assert all(recovery.wait(10) for recovery in begun.values())
    assert begun["empty"].total == 0
    assert words.load("0004") == 4
    assert empty.load("0004") is None


def test_hot_keys_come_first_also_after_a_restart(memory: ckpt.Backend, open_keeper: Any) -> None:
    with ckpt.SafeKeeper(memory) as keeper:
        words = keeper.namespace("words")
        for n in range(600):
            for _ in range(20 - n // 30 if n % 2 else 1):
                words.update(f"{n:04}", n)
    gate = SlowBackend(memory, methods=["get_many"])
    recording = RecordingBackend(gate)
    keeper = open_keeper(recording)
    gate.open_gate()
    keeper.namespace("words").recover(hot_first=True).wait(10)
    reads = [c.arguments[1] for c in recording.calls if c.method == "get_many" and c.arguments[0] == "words"]
    first = [int(key) for key in reads[0]]
    assert first[:15] == [n for n in range(30) if n % 2]
    assert all(n % 2 for n in first)
    assert sum(map(len, reads)) == 600


def test_only_updates_leave_a_record_of_hot_keys(memory: ckpt.Backend, open_keeper: Any) -> None:
    with ckpt.SafeKeeper(memory) as keeper:
        keeper.namespace("words").save("a", 1)
    assert memory.namespaces() == ["words"]
    with ckpt.SafeKeeper(memory) as keeper:
        keeper.namespace("words", hot_keys=0).update("a", 1)
    assert memory.namespaces() == ["words"]
    with ckpt.SafeKeeper(memory) as keeper:
        keeper.namespace("words").update("a", 1)
    assert memory.namespaces() == [HOT_NAMESPACE, "words"]
    with pytest.raises(ckpt.ConfigError, match="reserved"):
        open_keeper(memory).namespace(HOT_NAMESPACE)


def test_the_count_of_hot_keys_is_bounded_and_forgets() -> None:
    hot = HotKeys(10)
    for n in range(10_000):
        hot.count(b"%d" % n)
        hot.count(b"always")
    assert next(iter(hot)) == b"always"
    assert len(hot._counts) <= 40
    assert len(list(hot)) <= 10


def test_recovery_never_replaces_what_happened_meanwhile(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 6)
    gate = SlowBackend(memory, methods=["get_many"])
    keeper = open_keeper(gate)
    words = keeper.namespace("words", every_events=1)

    recovery = words.recover(hot_first=False)
    gate.wait_for_calls(1)  # the recovery has asked for everything and its answer is on the way
    words.update("0000", "updated")
    words.save("0001", "saved")
    words.delete("0002")
    words.update("0003", "evicted")
    words.evict("0003")
    keeper.flush()
    gate.open_gate()
    assert recovery.wait(10)
    assert words.load("0000") == "updated"
    assert words.load("0001") == "saved"
    assert words.load("0002") is None
    assert words.load("0003") == "evicted"
    assert words.load("0004") == 4


def test_stale_answers_are_dropped_even_if_the_write_is_long_over(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    """The value was fetched before the save and arrives after the save is durable and out of the queue."""
    fill(memory, 3)
    late = Late(memory, methods=["get_many"])
    keeper = open_keeper(late)
    words = keeper.namespace("words")
    recovery = words.recover(hot_first=False)
    late.wait_for_calls(1)
    words.save("0000", "newer")
    words.delete("0001")
    keeper.flush()
    late.open_gate()
    assert recovery.wait(10)
    assert words.load("0000") == "newer"
    assert words.load("0001") is None
    assert words.load("0002") == 2


class Late(SlowBackend):
    """Asks the inner backend at once, and gives its answer when the gate is open."""

    def get_many(self, *args: Any, **kwargs: Any) -> Any:
        answer = self.inner.get_many(*args, **kwargs)
        return self.around("get_many", args, lambda: answer)


@pytest.mark.parametrize("how", ["queued before", "dirty before"])
def test_what_was_on_its_way_when_the_recovery_began_is_newer(
    how: str, memory: ckpt.Backend, open_keeper: Any
) -> None:
    fill(memory, 3)
    writes = SlowBackend(memory, methods=["write_many"])
    late = Late(writes, methods=["get_many"])
    keeper = open_keeper(late)
    words = keeper.namespace("words")
    if how == "queued before":
        words.save("0000", "newer")
        words.delete("0001")
    else:
        words.update("0000", "newer")
    recovery = words.recover(hot_first=False)
    late.wait_for_calls(1)  # the old states were read
    if how == "dirty before":
        words.evict("0000")
        words.delete("0001")
    writes.open_gate()
    keeper.flush()
    late.open_gate()
    assert recovery.wait(10)
    assert words.load("0000") == "newer"
    assert words.load("0001") is None
    assert words.load("0002") == 2


def test_recovery_reads_no_more_than_fits(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 100)
    keeper = open_keeper(memory)
    recovery = keeper.namespace("words", max_states=7).recover()
    assert recovery.wait(10)
    assert (recovery.total, live(keeper)) == (7, 7)


class CountingBackend(RecordingBackend):
    """Counts the rows that are taken from its scans."""

    taken = 0

    def scan(self, *args: Any, **kwargs: Any) -> Iterator[tuple[bytes, bytes]]:
        for row in super().scan(*args, **kwargs):
            self.taken += 1
            yield row


def test_recovery_lists_no_more_than_fits(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 500)
    with ckpt.SafeKeeper(memory) as keeper:
        for key in ("0400", "0300", "gone"):
            keeper.namespace("words").update(key, 1)
        keeper.namespace("words").delete("gone")
    counting = CountingBackend(memory)
    keeper = open_keeper(counting)
    words = keeper.namespace("words", max_states=7)
    recovery = words.recover(hot_first=True)
    assert recovery.wait(10)
    assert (recovery.total, recovery.done, live(keeper)) == (7, 7, 7)
    assert counting.taken <= 7
    asked = len(counting.calls)
    assert (words.load("0400"), words.load("0300"), len(counting.calls)) == (1, 1, asked)


def from_memory(words: Any, recording: RecordingBackend, keys: str) -> str:
    """Those of the keys whose states are live."""
    live_keys = ""
    for key in keys:
        asked = len(recording.calls)
        words.load(key)
        live_keys += key if len(recording.calls) == asked else ""
    return live_keys


def heat(backend: ckpt.Backend, keys: str) -> None:
    """Save a state for each key; the later ones are the hotter ones."""
    with ckpt.SafeKeeper(backend) as keeper:
        words = keeper.namespace("words")
        for times, key in enumerate(keys, start=1):
            for _ in range(times):
                words.update(key, key)


def test_the_hottest_are_the_last_to_be_evicted(recording: RecordingBackend, open_keeper: Any) -> None:
    heat(recording.inner, "abcdef")
    words = open_keeper(recording).namespace("words", max_states=4)
    assert words.recover(hot_first=True).wait(10)
    words.update("x", 1)
    words.update("y", 1)
    assert from_memory(words, recording, "abcdefxy") == "efxy"


def test_a_recovered_state_that_was_used_outlives_those_that_were_not(
    recording: RecordingBackend, open_keeper: Any
) -> None:
    heat(recording.inner, "abcd")
    words = open_keeper(recording).namespace("words", max_states=4)
    assert words.recover(hot_first=True).wait(10)
    assert words.load("a") == "a"  # the coolest
    for key in "xyz":
        words.update(key, 1)
    assert from_memory(words, recording, "abcdxyz") == "axyz"


def test_recovery_pushes_nothing_out(recording: RecordingBackend, open_keeper: Any) -> None:
    heat(recording.inner, "abcdef")
    keeper = open_keeper(recording)
    words = keeper.namespace("words", max_states=4)
    for key in "xyz":
        words.update(key, 1)
    assert words.recover(hot_first=True).wait(10)
    assert live(keeper) == 4
    assert from_memory(words, recording, "abcdefxyz") == "fxyz"
    again = words.recover(hot_first=True)
    assert again.wait(10)
    assert again.done == 0


def test_recovered_states_grow_idle_beside_others(
    recording: RecordingBackend, clock: ManualClock, open_keeper: Any
) -> None:
    heat(recording.inner, "ab")
    keeper = open_keeper(recording, clock=clock)
    words = keeper.namespace("words", ttl_s=10)
    words.update("old", 1)
    clock.advance(6)
    assert words.recover().wait(10)
    clock.advance(6)
    keeper.tick()
    keeper.flush()
    assert live(keeper) == 2
    assert words.load("a") == "a"
    clock.advance(6)
    keeper.tick()
    assert live(keeper) == 1


def test_recovery_can_be_stopped_and_started_again(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 1000)
    gate = SlowBackend(memory, methods=["get_many"])
    keeper = open_keeper(gate)
    words = keeper.namespace("words")
    recovery = words.recover(hot_first=False)
    assert words.recover() is recovery
    gate.wait_for_calls(1)
    recovery.stop(timeout_s=0)
    gate.open_gate()
    assert recovery.wait(10)
    assert recovery.done < 1000
    again = words.recover()
    assert again.wait(10)
    assert live(keeper) == 1000


def test_recovery_outlasts_an_outage(faulty: FaultyBackend, open_keeper: Any) -> None:
    fill(faulty.inner, 10)
    keeper = open_keeper(faulty)
    words = keeper.namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["scan", "get_many"], times=3)
    assert words.recover().wait(20)
    assert live(keeper) == 10


def test_one_corrupt_checkpoint_does_not_stop_the_rest(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 5)
    memory.put_many("words", {b"0002": b"garbage that is long enough"})
    keeper = open_keeper(memory)
    words = keeper.namespace("words")
    recovery = words.recover()
    assert recovery.wait(10)
    assert recovery.failed == 1
    assert isinstance(recovery.error, ckpt.CorruptRecordError)
    assert live(keeper) == 4
    with pytest.raises(ckpt.CorruptRecordError):
        words.load("0002")


class Damaged(FaultyBackend):
    """One record is corrupt: whatever reads it raises, as a store with checksums of its own does."""

    bad = b"0002"

    def get_many(self, namespace: str, keys: Any, **kwargs: Any) -> Any:
        if self.bad in (listed := list(keys)):
            raise ckpt.CorruptRecordError("key b'0002' is damaged")
        return super().get_many(namespace, listed, **kwargs)


class DamagedScan(Damaged):
    def scan(self, *args: Any, **kwargs: Any) -> Iterator[tuple[bytes, bytes]]:
        for key, value in super().scan(*args, **kwargs):
            if key == self.bad:
                raise ckpt.CorruptRecordError("a record is damaged")
            yield key, value


def test_one_record_that_the_backend_cannot_read_does_not_stop_the_rest(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    fill(memory, 600)
    keeper = open_keeper(Damaged(memory))
    words = keeper.namespace("words")
    recovery = words.recover()
    assert recovery.wait(20)
    assert (recovery.done, recovery.total, recovery.failed, live(keeper)) == (600, 600, 1, 599)
    assert isinstance(recovery.error, ckpt.CorruptRecordError)
    with pytest.raises(ckpt.CorruptRecordError, match="0002"):
        words.load("0002")


def test_a_scan_that_ends_at_a_bad_record_still_brings_what_is_known(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    with ckpt.SafeKeeper(memory) as keeper:
        words = keeper.namespace("words")
        for key in ("0007", "0002", "gone"):
            words.update(key, key)
        words.delete("gone")
    with ckpt.SafeKeeper(memory) as keeper:
        for key in ("0000", "0001", "0008"):
            keeper.namespace("words").save(key, key)
    keeper = open_keeper(DamagedScan(memory))
    words = keeper.namespace("words")
    seen: list[Exception | None] = []
    recovery = words.recover(on_progress=lambda r: seen.append(r.error))
    assert recovery.wait(10)
    assert live(keeper) == len(before(memory, b"0002") | {b"0007"})
    assert recovery.failed == 1
    assert isinstance(recovery.error, ckpt.CorruptRecordError)
    assert seen[0] is recovery.error
    assert words.load("0007") == "0007"
    assert words.load("0008") == "0008"


def before(backend: ckpt.Backend, bad: bytes) -> set[bytes]:
    return set(itertools.takewhile(lambda key: key != bad, (key for key, _ in backend.scan("words"))))


def test_a_damaged_record_of_hot_keys_costs_nothing_but_order(memory: ckpt.Backend, open_keeper: Any) -> None:
    fill(memory, 5)
    memory.put_many(HOT_NAMESPACE, {b"words": b"garbage that is long enough"})
    keeper = open_keeper(memory)
    recovery = keeper.namespace("words").recover(hot_first=True)
    assert recovery.wait(10)
    assert (recovery.done, recovery.error, live(keeper)) == (5, None, 5)


def test_any_error_of_the_recovery_is_to_be_seen(
    faulty: FaultyBackend, open_keeper: Any, caplog: Any
) -> None:
    fill(faulty.inner, 5)
    words = open_keeper(faulty).namespace("words")
    faulty.fail(RuntimeError("a bug in the driver"), methods=["scan"])
    recovery = words.recover()
    assert recovery.wait(10)
    assert isinstance(recovery.error, RuntimeError)
    assert "ended early" in caplog.text


def test_a_blank_state_never_replaces_a_checkpoint_that_a_recovery_has_read(
    faulty: FaultyBackend, open_keeper: Any
) -> None:
    fill(faulty.inner, 3)
    keeper = open_keeper(faulty)
    words = keeper.namespace("words", on_unavailable="blank", default=0)
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["get_many"], times=1)
    blank = words.load("0001")
    recovery = words.recover(hot_first=False)
    assert recovery.wait(10)
    assert (recovery.done, recovery.failed) == (3, 0)
    with pytest.raises(ckpt.BlankStateError):
        words.save("0001", blank + 1000).result(5)
    words.discard("0001")
    assert words.load("0001") == 1
    words.save("0001", words.load("0001") + 1).result(5)
    assert words.load("0001") == 2


def test_a_load_that_turns_out_blank_is_blind_even_if_a_recovery_was_faster(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    fill(memory, 2)
    asked, recovered = threading.Event(), threading.Event()

    class DownForLoads(FaultyBackend):
        def get_many(self, *args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name.startswith("ckpt-fetch") and not recovered.is_set():
                asked.set()
                recovered.wait(10)
                raise ckpt.BackendUnavailableError("down")
            return super().get_many(*args, **kwargs)

    words = open_keeper(DownForLoads(memory)).namespace("words", on_unavailable="blank", default="blank")
    loaded: list[Any] = []
    thread = threading.Thread(target=lambda: loaded.append(words.load("0001")))
    thread.start()
    assert asked.wait(10)
    assert words.recover(hot_first=False).wait(10)
    recovered.set()
    thread.join(10)
    assert loaded == ["blank"]
    with pytest.raises(ckpt.BlankStateError):
        words.save("0001", "from blank").result(5)
    assert words.load("0001") == 1


def test_an_exception_in_on_progress_is_harmless(memory: ckpt.Backend, open_keeper: Any, caplog: Any) -> None:
    fill(memory, 5)
    keeper = open_keeper(memory)
    recovery = keeper.namespace("words").recover(on_progress=lambda r: 1 / 0)
    assert recovery.wait(10)
    assert live(keeper) == 5
    assert "on_progress raised" in caplog.text


def test_close_stops_a_recovery(memory: ckpt.Backend) -> None:
    fill(memory, 10)
    gate = SlowBackend(memory, methods=["get_many"])
    keeper = ckpt.SafeKeeper(gate)
    recovery = keeper.namespace("words").recover(hot_first=False)
    gate.wait_for_calls(1)
    keeper.close()
    gate.open_gate()
    assert recovery.wait(10)
