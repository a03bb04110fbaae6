"""Opening and closing: idempotent, in bounded time, and nothing is left behind."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, RecordingBackend, SlowBackend


def test_close_flushes_and_is_idempotent(slow: SlowBackend, memory: ckpt.Backend) -> None:
    keeper = ckpt.SafeKeeper(slow)
    words = keeper.namespace("words")
    acks = [words.save(f"{n}", n) for n in range(100)]
    slow.open_gate()
    closers = [threading.Thread(target=keeper.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(10)
    keeper.close()
    assert all(ack.exception(0) is None for ack in acks)
    assert len(list(memory.scan("words"))) == 100


def test_after_close_saves_fail_and_the_rest_raises(open_keeper: Any) -> None:
    results: list[ckpt.SaveResult] = []
    keeper = open_keeper(on_result=results.append)
    words = keeper.namespace("words")
    keeper.close()
    for ack in (words.save("a", 1), words.delete("a")):
        with pytest.raises(ckpt.BackendUnavailableError, match="the SafeKeeper is closed; open a new one"):
            ack.result(0)
    assert len(results) == 2
    for call in (
        lambda: words.load("a"),
        lambda: words.load_many(["a"]),
        lambda: words.update("a", 1),
        lambda: words.recover(),
        lambda: keeper.namespace("other"),
    ):
        with pytest.raises(ckpt.BackendUnavailableError, match="closed"):
            call()
    keeper.flush()
    keeper.close()
    assert words.accounts().balanced
    assert words.accounts().failed == 2


def test_only_a_backend_that_the_keeper_opened_is_closed_with_it(tmp_path: Any) -> None:
    with ckpt.open_backend("memory://") as mine:
        with ckpt.SafeKeeper(mine) as keeper:
            keeper.namespace("words").save("a", 1)
        assert len(mine.get_many("words", [b"a"])) == 1
    with ckpt.SafeKeeper("memory://") as keeper:
        opened = keeper.backend
    with pytest.raises(ckpt.BackendUnavailableError):
        opened.get_many("words", [b"a"])


@pytest.mark.parametrize(
    "error", [ckpt.BackendUnavailableError("down"), ckpt.FencedError("taken over"), RuntimeError("a bug")]
)
def test_the_backend_is_closed_even_if_it_cannot_be_released(
    error: Exception, tmp_path: Any, monkeypatch: Any, caplog: Any
) -> None:
    address = f"log://{tmp_path}/store"
    keeper = ckpt.SafeKeeper(address)
    keeper.namespace("words").save("a", 1)
    keeper.namespace("more").save("b", 2)

    def fail(namespace: str) -> None:
        raise error

    monkeypatch.setattr(keeper.backend, "release", fail)
    keeper.close()
    assert str(error) in caplog.text
    with ckpt.SafeKeeper(address) as again:  # refused if the first one still held the lock
        assert again.namespace("words").load("a") == 1


def test_one_namespace_that_was_taken_over_does_not_keep_the_others(
    recording: RecordingBackend, monkeypatch: Any
) -> None:
    keeper = ckpt.SafeKeeper(recording)
    keeper.namespace("words")
    keeper.namespace("more")
    released: list[str] = []

    def release(namespace: str) -> None:
        released.append(namespace)
        raise ckpt.FencedError("taken over")

    monkeypatch.setattr(recording, "release", release)
    keeper.close()
    assert released == ["words", "more"]


def test_states_survive_in_a_real_store(tmp_path: Any) -> None:
    address = f"file://{tmp_path}/store"
    with ckpt.SafeKeeper(address) as keeper:
        words = keeper.namespace("words", every_events=10)
        for n in range(25):
            words.update("be", {"count": n})
    with ckpt.SafeKeeper(address) as keeper:
        assert keeper.namespace("words").load("be") == {"count": 24}


def test_namespaces_are_claimed_and_released(recording: RecordingBackend, open_keeper: Any) -> None:
    keeper = open_keeper(recording)
    keeper.namespace("words")
    keeper.namespace("words")
    keeper.close()
    calls = [(c.method, c.arguments[0]) for c in recording.calls if c.method in ("claim", "release")]
    assert calls == [("claim", "words"), ("release", "words")]


def test_a_namespace_is_the_same_object_and_has_one_set_of_options(open_keeper: Any) -> None:
    keeper = open_keeper()
    words = keeper.namespace("words", every_events=5)
    assert keeper.namespace("words") is words
    assert keeper.namespace("words", every_events=5) is words
    with pytest.raises(ckpt.ConfigError, match="other options"):
        keeper.namespace("words", every_events=6)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_nothing_that_a_callback_raises_stops_the_saving(
    error: BaseException, open_keeper: Any, caplog: Any
) -> None:
    called: list[bytes] = []

    def fail(what: Any) -> None:
        called.append(what.key)
        raise error

    keeper = open_keeper(on_result=fail)
    words = keeper.namespace("words")
    first = words.save("a", 1)
    first.result(5)
    keeper.flush()
    assert called == [b"a"]
    words.save("b", 2).result(5)
    keeper.flush()
    assert called == [b"a", b"b"]
    assert keeper.metrics()["callback_errors"] == 2
    assert "on_result raised for key b'b'" in caplog.text
    keeper.close()


def test_every_callback_of_a_future_is_called_whatever_another_raises(
    slow: SlowBackend, open_keeper: Any, caplog: Any
) -> None:
    keeper = open_keeper(slow)
    words = keeper.namespace("words")
    ack = words.save("a", 1)
    called: list[int] = []
    ack.add_done_callback(lambda _: sys.exit(1))
    ack.add_done_callback(lambda _: called.append(1))
    slow.open_gate()
    keeper.flush()
    assert called == [1]
    assert keeper.metrics()["callback_errors"] == 1
    assert "a callback of the future raised for key b'a'" in caplog.text
    words.save("b", 2).result(5)


def test_close_tells_of_saves_that_nobody_will_write(memory: ckpt.Backend) -> None:
    keeper = ckpt.SafeKeeper(memory)
    words = keeper.namespace("words")
    keeper._queue.take = lambda max_records: None  # the writer ends after the next batch
    words.save("a", 1).result(5)
    keeper._writer.join(5)
    ack = words.save("b", 2)
    with pytest.raises(ckpt.BackendUnavailableError, match="the writer's thread has ended"):
        keeper.close()
    with pytest.raises(ckpt.BackendUnavailableError, match="the writer's thread has ended"):
        ack.result(0)
    assert words.accounts().failed == 1
    assert words.accounts().balanced


def test_close_says_what_was_not_saved(faulty: FaultyBackend) -> None:
    keeper = ckpt.SafeKeeper(faulty, retry_s=0)
    words = keeper.namespace("words")
    words.update("a", 1)
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
    with pytest.raises(ckpt.BackendUnavailableError, match="a save failed: down"):
        keeper.close()
    keeper.close()


def test_leaving_the_block_raises_unless_another_error_is_on_its_way(
    faulty: FaultyBackend, caplog: Any
) -> None:
    def work(error: Exception | None) -> None:
        faulty.mend()
        with ckpt.SafeKeeper(faulty, retry_s=0) as keeper:
            words = keeper.namespace("words")
            faulty.fail(ckpt.BackendUnavailableError("down"), methods=["write_many"])
            words.save("a", 1)
            if error is not None:
                raise error

    with pytest.raises(ckpt.BackendUnavailableError):
        work(None)
    with pytest.raises(RuntimeError, match="mine"):
        work(RuntimeError("mine"))
    assert "down" in caplog.text


def test_a_backend_that_cannot_be_closed_is_logged(
    faulty: FaultyBackend, open_keeper: Any, caplog: Any
) -> None:
    keeper = open_keeper(faulty)
    keeper.namespace("words")
    faulty.fail(ckpt.BackendUnavailableError("down"), methods=["release"])
    keeper.close()
    assert "was not closed cleanly" in caplog.text


def test_no_threads_without_work_and_none_after_close() -> None:
    def ours() -> set[str]:
        return {t.name for t in threading.enumerate() if t.name.startswith("ckpt")}

    keeper = ckpt.SafeKeeper("memory://")
    assert ours() == {"ckpt-writer"}
    words = keeper.namespace("words", every_s=60)
    words.load("a")
    words.recover().wait(5)
    assert "ckpt-ticker" in ours()
    keeper.close()
    assert ours() == set()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ckpt.SafeKeeper(3),
        lambda: ckpt.SafeKeeper("/var/ckpt"),
        lambda: ckpt.SafeKeeper("memory://", on_result=3),
        lambda: ckpt.SafeKeeper("memory://", codec="msgpack"),
    ],
)
def test_bad_arguments_are_config_errors_and_start_nothing(make: Any) -> None:
    with pytest.raises(ckpt.ConfigError):
        make()
