"""save, delete, flush: what is acknowledged is durable, and everything else says why it is not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, as_completed, wait
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, RecordingBackend, SlowBackend


def stored(backend: ckpt.Backend, namespace: str = "words") -> dict[bytes, Any]:
    codec = ckpt.ValueCodec()
    return {k: codec.decode(v, namespace=namespace, key=k) for k, v in backend.scan(namespace)}


def test_the_promise_of_the_readme(memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(memory)
    words = keeper.namespace("words", every_events=100, every_s=5.0, ttl_s=3600)
    ack = words.save("be", {"count": 2})
    assert isinstance(ack, Future)
    assert ack.result(5) is None
    assert stored(memory) == {b"be": {"count": 2}}
    assert words.load("be") == {"count": 2}
    assert words.load("or") is None
    words.delete("be")
    keeper.flush()
    assert stored(memory) == {}
    assert words.load("be") is None


def test_a_save_is_a_snapshot(slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any) -> None:
    keeper = open_keeper(slow)
    words = keeper.namespace("words")
    state = {"count": 1, "seen": [1], "inner": {"a": {2}}}
    words.save("be", state)
    state["count"] = 99
    state["seen"].append(99)
    state["inner"]["a"].add(99)
    slow.open_gate()
    keeper.flush()
    assert stored(memory) == {b"be": {"count": 1, "seen": [1], "inner": {"a": {2}}}}


def test_a_loaded_state_is_the_callers_own(slow: SlowBackend, open_keeper: Any) -> None:
    words = open_keeper(slow).namespace("words", default={"count": 0})
    words.save("be", {"seen": [1]})
    words.load("be")["seen"].append(99)
    assert words.load("be") == {"seen": [1]}
    words.load("nothing")["count"] = 99
    assert words.load("nothing") == {"count": 0}


def test_saves_of_a_queued_key_are_coalesced(
    slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    keeper = open_keeper(slow)
    words = keeper.namespace("words")
    words.save("first", 0)
    slow.wait_for_calls(1)
    acks = [words.save("be", n) for n in range(10)]
    assert not any(ack.done() for ack in acks)
    assert words.load("be") == 9
    slow.open_gate()
    for ack in acks:
        assert ack.result(5) is None
    assert stored(memory) == {b"first": 0, b"be": 9}
    accounts = words.accounts()
    assert (accounts.submitted, accounts.coalesced, accounts.durable) == (11, 9, 2)


def test_everything_queued_is_one_batch(slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any) -> None:
    recording = RecordingBackend(slow)
    keeper = open_keeper(recording)
    words, letters = keeper.namespace("words"), keeper.namespace("letters")
    words.save("first", 0)
    slow.wait_for_calls(1)
    for n in range(50):
        words.save(f"w{n}", n)
        letters.save(f"l{n}", n)
    letters.delete("l0")
    slow.open_gate()
    keeper.flush()
    batches = [call.arguments[0] for call in recording.calls if call.method == "write_many"]
    assert len(batches) == 2
    assert len(batches[1]["words"].puts) == 50
    assert len(batches[1]["letters"].puts) == 49
    assert list(batches[1]["letters"].deletes) == [b"l0"]


@pytest.mark.parametrize("limit", [{"max_batch_records": 7}, {"max_batch_bytes": 200}])
def test_batches_are_bounded(memory: ckpt.Backend, open_keeper: Any, limit: dict[str, int]) -> None:
    recording = RecordingBackend(memory)
    keeper = open_keeper(recording, **limit)
    spaces = [keeper.namespace(name) for name in "ab"]
    for n in range(40):
        for space in spaces:
            space.save(f"{n}", n)
    keeper.flush()
    for call in recording.calls:
        if call.method == "write_many":
            puts = [value for changes in call.arguments[0].values() for value in changes.puts.values()]
            assert len(puts) <= limit.get("max_batch_records", 40)
            assert sum(map(len, puts[:-1])) <= limit.get("max_batch_bytes", 1 << 20)
    assert stored(memory, "a") == stored(memory, "b") == {b"%d" % n: n for n in range(40)}


def test_a_delete_takes_the_slot_of_a_save_and_back(
    slow: SlowBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    keeper = open_keeper(slow)
    words = keeper.namespace("words")
    words.save("first", 0)
    slow.wait_for_calls(1)
    words.save("a", 1)
    words.delete("a")
    words.delete("b")
    words.save("b", 2)
    assert words.load("a", default="gone") == "gone"
    assert words.load("b") == 2
    slow.open_gate()
    keeper.flush()
    assert stored(memory) == {b"first": 0, b"b": 2}


def test_load_sees_what_is_being_written(slow: SlowBackend, open_keeper: Any) -> None:
    words = open_keeper(slow).namespace("words")
    words.save("be", 1)
    slow.wait_for_calls(1)
    assert words.load("be") == 1
    words.save("be", 2)
    assert words.load("be") == 2
    words.delete("be")
    assert words.load("be", "gone") == "gone"


@pytest.mark.parametrize("key", ["", "a b", "a/b", "..", "\0", "é", "e\u0301", "x" * 65536, b"\xff\xfe", b""])
def test_hostile_keys_are_just_keys(key: Any, open_keeper: Any) -> None:
    words = open_keeper().namespace("words")
    words.save(key, {"key": key}).result(5)
    assert words.load(key) == {"key": key}


def test_a_text_key_is_its_utf8_bytes(open_keeper: Any) -> None:
    words = open_keeper().namespace("words")
    words.save("é", 1).result(5)
    assert words.load("é".encode()) == 1
    with pytest.raises(ckpt.ConfigError, match="surrogates"):
        words.save("\ud800", 1)
    with pytest.raises(TypeError, match="str or bytes"):
        words.save(7, 1)


def test_namespaces_and_keys_do_not_run_together(open_keeper: Any) -> None:
    keeper = open_keeper()
    one, two = keeper.namespace("a"), keeper.namespace("ab")
    one.save("bc", 1)
    two.save("c", 2)
    keeper.flush()
    assert (one.load("bc"), two.load("c"), one.load("c"), two.load("bc")) == (1, 2, None, None)


# -- futures and callbacks -----------------------------------------------------------------------


def test_standard_library_waiting_works(slow: SlowBackend, open_keeper: Any) -> None:
    words = open_keeper(slow).namespace("words")
    acks = [words.save(f"{n}", n) for n in range(20)]
    done, not_done = wait(acks, timeout=0)
    assert not done
    assert len(not_done) == 20
    slow.open_gate()
    assert set(as_completed(acks, timeout=5)) == set(acks)
    assert wait(acks, timeout=5).not_done == set()


def test_a_future_can_be_awaited(open_keeper: Any) -> None:
    words = open_keeper().namespace("words")

    async def main() -> None:
        await asyncio.wait_for(asyncio.wrap_future(words.save("be", 1)), 5)

    asyncio.run(main())


def test_a_pending_future_times_out_and_cannot_be_cancelled(slow: SlowBackend, open_keeper: Any) -> None:
    words = open_keeper(slow).namespace("words")
    ack = words.save("be", 1)
    with pytest.raises(TimeoutError):
        ack.result(0.01)
    assert not ack.cancel()
    slow.open_gate()
    assert ack.exception(5) is None


def test_each_waiter_wakes_for_its_own_save_only(slow: SlowBackend, open_keeper: Any) -> None:
    keeper = open_keeper(slow, max_batch_records=1)
    words = keeper.namespace("words")
    acks = [words.save(f"{n}", n) for n in range(8)]
    results: list[int] = []
    threads = [threading.Thread(target=lambda i=i: (acks[i].result(10), results.append(i))) for i in range(8)]
    for thread in threads:
        thread.start()
    slow.open_gate()
    for thread in threads:
        thread.join(10)
    assert sorted(results) == list(range(8))


def test_on_result_fires_once_for_every_save(slow: SlowBackend, open_keeper: Any) -> None:
    results: list[ckpt.SaveResult] = []
    keeper = open_keeper(slow, on_result=results.append, overflow="drop-new", queue_saves=2)
    words = keeper.namespace("words")
    words.save("first", 0)
    slow.wait_for_calls(1)
    for n in range(5):
        words.save("be", n)
    words.save("bad", object())
    words.save("dropped", 1)
    words.delete("be")
    slow.open_gate()
    with pytest.raises(ckpt.SerializationError):
        keeper.flush()
    by_key = {k: [type(r.error) for r in results if r.key == k] for k in {r.key for r in results}}
    assert by_key == {
        b"first": [type(None)],
        b"be": [type(None)] * 6,
        b"bad": [ckpt.SerializationError],
        b"dropped": [ckpt.QueueFullError],
    }
    assert {r.namespace for r in results} == {"words"}


def test_the_future_is_done_before_its_callback(open_keeper: Any) -> None:
    acks: dict[bytes, Future[None]] = {}
    seen: list[bool] = []
    ready = threading.Event()

    def on_result(result: ckpt.SaveResult) -> None:
        ready.wait(5)
        seen.append(acks[result.key].done())

    keeper = open_keeper(on_result=on_result)
    acks[b"be"] = keeper.namespace("words").save("be", 1)
    ready.set()
    keeper.flush()
    assert seen == [True]


def test_an_exception_in_a_callback_is_counted_and_harmless(open_keeper: Any, caplog: Any) -> None:
    def on_result(result: ckpt.SaveResult) -> None:
        raise RuntimeError("mine")

    keeper = open_keeper(on_result=on_result)
    words = keeper.namespace("words")
    for n in range(3):
        words.save(f"{n}", n).result(5)
    keeper.flush()
    assert keeper.metrics()["callback_errors"] == 3
    assert "on_result raised" in caplog.text
    assert words.accounts().durable == 3


def test_a_callback_may_save_even_when_the_queue_is_full(slow: SlowBackend, open_keeper: Any) -> None:
    later: list[Any] = []

    def on_result(result: ckpt.SaveResult) -> None:
        if result.key == b"first":
            later.extend(words.save(f"again{n}", n) for n in range(5))

    keeper = open_keeper(slow, on_result=on_result, queue_saves=1)
    words = keeper.namespace("words")
    words.save("first", 1)
    slow.open_gate()
    while len(later) < 5:
        keeper.flush(5)
    for ack in later:
        ack.result(5)


def test_flush_and_close_refuse_to_wait_for_themselves(open_keeper: Any) -> None:
    errors: list[BaseException] = []

    def on_result(result: ckpt.SaveResult) -> None:
        for call in (keeper.flush, keeper.close):
            try:
                call()
            except ckpt.UnsupportedError as error:
                errors.append(error)

    keeper = open_keeper(on_result=on_result)
    keeper.namespace("words").save("be", 1)
    keeper.flush()
    assert len(errors) == 2


# -- what goes wrong stays where it went wrong -----------------------------------------------------


def test_a_state_that_cannot_be_serialised_fails_alone(open_keeper: Any) -> None:
    keeper = open_keeper()
    words = keeper.namespace("words")
    good, bad, also_good = words.save("a", 1), words.save("b", {"x": object()}), words.save("c", 2)
    with pytest.raises(ckpt.SerializationError, match="key b'b' of namespace 'words'"):
        bad.result(5)
    good.result(5)
    also_good.result(5)


def test_a_state_that_cannot_be_copied_fails_on_its_future(open_keeper: Any) -> None:
    words = open_keeper().namespace("words")
    ack = words.save("be", threading.Lock())
    with pytest.raises(ckpt.SerializationError, match="cannot be copied"):
        ack.result(0)
    assert words.accounts().failed == 1


class Picky(FaultyBackend):
    """Refuses one namespace, or one key, with an error of the test's choice."""

    def __init__(
        self, inner: ckpt.Backend, error: Exception, *, namespace: str, key: bytes | None = None
    ) -> None:
        super().__init__(inner)
        self.refusal, self.namespace, self.key = error, namespace, key
        self.attempts = 0

    def write_many(self, batches: Any) -> None:
        self.attempts += 1
        changes = batches.get(self.namespace)
        if changes is not None and (self.key is None or self.key in changes.puts):
            raise self.refusal
        super().write_many(batches)


@pytest.mark.parametrize(
    "error",
    [
        ckpt.FencedError("taken"),
        ckpt.BackendUnavailableError("down"),
        ckpt.UnsupportedError("versioned"),
        RuntimeError("bug"),
        OSError("disk"),
    ],
)
def test_one_namespace_failing_does_not_fail_another(
    memory: ckpt.Backend, open_keeper: Any, error: Exception
) -> None:
    gate = SlowBackend(Picky(memory, error, namespace="bad"), methods=["write_many"])
    keeper = open_keeper(gate)
    good, bad = keeper.namespace("good"), keeper.namespace("bad")
    good.save("first", 0)
    gate.wait_for_calls(1)
    fine, broken = [good.save(f"{n}", n) for n in range(5)], [bad.save(f"{n}", n) for n in range(5)]
    gate.open_gate()
    for ack in fine:
        ack.result(5)
    for ack in broken:
        with pytest.raises(type(error)):
            ack.result(5)
    assert good.accounts().balanced
    assert bad.accounts().failed == 5


def test_one_record_that_the_backend_refuses_fails_alone(memory: ckpt.Backend, open_keeper: Any) -> None:
    picky = Picky(memory, ckpt.ConfigError("key too long"), namespace="words", key=b"17")
    gate = SlowBackend(picky, methods=["write_many"])
    words = open_keeper(gate).namespace("words")
    words.save("first", 0)
    gate.wait_for_calls(1)
    acks = [words.save(f"{n}", n) for n in range(64)]
    gate.open_gate()
    outcomes = [type(ack.exception(5)) for ack in acks]
    assert outcomes[17] is ckpt.ConfigError
    assert outcomes.count(type(None)) == 63
    assert picky.attempts < 20


def test_a_backend_that_comes_back_within_retry_s_costs_nothing(
    faulty: FaultyBackend, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty, retry_s=30)
    words = keeper.namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"], times=3)
    words.save("be", 1).result(20)
    assert keeper.metrics()["writes"]["retries"] == 3
    assert words.accounts().failed == 0


def test_a_lost_answer_is_written_again_and_is_the_same(
    faulty: FaultyBackend, memory: ckpt.Backend, open_keeper: Any
) -> None:
    words = open_keeper(faulty, retry_s=30).namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("cut"), methods=["write_many"], times=1, after_writing=True)
    words.save("be", 1).result(20)
    assert stored(memory) == {b"be": 1}


def test_retries_end_and_the_futures_say_so(faulty: FaultyBackend, open_keeper: Any) -> None:
    words = open_keeper(faulty, retry_s=0.05).namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
    with pytest.raises(ckpt.BackendUnavailableError, match="down"):
        words.save("be", 1).result(20)
    faulty.mend()
    words.save("be", 2).result(5)


def test_being_fenced_reaches_the_futures_and_stops_the_namespace(
    memory: ckpt.Backend, open_keeper: Any
) -> None:
    from ckpt_backends.memory import MemoryBackend

    name = "fenced-keeper-test"
    with MemoryBackend(name) as mine, MemoryBackend(name) as other:
        keeper = open_keeper(mine)
        words, letters = keeper.namespace("words"), keeper.namespace("letters")
        words.save("be", 1).result(5)
        other.claim("words")
        with pytest.raises(ckpt.FencedError):
            words.save("be", 2).result(5)
        refused = words.save("be", 3)
        assert refused.done()
        with pytest.raises(ckpt.FencedError, match="key b'be' of namespace 'words' was not saved"):
            refused.result()
        letters.save("a", 1).result(5)
        assert stored(other) == {b"be": 1}
        with pytest.raises(ckpt.FencedError, match=r"save failed"):
            keeper.close()


# -- flush ---------------------------------------------------------------------------------------


def test_flush_is_a_barrier_for_what_came_before(slow: SlowBackend, open_keeper: Any) -> None:
    keeper = open_keeper(slow)
    words = keeper.namespace("words")
    acks = [words.save(f"{n}", n) for n in range(10)]
    with pytest.raises(ckpt.BackendUnavailableError, match=r"10 saves .* still pending"):
        keeper.flush(0.01)
    slow.open_gate()
    keeper.flush(10)
    assert all(ack.done() for ack in acks)


def test_flush_reports_each_failure_once(faulty: FaultyBackend, open_keeper: Any) -> None:
    keeper = open_keeper(faulty)
    words = keeper.namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
    words.save("a", 1)
    words.save("b", 1)
    with pytest.raises(ckpt.BackendUnavailableError, match="2 saves failed; the first: "):
        keeper.flush()
    faulty.mend()
    keeper.flush()


def test_a_failure_that_a_later_save_made_good_is_not_reported(
    faulty: FaultyBackend, open_keeper: Any
) -> None:
    keeper = open_keeper(faulty)
    words = keeper.namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"], times=1)
    assert words.save("a", 1).exception(5) is not None
    words.save("a", 2).result(5)
    keeper.flush()


def test_flush_makes_durable_what_the_backend_only_queued(
    recording: RecordingBackend, open_keeper: Any
) -> None:
    keeper = open_keeper(recording)
    keeper.namespace("words").save("be", 1)
    keeper.flush()
    assert [call.method for call in recording.calls][-2:] == ["write_many", "flush"]
