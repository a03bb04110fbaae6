"""Backends that wrap another one and fail, wait, remember or stay silent on request.

They change nothing about what is stored, so a SafeKeeper, a sidecar or a tool can be tested against each kind
of trouble on top of any store. Every call passes through one method, `around`, which a subclass overrides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from ckpt.contract.backend import Backend, BackendStats, BadRecord
from ckpt.contract.versions import History
from ckpt.errors import BackendUnavailableError
from ckpt.types import Changes, CommitId, Epoch

ResultT = TypeVar("ResultT")


class WrappedBackend(Backend):
    """Passes every call on to `inner`, through `around`."""

    scheme: ClassVar[str] = "wrapped"

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        # whatever `around` does may take its time
        self.capabilities = replace(inner.capabilities, reads_in_process=False)
        self.address = inner.address

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        """Make the call; subclasses do something before, after or instead."""
        del method, arguments
        return call()

    def put_many(self, namespace: str, items: Mapping[bytes, bytes], *, ttl_s: float | None = None) -> None:
        self.around(
            "put_many", (namespace, items, ttl_s), lambda: self.inner.put_many(namespace, items, ttl_s=ttl_s)
        )

    def get_many(
        self,
        namespace: str,
        keys: Iterable[bytes],
        *,
        version: int | None = None,
        commit_id: str | None = None,
    ) -> dict[bytes, bytes]:
        return self.around(
            "get_many",
            (namespace, keys, version, commit_id),
            lambda: self.inner.get_many(namespace, keys, version=version, commit_id=commit_id),
        )

    def delete_many(self, namespace: str, keys: Iterable[bytes]) -> None:
        self.around("delete_many", (namespace, keys), lambda: self.inner.delete_many(namespace, keys))

    def scan(
        self,
        namespace: str,
        *,
        prefix: bytes = b"",
        version: int | None = None,
        commit_id: str | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.around(
            "scan",
            (namespace, prefix, version, commit_id),
            lambda: self.inner.scan(namespace, prefix=prefix, version=version, commit_id=commit_id),
        )

    def write_many(self, batches: Mapping[str, Changes]) -> None:
        self.around("write_many", (batches,), lambda: self.inner.write_many(batches))

    def commit(
        self,
        namespace: str,
        version: int,
        puts: Mapping[bytes, bytes],
        deletes: Iterable[bytes] = (),
        *,
        base: str | None = None,
        commit_id: str | None = None,
    ) -> CommitId:
        return self.around(
            "commit",
            (namespace, version, puts, deletes, base, commit_id),
            lambda: self.inner.commit(namespace, version, puts, deletes, base=base, commit_id=commit_id),
        )

    def history(self, namespace: str) -> History:
        return self.around("history", (namespace,), lambda: self.inner.history(namespace))

    def truncate(self, namespace: str, keep_from: int) -> None:
        self.around("truncate", (namespace, keep_from), lambda: self.inner.truncate(namespace, keep_from))

    def namespaces(self) -> list[str]:
        return self.around("namespaces", (), self.inner.namespaces)

    def drop(self, namespace: str) -> None:
        self.around("drop", (namespace,), lambda: self.inner.drop(namespace))

    def claim(self, namespace: str) -> Epoch:
        return self.around("claim", (namespace,), lambda: self.inner.claim(namespace))

    def release(self, namespace: str) -> None:
        self.around("release", (namespace,), lambda: self.inner.release(namespace))

    def flush(self) -> None:
        self.around("flush", (), self.inner.flush)

    def verify(self) -> Iterator[BadRecord]:
        return self.around("verify", (), self.inner.verify)

    def stats(self) -> BackendStats:
        return self.around("stats", (), self.inner.stats)

    def close(self) -> None:
        self.around("close", (), self.inner.close)


class FaultyBackend(WrappedBackend):
    """Raises what it is told to raise, instead of making the call; nothing is written by a call that fails.

    Examples
    --------
    >>> import ckpt
    >>> backend = FaultyBackend(ckpt.open_backend("memory://"))
    >>> backend.fail(BackendUnavailableError("down"), methods=["put_many"], times=1)
    >>> backend.put_many("words", {b"be": b"1"})
    Traceback (most recent call last):
        ...
    ckpt.errors.BackendUnavailableError: down
    >>> backend.put_many("words", {b"be": b"1"})
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.failures = 0
        """How many calls have failed so far."""
        self._error: Exception | None = None
        self._methods: frozenset[str] | None = None
        self._left: int | None = None
        self._after_writing = False
        self._lock = threading.Lock()

    def fail(
        self,
        error: Exception,
        *,
        methods: Iterable[str] | None = None,
        times: int | None = None,
        after_writing: bool = False,
    ) -> None:
        """Raise `error` from these methods (default: all but close), that many times or until `mend`.

        With `after_writing` the call is made first and its answer is lost, as when a connection breaks.
        """
        with self._lock:
            self._error, self._left, self._after_writing = error, times, after_writing
            self._methods = None if methods is None else frozenset(methods)

    def mend(self) -> None:
        """Work again."""
        with self._lock:
            self._error = None

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        del arguments
        with self._lock:
            error = self._error
            concerned = method in self._methods if self._methods is not None else method != "close"
            if error is None or not concerned or self._left == 0:
                error = None
            else:
                self.failures += 1
                if self._left is not None:
                    self._left -= 1
            after_writing = self._after_writing
        if error is None:
            return call()
        if after_writing:
            call()
        raise error


class SlowBackend(WrappedBackend):
    """Lets no call through (of the methods named, default: all but close) while its gate is shut.

    Examples
    --------
    >>> import ckpt
    >>> slow = SlowBackend(ckpt.open_backend("memory://"), methods=["put_many"])
    >>> writer = threading.Thread(target=slow.put_many, args=("words", {b"be": b"1"}))
    >>> writer.start()
    >>> slow.wait_for_calls(1)
    >>> slow.get_many("words", [b"be"])
    {}
    >>> slow.open_gate()
    >>> writer.join()
    >>> slow.get_many("words", [b"be"])
    {b'be': b'1'}
    """

    def __init__(self, inner: Backend, *, methods: Iterable[str] | None = None) -> None:
        super().__init__(inner)
        self._methods = None if methods is None else frozenset(methods)
        self._gate = threading.Event()
        self._arrived = 0
        self._changed = threading.Condition()

    def open_gate(self) -> None:
        """Let every waiting and every later call through."""
        self._gate.set()

    def shut_gate(self) -> None:
        """Make later calls wait again."""
        self._gate.clear()

    def wait_for_calls(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when that many calls have reached the gate since the beginning."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived >= count, timeout_s):
                raise TimeoutError(f"{self._arrived} of {count} calls reached the gate within {timeout_s} s")

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        del arguments
        if method in self._methods if self._methods is not None else method != "close":
            with self._changed:
                self._arrived += 1
                self._changed.notify_all()
            self._gate.wait()
        return call()


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a RecordingBackend saw it."""

    method: str
    arguments: tuple[Any, ...]


class RecordingBackend(WrappedBackend):
    """Remembers every call in the order in which it was made.

    Examples
    --------
    >>> import ckpt
    >>> backend = RecordingBackend(ckpt.open_backend("memory://"))
    >>> backend.put_many("words", {b"be": b"1"})
    >>> [call.method for call in backend.calls]
    ['put_many']
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        self.calls.append(Call(method, arguments))
        return call()


class SilentBackend(WrappedBackend):
    """Never answers: every call waits until the backend is closed, and then fails."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self._closed = threading.Event()

    def around(self, method: str, arguments: tuple[Any, ...], call: Callable[[], ResultT]) -> ResultT:
        del arguments
        if method == "close":
            self._closed.set()
            return call()
        self._closed.wait()
        raise BackendUnavailableError(f"{self.address} never answered {method}")
