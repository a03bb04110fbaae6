"""Plain namespaces on a server: a write is one request, under the fence that the ledger names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import msgspec

from ckpt.contract.versions import require_plain
from ckpt.errors import BackendUnavailableError, CkptError, CorruptRecordError
from ckpt.types import Changes
from ckpt_backends.cells.ledger import LedgerState
from ckpt_backends.cells.namespace import CellNamespace
from ckpt_backends.cells.options import CellOptions
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import CellServer


class PlainRows:
    """Writes and reads the rows of plain namespaces."""

    def __init__(
        self,
        server: CellServer,
        retries: Retries,
        options: CellOptions,
        address: str,
        clock: Callable[[], float],
    ) -> None:
        self._server, self._retries = server, retries
        self._longest_turn_s = options.timeout_s + options.retry_s
        self._address, self._clock = address, clock

    def write(self, space: CellNamespace, changes: Changes, deletes: list[bytes]) -> None:
        """Durably write a batch, or raise FencedError once another has taken the namespace over."""
        expires_s = None if changes.ttl_s is None else self._clock() + changes.ttl_s
        puts = {key: space.codec.encode(key, value, expires_s) for key, value in changes.puts.items()}
        space.register()
        put_up: int | None = None
        while True:
            with space.ledger.lock:
                state = space.ledger.state
            if state.mode == "versioned":
                # A writer began to make it versioned and never committed.
                self.become_plain(space)
                continue
            write = functools.partial(
                self._server.write_plain,
                space.namespace,
                puts,
                deletes,
                ttl_s=changes.ttl_s,
                fence=state.fence,
                exclusive=state.owner is not None,
            )
            with nullcontext() if state.owner is None else self.turn(space):
                if self._retries.call(write):
                    return
            space.refresh()
            self.require_writable(space)
            if space.ledger.state.fence == state.fence:
                if put_up == state.fence:
                    raise CorruptRecordError(
                        f"the fence of namespace {space.namespace!r} in {self._address} is higher than its "
                        "ledger says: the server has lost what it acknowledged; claim() the namespace to go "
                        "on with what is left, or restore it from a copy"
                    )
                # The writer that put this fence up ended before it was up everywhere.
                space.put_fence_up()
                put_up = state.fence

    def read(self, space: CellNamespace, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist and have not expired."""
        rows = self._retries.call(lambda: self._server.read_plain(space.namespace, keys))
        return space.codec.values(keys, rows, self._clock())

    def is_any(self, space: CellNamespace) -> bool:
        """Whether the namespace holds a key that has not expired; one that is damaged counts."""
        try:
            return next(space.live_rows(b"", self._clock), None) is not None
        except CorruptRecordError:
            return True

    @contextmanager
    def turn(self, space: CellNamespace) -> Iterator[None]:
        """One exclusive write at a time; waiting for it has a limit."""
        if not space.turn.acquire(timeout=2 * self._longest_turn_s):
            raise BackendUnavailableError(
                f"another write to namespace {space.namespace!r} in {self._address} has not ended in time; "
                "try again later"
            )
        try:
            yield
        finally:
            space.turn.release()

    def require_writable(self, space: CellNamespace) -> None:
        """Raise unless the namespace is plain and no other handle owns it; reads the ledger where it must."""
        if not space.is_loaded:
            space.refresh()
        for is_fresh in (False, True):
            try:
                with space.ledger.lock:
                    space.require_owner()
                    require_plain(space.namespace, space.ledger.is_versioned)
            except CkptError:
                if is_fresh:
                    raise
                space.refresh()
            else:
                return

    def become_plain(self, space: CellNamespace) -> None:
        """Undo what made a namespace versioned if nothing was ever committed to it."""

        def follow(number: int) -> LedgerState | None:
            if space.ledger.is_versioned or space.ledger.state.mode == "plain":
                return None
            return msgspec.structs.replace(space.ledger.whole(), mode="plain", fence=number)

        space.append(follow, fences=True)
        self.require_writable(space)
