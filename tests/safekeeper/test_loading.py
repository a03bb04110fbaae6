"""Missing is a result, unavailable is an exception, and a blank start never replaces a checkpoint."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, ManualClock, RecordingBackend, SlowBackend

DOWN = ckpt.BackendUnavailableError("down")


def put(backend: ckpt.Backend, key: bytes, state: Any) -> None:
    backend.put_many("words", {key: ckpt.ValueCodec().encode(state, namespace="words", key=key)})


def test_load_many_asks_once(recording: RecordingBackend, open_keeper: Any) -> None:
    keeper = open_keeper(recording)
    words = keeper.namespace("words")
    for key in "abc":
        put(recording.inner, key.encode(), key)
    words.update("live", "live")
    assert words.load_many(["a", "b", "c", "live", "none"]) == {"a": "a", "b": "b", "c": "c", "live": "live"}
    assert sum(call.method == "get_many" for call in recording.calls) == 1
    assert words.load_many([b"a", b"a"]) == {b"a": "a"}
    assert words.load_many([]) == {}


def test_unavailable_is_an_exception(faulty: FaultyBackend, open_keeper: Any) -> None:
    words = open_keeper(faulty).namespace("words")
    for error in (DOWN, OSError("disk")):
        faulty.fail(error, methods=["get_many"])
        with pytest.raises(ckpt.BackendUnavailableError, match="namespace 'words' of memory://"):
            words.load("a")
    faulty.mend()
    assert words.load("a") is None


def test_corruption_is_neither_missing_nor_unavailable(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words")
    memory.release("words")
    memory.put_many("words", {b"a": b"garbage that is long enough"})
    with pytest.raises(ckpt.CorruptRecordError, match=r"key b'a' of namespace 'words' .* memory://"):
        words.load("a")
    assert keeper.metrics()["breaker"]["state"] == "closed"
    assert keeper.metrics()["loads"]["unreadable"] == 1


def test_wait_tries_again(faulty: FaultyBackend, open_keeper: Any) -> None:
    words = open_keeper(faulty).namespace("words", on_unavailable="wait", wait_s=30)
    words.save("a", 1).result(5)
    faulty.fail(DOWN, methods=["get_many"], times=3)
    assert words.load("a") == 1


def test_a_load_that_waits_does_not_switch_loads_off(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    """The backend is down for many more attempts than open the breaker, whose time does not pass at all."""
    keeper = open_keeper(faulty, clock=clock)
    waiting = keeper.namespace("words", on_unavailable="wait", wait_s=30)
    other = keeper.namespace("other")
    put(faulty.inner, b"a", 1)
    waiting._pause = lambda seconds: False  # as if it were over
    attempts = 10 * keeper.options.breaker_failures
    faulty.fail(DOWN, methods=["get_many"], times=attempts)
    assert waiting.load("a") == 1
    assert faulty.failures == attempts
    assert keeper.metrics()["breaker"] == {"state": "closed", "opened": 0}
    assert other.load("b") is None


def test_a_load_that_waited_in_vain_is_one_failure(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty, clock=clock, breaker_failures=3)
    words = keeper.namespace("words", on_unavailable="wait", wait_s=0.01)
    faulty.fail(DOWN, methods=["get_many"])
    for opened in (0, 0, 1):
        with pytest.raises(ckpt.BackendUnavailableError):
            words.load("a")
        assert keeper.metrics()["breaker"]["opened"] == opened
    assert faulty.failures >= 3


def test_a_load_waits_for_the_probe_of_an_open_breaker(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty, clock=clock, breaker_failures=1, breaker_pause_s=10)
    words, other = keeper.namespace("words", on_unavailable="wait", wait_s=30), keeper.namespace("other")
    put(faulty.inner, b"a", 1)
    faulty.fail(DOWN, methods=["get_many"], times=2)
    with pytest.raises(ckpt.BackendUnavailableError):
        other.load("b")

    def pause(seconds: float) -> bool:
        clock.advance(5)
        return False

    words._pause = pause
    assert words.load("a") == 1  # the first probe fails and opens the breaker again, the second succeeds
    assert keeper.metrics()["breaker"] == {"state": "closed", "opened": 2}
    assert faulty.failures == 2


def test_wait_ends(faulty: FaultyBackend, open_keeper: Any) -> None:
    words = open_keeper(faulty).namespace("words", on_unavailable="wait", wait_s=0.05)
    faulty.fail(DOWN, methods=["get_many"])
    with pytest.raises(ckpt.BackendUnavailableError):
        words.load("a")


def test_closing_ends_the_wait(faulty: FaultyBackend, open_keeper: Any) -> None:
    keeper = open_keeper(faulty, breaker_failures=1)
    words = keeper.namespace("words", on_unavailable="wait", wait_s=600)
    faulty.fail(DOWN, methods=["get_many"])
    errors: list[BaseException] = []

    def load() -> None:
        try:
            words.load("a")
        except ckpt.BackendUnavailableError as error:
            errors.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    while not faulty.failures:
        threading.Event().wait(0.001)
    keeper.close()
    thread.join(5)
    assert len(errors) == 1


# -- blank ---------------------------------------------------------------------------------------


def test_a_blank_start_never_replaces_a_checkpoint(faulty: FaultyBackend, open_keeper: Any) -> None:
    put(faulty.inner, b"a", {"count": 100})
    keeper = open_keeper(faulty)
    words = keeper.namespace("words", on_unavailable="blank", default={"count": 0})
    faulty.fail(DOWN, methods=["get_many"])
    state = words.load("a")
    assert state == {"count": 0}
    faulty.mend()
    ack = words.save("a", {"count": 1})
    with pytest.raises(ckpt.BlankStateError, match="discard"):
        ack.result(5)
    assert words.load("a") == {"count": 100}
    words.save("a", {"count": 101}).result(5)
    assert words.load("a") == {"count": 101}


def test_a_blank_start_of_a_new_key_is_saved(faulty: FaultyBackend, open_keeper: Any) -> None:
    words = open_keeper(faulty).namespace("words", on_unavailable="blank")
    faulty.fail(DOWN, methods=["get_many"], times=1)
    assert words.load("new") is None
    words.save("new", 1).result(5)
    words.save("new", 2).result(5)
    assert words.load("new") == 2


def test_two_saves_after_a_blank_start_of_a_new_key(faulty: FaultyBackend, open_keeper: Any) -> None:
    gate = SlowBackend(faulty, methods=["write_many"])
    words = open_keeper(gate).namespace("words", on_unavailable="blank")
    faulty.fail(DOWN, methods=["get_many"], times=1)
    assert words.load("new") is None
    first = words.save("new", 1)
    gate.wait_for_calls(1)
    second = words.save("new", 2)
    gate.open_gate()
    first.result(5)
    second.result(5)


def test_a_blank_live_state_never_replaces_a_checkpoint(faulty: FaultyBackend, open_keeper: Any) -> None:
    put(faulty.inner, b"a", 100)
    keeper = open_keeper(faulty)
    words = keeper.namespace("words", on_unavailable="blank", default=0, every_events=1)
    faulty.fail(DOWN, methods=["get_many"], times=1)
    ack = words.update("a", words.load("a") + 1)
    with pytest.raises(ckpt.BlankStateError):
        ack.result(5)
    assert words.load("a") == 1
    words.discard("a")
    assert words.load("a") == 100


def test_a_delete_after_a_blank_start_keeps_the_checkpoint(faulty: FaultyBackend, open_keeper: Any) -> None:
    put(faulty.inner, b"a", 100)
    words = open_keeper(faulty).namespace("words", on_unavailable="blank")
    faulty.fail(DOWN, methods=["get_many"], times=1)
    words.load("a")
    with pytest.raises(ckpt.BlankStateError, match=r"neither saved nor deleted.* then save or delete"):
        words.delete("a").result(5)
    assert words.load("a") == 100


def test_a_blank_save_waits_for_the_backend_to_say(faulty: FaultyBackend, open_keeper: Any) -> None:
    put(faulty.inner, b"a", 100)
    words = open_keeper(faulty, retry_s=30).namespace("words", on_unavailable="blank")
    faulty.fail(DOWN, methods=["get_many"], times=3)
    words.load("a")
    with pytest.raises(ckpt.BlankStateError):
        words.save("a", 1).result(20)


# -- bounded time --------------------------------------------------------------------------------


def test_a_backend_that_never_answers_hangs_neither_load_nor_close(memory: ckpt.Backend) -> None:
    silent = SlowBackend(memory, methods=["get_many", "write_many", "release", "flush"])
    keeper = ckpt.SafeKeeper(
        silent, fetch_timeout_s=0.02, fetch_threads=1, fetch_queue=1, close_timeout_s=0.05
    )
    words = keeper.namespace("words")
    with pytest.raises(ckpt.BackendUnavailableError, match=r"did not answer within 0\.02 s"):
        words.load("a")
    ack = words.save("b", 1)
    with pytest.raises(ckpt.BackendUnavailableError, match="close gave up"):
        keeper.close()
    with pytest.raises(ckpt.BackendUnavailableError, match="close gave up"):
        ack.result(0)
    assert words.accounts().failed == 1
    assert words.accounts().balanced
    silent.open_gate()  # lets the abandoned threads end; what they report now changes nothing
    keeper._writer.join(5)
    assert words.accounts().failed == 1
    assert words.accounts().balanced


def test_too_many_waiting_loads_fail_at_once(memory: ckpt.Backend, open_keeper: Any) -> None:
    silent = SlowBackend(memory, methods=["get_many"])
    keeper = open_keeper(silent, fetch_timeout_s=60, fetch_threads=1, fetch_queue=1)
    words = keeper.namespace("words")
    threads = [threading.Thread(target=words.load, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    while keeper._fetcher._outstanding < 2:
        threading.Event().wait(0.001)
    with pytest.raises(ckpt.BackendUnavailableError, match="fetch_queue"):
        words.load("c")
    silent.open_gate()
    for thread in threads:
        thread.join(5)


def test_without_a_timeout_loads_run_on_the_callers_thread(memory: ckpt.Backend, open_keeper: Any) -> None:
    class Watching(RecordingBackend):
        def get_many(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(threading.current_thread())
            return super().get_many(*args, **kwargs)

    seen: list[threading.Thread] = []
    open_keeper(Watching(memory), fetch_timeout_s=None).namespace("words").load("a")
    assert seen == [threading.current_thread()]


class Asked(RecordingBackend):
    """Notes on which thread each load asked."""

    def __init__(self, inner: ckpt.Backend, *, reads_in_process: bool) -> None:
        super().__init__(inner)
        self.capabilities = dataclasses.replace(self.capabilities, reads_in_process=reads_in_process)
        self.threads: list[threading.Thread] = []

    def get_many(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.append(threading.current_thread())
        return super().get_many(*args, **kwargs)


def test_only_a_backend_that_reads_in_process_is_asked_on_the_callers_thread(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    """With the timeout that every keeper has by default."""
    put(memory, b"a", 1)
    local, other = Asked(memory, reads_in_process=True), Asked(memory, reads_in_process=False)
    for backend in (local, other):
        words = open_keeper(backend).namespace("words")
        assert words.load("a") == 1
        assert words.load_many(["a", "b"]) == {"a": 1}
        memory.release("words")
    assert local.threads == [threading.current_thread()] * 2
    assert len(other.threads) == 2
    assert threading.current_thread() not in other.threads


def test_a_backend_that_reads_in_process_may_fail_all_the_same(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    faulty.capabilities = dataclasses.replace(faulty.capabilities, reads_in_process=True)
    put(faulty.inner, b"a", 1)
    keeper = open_keeper(faulty, clock=clock, breaker_failures=2)
    words = keeper.namespace("words")
    for error in (OSError("disk"), DOWN):
        faulty.fail(error, methods=["get_many"], times=1)
        with pytest.raises(ckpt.BackendUnavailableError, match="is unavailable"):
            words.load("a")
    with pytest.raises(ckpt.BackendUnavailableError, match="loads are off"):
        words.load("a")
    clock.advance(keeper.options.breaker_pause_s)
    faulty.fail(ckpt.CorruptRecordError("bad"), methods=["get_many"], times=1)
    with pytest.raises(ckpt.CorruptRecordError):
        words.load("a")  # an answer: the breaker closes
    assert keeper.metrics()["breaker"] == {"state": "closed", "opened": 1}
    assert words.load("a") == 1
    assert keeper.metrics()["loads"]["unavailable"] == 3


def test_whoever_wraps_a_backend_may_take_time(memory: ckpt.Backend) -> None:
    assert memory.capabilities.reads_in_process
    assert not SlowBackend(memory).capabilities.reads_in_process


def test_the_breaker_opens_and_closes_again(
    faulty: FaultyBackend, clock: ManualClock, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty, clock=clock, breaker_failures=3, breaker_pause_s=10)
    words = keeper.namespace("words")
    for _ in range(10):
        words.load("missing")  # a missing key is no failure
    faulty.fail(DOWN, methods=["get_many"])
    for _ in range(5):
        with pytest.raises(ckpt.BackendUnavailableError):
            words.load("a")
    assert faulty.failures == 3
    assert keeper.metrics()["breaker"] == {"state": "open", "opened": 1}
    clock.advance(9.9)
    with pytest.raises(ckpt.BackendUnavailableError, match=r"off for another 0\.1 s"):
        words.load("a")
    clock.advance(0.2)
    with pytest.raises(ckpt.BackendUnavailableError, match="down"):
        words.load("a")
    assert faulty.failures == 4
    assert keeper.metrics()["breaker"] == {"state": "open", "opened": 2}
    faulty.mend()
    clock.advance(10)
    assert words.load("a") is None
    assert keeper.metrics()["breaker"]["state"] == "closed"
