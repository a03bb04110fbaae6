"""Reads of versioned namespaces: each sees one commit, whole, whatever happens to others meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ckpt.errors import VersionNotFoundError
from ckpt_backends.cells.namespace import CellNamespace, Pin
from ckpt_backends.cells.server import CellServer

_ROWS_BETWEEN_LOOKS = 256


class CommitReader:
    """Finds what a commit shows among the cells of a namespace."""

    def __init__(self, server: CellServer, grace_s: float) -> None:
        self._server = server
        self._look_every_s = grace_s / 4

    def get(
        self, space: CellNamespace, keys: list[bytes], version: int | None, commit_id: str | None
    ) -> dict[bytes, bytes]:
        """The values of those keys that exist as of a version."""
        pin = self._pinned(space, version, commit_id)
        if pin is None:
            return {}
        found = space.visible_cells(pin.stamps, dict.fromkeys(keys, pin.stamps.highest))
        return {key: value for key in keys if (value := found.get(key)) is not None}

    def scan(
        self, space: CellNamespace, prefix: bytes, version: int | None, commit_id: str | None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Everything as of a version, which is fixed now."""
        pin = self._pinned(space, version, commit_id)
        return iter(()) if pin is None else self._scan(space, prefix, pin)

    @staticmethod
    def _pinned(space: CellNamespace, version: int | None, commit_id: str | None) -> Pin | None:
        ledger = space.ledger
        with ledger.lock:
            commit = ledger.history.resolve(version, commit_id)
            if commit is None:
                return None
            pin = Pin(commit, ledger.stamp_of(commit.id), ledger.stamps(commit), ledger.number)
            space.pins.add(pin)
            return pin

    def _scan(self, space: CellNamespace, prefix: bytes, pin: Pin) -> Iterator[tuple[bytes, bytes]]:
        stamps = pin.stamps
        settled: bytes | None = None
        looked_s = time.monotonic()
        for row, (key, stamp, raw) in enumerate(space.cells(prefix, stamps.highest)):
            if row % _ROWS_BETWEEN_LOOKS == 0 and time.monotonic() - looked_s > self._look_every_s:
                self._require_intact(space, pin)
                looked_s = time.monotonic()
            if key == settled:
                continue
            if stamp in stamps:
                value = space.codec.decode(key, raw).value
            elif self._server.scans_every_cell:
                continue
            else:
                lower = stamps.at_or_below(stamp - 1)
                value = None if lower is None else space.visible_cells(stamps, {key: lower}).get(key)
            settled = key
            if value is not None:
                yield key, value
        self._require_intact(space, pin)

    @staticmethod
    def _require_intact(space: CellNamespace, pin: Pin) -> None:
        """Raise if another handle has removed what this scan may not have read yet."""
        space.refresh()
        with space.ledger.lock:
            ledger = space.ledger
            is_retained = pin.commit.id in ledger.history and ledger.stamp_of(pin.commit.id) == pin.stamp
            if not is_retained and max(ledger.cleaned_by_others, ledger.state.dropped) > pin.number:
                raise VersionNotFoundError(
                    f"version {pin.commit.version} of namespace {space.namespace!r} was truncated by another "
                    "handle, and its grace ended, during this scan; scan a version that is kept, or raise "
                    "grace_s"
                )
