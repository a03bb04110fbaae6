"""The suites for servers in trouble notice what is lost, what hangs and what is there by halves."""

from __future__ import annotations

import threading

import pytest

import ckpt
from ckpt.errors import BackendUnavailableError
from ckpt.testing import FaultyBackend
from ckpt.testing.load import KEYS, Load, StoreLoad
from ckpt.testing.outcomes import begin, outcome, until_it_works


@pytest.fixture
def backend() -> ckpt.Backend:
    return ckpt.open_backend("memory://")


def loaded(backend: ckpt.Backend) -> StoreLoad:
    """A load that has come to its end, of which everything was acknowledged."""
    load = StoreLoad(backend)
    load.wait_for_more()
    load.stop()
    load.require_nothing_lost(backend)
    load.require_exactly(backend)
    return load


def test_a_batch_that_is_lost_is_noticed(backend: ckpt.Backend) -> None:
    load = loaded(backend)
    backend.put_many("words", dict.fromkeys(KEYS, b"1"))
    with pytest.raises(AssertionError, match="words is older than what was acknowledged"):
        load.require_nothing_lost(backend)
    with pytest.raises(AssertionError):
        load.require_exactly(backend)


def test_a_batch_that_is_there_by_halves_is_noticed(backend: ckpt.Backend) -> None:
    load = loaded(backend)
    backend.put_many("words", dict.fromkeys(KEYS[:7], b"1000000000"))
    with pytest.raises(AssertionError, match="a batch to words is there by halves"):
        load.require_nothing_lost(backend)


def test_a_commit_that_is_lost_is_noticed(backend: ckpt.Backend) -> None:
    load = loaded(backend)
    backend.drop("store")
    backend.commit("store", 1, dict.fromkeys(KEYS, b"1"))
    with pytest.raises(AssertionError):
        load.require_nothing_lost(backend)


def test_a_commit_with_the_state_of_another_is_noticed(backend: ckpt.Backend) -> None:
    load = loaded(backend)
    backend.commit("store", 1_000_000_000, {KEYS[0]: b"1"})
    with pytest.raises(AssertionError):
        load.require_nothing_lost(backend)


def test_a_load_ends_with_the_first_write_that_fails(backend: ckpt.Backend) -> None:
    faulty = FaultyBackend(backend)
    with Load(lambda number: faulty.put_many("words", {b"n": b"%d" % number})) as load:
        load.wait_for_more()
        faulty.fail(BackendUnavailableError("down"))
        assert isinstance(load.error(), BackendUnavailableError)
        for ask in (load.wait_for_more, load.stop):
            with pytest.raises(BackendUnavailableError):
                ask()
    assert load.attempted == load.acknowledged + 1
    assert backend.get_many("words", [b"n"]) == {b"n": b"%d" % load.acknowledged}


def test_a_call_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt.testing.outcomes.PATIENT_S", 0.01)
    never = threading.Event()
    with pytest.raises(AssertionError, match="has not ended"):
        outcome(begin(never.wait))
    never.set()


def test_who_is_back_is_asked_again_and_other_errors_are_not_swallowed(backend: ckpt.Backend) -> None:
    faulty = FaultyBackend(backend)
    faulty.fail(BackendUnavailableError("down"), times=3)
    until_it_works(faulty.put_many, "words", {b"be": b"1"})
    assert faulty.failures == 3
    with pytest.raises(ckpt.ConfigError):
        until_it_works(faulty.put_many, "", {b"be": b"1"})
