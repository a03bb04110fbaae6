"""Backends that fail or wait on command, and a check that no test leaves a thread behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ckpt
from ckpt.testing import FaultyBackend, ManualClock, RecordingBackend, SlowBackend

WRITES = ["write_many", "put_many", "delete_many"]


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline_s = time.monotonic() + 5.0
    while leaked := [t for t in threading.enumerate() if t not in before and t.name.startswith("ckpt")]:
        if time.monotonic() > deadline_s:
            pytest.fail(f"threads were left behind: {leaked}")
        leaked[0].join(0.1)


@pytest.fixture
def memory() -> Iterator[ckpt.Backend]:
    with ckpt.open_backend("memory://") as backend:
        yield backend


@pytest.fixture
def slow(memory: ckpt.Backend) -> Iterator[SlowBackend]:
    """Writes wait at a gate, which is shut at first."""
    backend = SlowBackend(memory, methods=["write_many"])
    yield backend
    backend.open_gate()


@pytest.fixture
def faulty(memory: ckpt.Backend) -> FaultyBackend:
    return FaultyBackend(memory)


@pytest.fixture
def recording(memory: ckpt.Backend) -> RecordingBackend:
    return RecordingBackend(memory)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_keeper() -> Iterator[Callable[..., ckpt.SafeKeeper]]:
    """Makes keepers that are closed after the test, whatever became of their saves."""
    keepers: list[ckpt.SafeKeeper] = []

    def make(backend: Any = "memory://", **options: Any) -> ckpt.SafeKeeper:
        keeper = ckpt.SafeKeeper(backend, **{"retry_s": 0, "close_timeout_s": 5, **options})
        keepers.append(keeper)
        return keeper

    yield make
    for keeper in keepers:
        if isinstance(keeper.backend, SlowBackend):
            keeper.backend.open_gate()
        try:
            keeper.close()
        except ckpt.CkptError:
            continue  # the test has seen the failure of its saves already
