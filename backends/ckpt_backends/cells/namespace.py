"""One namespace on a server as one handle sees it: its ledger kept up to date, and records added to it."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from ckpt.contract.versions import Commit
from ckpt.errors import CorruptRecordError, FencedError
from ckpt_backends.cells.codec import CellCodec
from ckpt_backends.cells.ledger import Ledger, LedgerRecord, LedgerState, encode_record
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import CellServer
from ckpt_backends.cells.stamp_set import StampSet

RowT = TypeVar("RowT")


class Pin:
    """Held by a scan while it runs, so that this handle removes nothing that the scan still has to read."""

    __slots__ = ("__weakref__", "commit", "number", "stamp", "stamps")

    def __init__(self, commit: Commit, stamp: int, stamps: StampSet, number: int) -> None:
        self.commit, self.stamp, self.stamps, self.number = commit, stamp, stamps, number


class CellNamespace:
    """The ledger, the codec and the claim of one namespace; no lock is held while the server is asked."""

    def __init__(
        self, server: CellServer, namespace: str, address: str, handle: str, retries: Retries
    ) -> None:
        self.namespace, self.address = namespace, address
        self.codec = CellCodec(namespace, address)
        self.ledger = Ledger(namespace, address, handle)
        self.claim: int | None = None
        """The epoch of this handle's claim, also after another has taken the namespace over."""
        self.turn = threading.Lock()
        """Held during an exclusive write: a server may rely on one batch at a time."""
        self.pins: weakref.WeakSet[Pin] = weakref.WeakSet()
        self.is_loaded = False
        self._is_registered = False
        self._server, self._retries = server, retries

    # -- the ledger ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what others have added to the ledger."""
        after = self.ledger.number
        self.ledger.fold(self._retries.call(lambda: self._server.load(self.namespace, after)))
        self.is_loaded = True

    def refresh_to(self, number: int) -> None:
        """Take in the record that kept another one with that number from being added."""
        self.refresh()
        if self.ledger.number < number:
            raise CorruptRecordError(
                f"the ledger of namespace {self.namespace!r} in {self.address} ends before record "
                f"{self.ledger.number}, which was there before: the server has lost what it acknowledged; "
                "open the store again to go on with what is left, or restore it from a copy"
            )

    def register(self) -> None:
        """Note the namespace on the server before this handle's first write to it."""
        if not self._is_registered:
            self._retries.call(lambda: self._server.register(self.namespace))
            self._is_registered = True

    def append(self, follow: Callable[[int], LedgerState | None], *, fences: bool) -> int | None:
        """Add the state that `follow(number)` makes of the newest view; None if it makes none.

        What `follow` raises is raised. If another handle adds a record first, it looks again. With `fences`,
        the fence is up when this returns.
        """
        self.register()
        if not self.is_loaded:
            self.refresh()
        while True:
            with self.ledger.lock:
                number = self.ledger.number + 1
                state = follow(number)
            if state is None:
                return None
            record = LedgerRecord(uuid.uuid4().hex, state=state)
            raw = encode_record(record)
            if self._add(number, raw, fences=fences):
                self.ledger.fold([(number, raw)])
                break
            self.refresh_to(number)
            if record.by in self.ledger.names:
                break
        if fences:
            self.put_fence_up()
        self._retries.call(lambda: self._server.forget(self.namespace, number))
        return number

    def put_fence_up(self) -> None:
        """Make sure that the newest fence of the ledger is up; idempotent."""
        state = self.ledger.state
        exclusive = state.owner is not None
        self._retries.call(lambda: self._server.fence(self.namespace, state.fence, exclusive=exclusive))

    def _add(self, number: int, raw: bytes, *, fences: bool) -> bool:
        return self._retries.call(lambda: self._server.append(self.namespace, number, raw, fences=fences))

    # -- owners ----------------------------------------------------------------------------------

    def require_owner(self) -> None:
        """Raise FencedError if another handle owns the namespace, or took it from this one."""
        state = self.ledger.state
        # A handle that lost its claim stays fenced after the new owner has gone: it may hold old state.
        if (state.owner is not None) if self.claim is None else self.claim != state.epoch:
            raise FencedError(
                f"namespace {self.namespace!r} in {self.address} was claimed by another owner "
                f"(epoch {state.epoch}); stop writing, or claim() it to take it over"
            )

    # -- rows and cells --------------------------------------------------------------------------

    def live_rows(self, prefix: bytes, now_s: Callable[[], float]) -> Iterator[tuple[bytes, bytes]]:
        """The plain rows that have not expired."""
        for key, raw in self.rows(prefix):
            value = self.codec.value(key, raw, now_s())
            if value is not None:
                yield key, value

    def rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The plain rows as the server scans them."""
        return self._begun(lambda: self._server.scan_plain(self.namespace, prefix))

    def visible_cells(self, stamps: StampSet, bounds: Mapping[bytes, int]) -> dict[bytes, bytes | None]:
        """The newest cell that `stamps` shows of each key; None for a tombstone."""
        found: dict[bytes, bytes | None] = {}
        while bounds:
            hidden = {}
            for key, (stamp, raw) in self.newest_cells(bounds).items():
                if stamp in stamps:
                    found[key] = self.codec.decode(key, raw).value
                elif (lower := stamps.at_or_below(stamp - 1)) is not None:
                    hidden[key] = lower
            bounds = hidden
        return found

    def cells(self, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        """The cells at or below a stamp, as the server scans them."""
        return self._begun(lambda: self._server.scan_cells(self.namespace, prefix, bound))

    def newest_cells(self, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        """The newest cell of each key at or below its bound, whether a commit shows it or not."""
        return self._retries.call(lambda: self._server.newest_cells(self.namespace, bounds))

    def _begun(self, scan: Callable[[], Iterator[RowT]]) -> Iterator[RowT]:
        """A scan whose first row is asked for with patience; what fails later has to be begun again."""

        def first() -> tuple[Iterator[RowT], RowT | None]:
            rows = scan()
            return rows, next(rows, None)

        rows, head = self._retries.call(first)
        if head is not None:
            yield head
            yield from rows
