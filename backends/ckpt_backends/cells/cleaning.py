"""Removing cells that no retained commit shows, at a cost in proportion to what was written since.

What a truncation forgot stays for `grace_s`, for running readers. Then the namespace is read once,
and of each key everything older than what the oldest retained commit shows is removed. That happens when
the changes since the last time add up to half of the keys, so its cost per change is bounded.

A removal is announced in the ledger first: from then on a commit needs a stamp above the floor, so that no
cell of a commit still under way is taken for a leftover, and a slow scan of another handle learns of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

import msgspec

from ckpt_backends.cells.ledger import LedgerState
from ckpt_backends.cells.namespace import CellNamespace
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import CellServer
from ckpt_backends.cells.stamp_set import StampSet

_KEYS_AT_ONCE = 500

StampedCells = list[tuple[int, bytes]]
"""Cells of one key as (stamp, bytes), newest first."""


@dataclass(slots=True)
class Cleaned:
    """What was read and what was removed, in bytes of cells."""

    read_bytes: int = 0
    removed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _RetainedView:
    """A view that must stay readable: the oldest commit of a chain, or a running scan."""

    stamp: int
    stamps: StampSet


class Cleaner:
    """Removes cells of one namespace after another; every decision is in the ledger before it is acted on."""

    def __init__(self, server: CellServer, retries: Retries, handle: str, grace_s: float) -> None:
        self._server, self._retries = server, retries
        self._handle, self._grace_s = handle, grace_s

    def is_due(self, space: CellNamespace, now_s: float, *, thorough: bool) -> bool:
        """Whether enough has gathered (with `thorough`: anything), and long enough ago."""
        ledger = space.ledger
        if not ledger.state.truncated_at_s or now_s < ledger.state.truncated_at_s + self._grace_s:
            return False
        gathered = ledger.changes - ledger.retained_changes
        return gathered > 0 and (thorough or gathered >= ledger.kept // 2)

    def clean(self, space: CellNamespace) -> Cleaned:
        """Remove what no retained commit and no scan of this handle shows."""
        ledger = space.ledger

        def announce(number: int) -> LedgerState:
            floor = min((ledger.stamp_of(root.id) for root in ledger.roots()), default=0)
            return msgspec.structs.replace(
                ledger.whole(),
                cleaned=number,
                cleaned_by=self._handle,
                stamp_floor=max(ledger.state.stamp_floor, floor),
                changes=ledger.retained_changes,
            )

        with ledger.lock:
            views = [_RetainedView(ledger.stamp_of(root.id), ledger.stamps(root)) for root in ledger.roots()]
            retained = {view.stamp for view in views}
            views += [_RetainedView(p.stamp, p.stamps) for p in list(space.pins) if p.stamp not in retained]
        if not views or (len(views) > 1 and not self._server.scans_every_cell):
            return Cleaned()
        space.append(announce, fences=False)
        done, kept = Cleaned(), 0
        keys = self._keys(space, max(view.stamp for view in views))
        while chunk := list(islice(keys, _KEYS_AT_ONCE)):
            if not self._server.scans_every_cell:
                self._look_below(space, chunk, views[0].stamps)
            doomed: dict[bytes, int] = {}
            for key, cells in chunk:
                up_to = self._doomed(space, key, cells, views)
                done.read_bytes += sum(len(raw) for _, raw in cells)
                if up_to is not None:
                    doomed[key] = up_to
                    done.removed_bytes += sum(len(raw) for stamp, raw in cells if stamp <= up_to)
                if up_to is None or cells[0][0] > up_to:
                    kept += 1
            if doomed:
                self._remove(space.namespace, doomed)
        ledger.kept = kept
        return done

    def _remove(self, namespace: str, doomed: dict[bytes, int]) -> None:
        self._retries.call(lambda: self._server.remove_cells(namespace, doomed))

    @staticmethod
    def _keys(space: CellNamespace, bound: int) -> Iterator[tuple[bytes, StampedCells]]:
        for key, cells in groupby(space.cells(b"", bound), key=itemgetter(0)):
            yield key, [(stamp, raw) for _, stamp, raw in cells]

    def _look_below(
        self, space: CellNamespace, chunk: list[tuple[bytes, StampedCells]], stamps: StampSet
    ) -> None:
        """Ask for older cells where a scan shows only the newest: down to one below what is seen."""
        bounds = {key: cells[-1][0] - 1 for key, cells in chunk}
        waiting = dict(chunk)
        while bounds:
            answer = space.newest_cells(bounds)
            bounds = {}
            for key, found in answer.items():
                seen = any(stamp in stamps for stamp, _ in waiting[key])
                waiting[key].append(found)
                if not seen:
                    bounds[key] = found[0] - 1

    @staticmethod
    def _doomed(
        space: CellNamespace, key: bytes, cells: StampedCells, views: list[_RetainedView]
    ) -> int | None:
        """Up to which stamp the cells of a key can go."""
        if len(views) > 1:
            # A descendant of a view sees what the view sees, or something newer than the view.
            needed = min(
                next(
                    (stamp for stamp, _ in cells if stamp in view.stamps and stamp <= view.stamp), view.stamp
                )
                for view in views
            )
            return next((stamp for stamp, _ in cells if stamp < needed), None)
        shown = next((at for at, (stamp, _) in enumerate(cells) if stamp in views[0].stamps), None)
        if shown is None:
            return cells[0][0]
        stamp, raw = cells[shown]
        if space.codec.decode(key, raw).value is None:
            return stamp
        return cells[shown + 1][0] if shown + 1 < len(cells) else None
