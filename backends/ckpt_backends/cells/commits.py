"""Commits on a server: cells first, then one record; several writers at once, and none of them lost.

A commit is prepared on what this handle knows, and asks for nothing. If another has added a record meanwhile,
the server refuses, and the commit is prepared again on what is there now.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from ckpt.contract.backend import versions_need_commits
from ckpt.errors import CkptError, UnsupportedError
from ckpt.types import CommitId
from ckpt_backends.cells.ledger import LedgerRecord, LedgerState, StampedCommit, encode_record
from ckpt_backends.cells.namespace import CellNamespace
from ckpt_backends.cells.plain import PlainRows
from ckpt_backends.cells.retries import Retries
from ckpt_backends.cells.server import CellServer


class Committer:
    """Adds commits to namespaces, and makes a plain namespace without keys versioned."""

    def __init__(self, server: CellServer, retries: Retries, rows: PlainRows) -> None:
        self._server, self._retries, self._rows = server, retries, rows

    def commit(
        self,
        space: CellNamespace,
        version: int,
        puts: Mapping[bytes, bytes],
        removed: Iterable[bytes],
        base: str | None,
        commit_id: str | None,
    ) -> CommitId:
        """Durably add one commit, whole or not at all, and return its id."""
        ledger = space.ledger
        cells = {key: space.codec.encode(key, value) for key, value in puts.items()}
        cells.update((key, space.codec.tombstone(key)) for key in removed)
        by, stamp, is_fresh = uuid.uuid4().hex, 0, False
        new_id = commit_id if commit_id is not None else uuid.uuid4().hex
        while True:
            try:
                with ledger.lock:
                    if not ledger.is_versioned:
                        space.require_owner()
                    prepared = ledger.history.prepare(version, base, new_id)
                    number, mode = ledger.number + 1, ledger.state.mode
                    floor = max(ledger.state.stamp_floor, ledger.stamp_of(prepared.base))
                    if mode == "plain" and not is_fresh:
                        raise versions_need_commits(space.namespace)
            except CkptError:
                # What this handle knows may be out of date: only then is the server asked again.
                if is_fresh:
                    raise
                space.refresh()
                is_fresh = True
                continue
            if mode == "plain":
                self._become_versioned(space)
                continue
            if stamp <= floor:
                stamp = self.new_stamp(space.namespace, floor)
            record = LedgerRecord(by, StampedCommit.of(prepared, number, stamp, len(cells)))
            if self._add(space.namespace, number, record, stamp, cells):
                ledger.fold([(number, encode_record(record))])
                return prepared.id
            space.refresh_to(number)
            is_fresh = True
            if by in ledger.names:
                return prepared.id

    def new_stamp(self, namespace: str, above: int) -> int:
        """A stamp that no other commit has."""
        return self._retries.call(lambda: self._server.new_stamp(namespace, above))

    def _add(
        self, namespace: str, number: int, record: LedgerRecord, stamp: int, cells: Mapping[bytes, bytes]
    ) -> bool:
        raw = encode_record(record)
        return self._retries.call(lambda: self._server.commit(namespace, number, raw, stamp, cells))

    def _become_versioned(self, space: CellNamespace) -> None:
        holds_keys = UnsupportedError(
            f"namespace {space.namespace!r} in {space.address} is plain and holds keys: it cannot become "
            "versioned; commit to another namespace, or drop this one first"
        )
        if self._rows.is_any(space):
            raise holds_keys

        def follow(number: int) -> LedgerState | None:
            if space.ledger.state.mode == "versioned":
                return None
            space.require_owner()
            return msgspec.structs.replace(space.ledger.whole(), mode="versioned", fence=number)

        if space.append(follow, fences=True) is not None:
            if self._rows.is_any(space):
                # A write came in before the fence was up.
                self._rows.become_plain(space)
                raise holds_keys
            if next(space.rows(b""), None) is not None:
                self._retries.call(lambda: self._server.clear_plain(space.namespace))
