"""The backends that misbehave: they do what they are told to, and nothing to what is stored."""

from __future__ import annotations

import threading

import pytest

import ckpt
from ckpt.contract.backend import Backend
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.testing import (
    BackendConformance,
    FaultyBackend,
    ManualClock,
    RecordingBackend,
    SilentBackend,
    SlowBackend,
)

DOWN = BackendUnavailableError("down")


@pytest.fixture
def inner() -> Backend:
    return ckpt.open_backend("memory://")


class Wrapped(RecordingBackend):
    scheme = "memory"


class TestWrapped(BackendConformance):
    """A wrapper that does nothing keeps the whole contract."""

    scheme = "memory"
    reopens = True

    def open_backend(self) -> Backend:
        return Wrapped(ckpt.open_backend(f"memory://{self.directory}", clock=self.clock))

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)


def test_it_fails_the_named_methods_that_many_times(inner: Backend) -> None:
    backend = FaultyBackend(inner)
    backend.fail(DOWN, methods=["put_many"], times=2)
    assert backend.get_many("words", [b"be"]) == {}
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="down"):
            backend.put_many("words", {b"be": b"1"})
    assert inner.namespaces() == []
    backend.put_many("words", {b"be": b"1"})
    assert inner.get_many("words", [b"be"]) == {b"be": b"1"}
    assert backend.failures == 2


def test_it_fails_everything_until_it_is_mended(inner: Backend) -> None:
    backend = FaultyBackend(inner)
    backend.fail(DOWN)
    for call in (backend.flush, backend.namespaces, lambda: backend.scan("words")):
        with pytest.raises(BackendUnavailableError):
            call()
    backend.mend()
    backend.flush()
    backend.fail(DOWN)
    backend.close()


def test_a_lost_answer_was_written(inner: Backend) -> None:
    backend = FaultyBackend(inner)
    backend.fail(DOWN, after_writing=True, times=1)
    with pytest.raises(BackendUnavailableError):
        backend.put_many("words", {b"be": b"1"})
    assert backend.get_many("words", [b"be"]) == {b"be": b"1"}


def test_a_shut_gate_holds_calls_back(inner: Backend) -> None:
    slow = SlowBackend(inner, methods=["put_many"])
    writers = [threading.Thread(target=slow.put_many, args=("words", {b"%d" % n: b"1"})) for n in range(3)]
    for writer in writers:
        writer.start()
    slow.wait_for_calls(3)
    assert slow.namespaces() == []
    slow.open_gate()
    for writer in writers:
        writer.join()
    assert len(dict(slow.scan("words"))) == 3
    with pytest.raises(TimeoutError, match="3 of 4 calls"):
        slow.wait_for_calls(4, timeout_s=0)


def test_calls_are_remembered_in_order(inner: Backend) -> None:
    backend = RecordingBackend(inner)
    backend.put_many("words", {b"be": b"1"})
    backend.get_many("words", [b"be"])
    backend.flush()
    assert [call.method for call in backend.calls] == ["put_many", "get_many", "flush"]
    assert backend.calls[0].arguments == ("words", {b"be": b"1"}, None)


def test_silence_ends_when_it_is_closed(inner: Backend) -> None:
    silent = SilentBackend(inner)
    raised: list[Exception] = []

    def ask() -> None:
        try:
            silent.get_many("words", [b"be"])
        except BackendUnavailableError as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(0.01)
    assert asking.is_alive()
    silent.close()
    asking.join()
    assert "never answered get_many" in str(raised[0])


def test_time_does_not_go_back() -> None:
    clock = ManualClock(5.0)
    clock.advance(1)
    assert clock() == 6.0
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ckpt.testing.Nothing  # noqa: B018 - the access is the test


def test_a_missing_test_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def without_hypothesis(name: str) -> object:
        raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")

    monkeypatch.setattr(importlib, "import_module", without_hypothesis)
    with pytest.raises(ConfigError, match="needs hypothesis; install it with: pip install pytest hypothesis"):
        ckpt.testing.__getattr__("backend_machine")
