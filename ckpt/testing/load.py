"""Writes that never pause, and what of them was acknowledged: all of it must be there, whatever happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Self

from ckpt.contract.backend import Backend
from ckpt.testing.outcomes import PATIENT_S, begin, outcome

KEYS = [b"key-%02d" % number for number in range(20)]
"""Every batch writes all of them, and every commit the first few."""
_COMMITTED = KEYS[:5]
_SLOTS = 50
_KEYS_PER_SLOT = 5


class Load:
    """Calls `write` with 1, 2, 3 and so on, on a thread of its own, until it is stopped or fails.

    Examples
    --------
    >>> with Load(lambda number: None) as load:
    ...     load.wait_for_more(10)
    >>> load.acknowledged >= 10
    True
    """

    def __init__(self, write: Callable[[int], object]) -> None:
        self.acknowledged = 0
        self.attempted = 0
        self._write = write
        self._stop = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._moved = threading.Condition()
        self._running = begin(self._run)
        self._running.add_done_callback(lambda _: self._tell())

    def _run(self) -> None:
        while self._flows.wait() and not self._stop.is_set():
            self.attempted += 1
            self._write(self.attempted)
            self.acknowledged = self.attempted
            self._tell()

    def _tell(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def wait_for_more(self, count: int = 3) -> None:
        """Return when so many more writes have been acknowledged; raise what a write has raised."""
        with self._moved:
            wanted = self.acknowledged + count
            went_on = self._moved.wait_for(
                lambda: self.acknowledged >= wanted or self._running.done(), PATIENT_S
            )
        if self._running.done():
            self._running.result()
        assert went_on, f"{self.acknowledged} of {wanted} writes acknowledged: writing does not go on"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Begin no write meanwhile; the one that is under way may end."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    def error(self) -> BaseException | None:
        """What ends it, if something does."""
        ended = outcome(self._running)
        return ended if isinstance(ended, BaseException) else None

    def stop(self) -> None:
        """End it after the write that is under way; raise what a write has raised."""
        self._stop.set()
        error = self.error()
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


class StoreLoad:
    """Batches to a namespace, batches to one that is claimed, and commits, all at once through one handle."""

    def __init__(self, backend: Backend) -> None:
        backend.claim("owned")
        self._puts = {name: Load(partial(_put, backend, name)) for name in ("words", "owned")}
        self._commits = Load(partial(_commit, backend))

    def wait_for_more(self) -> None:
        """Return when writes of each kind have been acknowledged again."""
        for load in (*self._puts.values(), self._commits):
            load.wait_for_more(10)

    def require_nothing_lost(self, backend: Backend) -> None:
        """What is there is what was acknowledged, or something newer; little is written meanwhile."""
        with contextlib.ExitStack() as held:
            for load in (*self._puts.values(), self._commits):
                held.enter_context(load.held())
            self._require_nothing_lost(backend)

    def _require_nothing_lost(self, backend: Backend) -> None:
        for name, load in self._puts.items():
            acknowledged = load.acknowledged
            seen = {key: int(value) for key, value in backend.get_many(name, list(_expected(_SLOTS))).items()}
            for key, number in _expected(acknowledged).items():
                assert seen.get(key, 0) >= number, f"{key!r} of {name} is older than what was acknowledged"
            if backend.capabilities.atomic_put:
                assert len({seen.get(key) for key in KEYS}) == 1, f"a batch to {name} is there by halves"
        acknowledged = self._commits.acknowledged
        tip = backend.history("store").tip
        assert tip is not None
        assert tip.version >= acknowledged
        found = backend.get_many("store", _COMMITTED, version=tip.version)
        assert found == dict.fromkeys(_COMMITTED, b"%d" % tip.version)

    def stop(self) -> None:
        """End it after the writes that are under way, each of which must be acknowledged."""
        for load in (*self._puts.values(), self._commits):
            load.stop()

    def require_exactly(self, backend: Backend) -> None:
        """After `stop`: what was acknowledged is there, every version of it, and nothing else."""
        for name, load in self._puts.items():
            expected = {key: b"%d" % number for key, number in _expected(load.acknowledged).items()}
            assert dict(backend.scan(name)) == expected
        count = self._commits.acknowledged
        assert [commit.version for commit in backend.versions("store")] == list(range(1, count + 1))
        ever = {b"at-%d" % number: b"" for number in range(1, count + 1)}
        assert dict(backend.scan("store")) == {**dict.fromkeys(_COMMITTED, b"%d" % count), **ever}
        assert list(backend.verify()) == []


def _batch(number: int) -> dict[bytes, bytes]:
    """Keys that every batch writes, and keys that only every fiftieth does, so that a lost one shows."""
    own = [b"slot-%d-%d" % (number % _SLOTS, n) for n in range(_KEYS_PER_SLOT)]
    return dict.fromkeys([*KEYS, *own], b"%d" % number)


def _put(backend: Backend, namespace: str, number: int) -> None:
    backend.put_many(namespace, _batch(number))


def _commit(backend: Backend, number: int) -> None:
    backend.commit("store", number, {**dict.fromkeys(_COMMITTED, b"%d" % number), b"at-%d" % number: b""})


def _expected(batches: int) -> dict[bytes, int]:
    """Which batch each key is from, after so many of them."""
    recent = range(max(batches - _SLOTS, 0) + 1, batches + 1)
    return {key: number for number in recent for key in _batch(number)}
