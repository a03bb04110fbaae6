"""The ledger of one namespace: what counts. Folding its records in order gives every handle the same answer.

A record is either one commit or the whole state, so everything before a whole state can be forgotten. The
owner of the namespace, its commits, the stamps of each and the fence that is up are all
decided by one append that only one writer can win.

Bytes of a record: format (1), xxh3-64 of the rest (8, little-endian), then JSON.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec
from xxhash import xxh3_64_intdigest

from ckpt.contract.versions import Commit, History, Settled, Truncation
from ckpt.errors import CorruptRecordError
from ckpt.types import CommitId
from ckpt_backends.cells.stamp_set import StampSet

_FORMAT = b"\x01"
_STAMP_SETS = 64
_NAMES = 1024


class StampedCommit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit as the ledger keeps it. Its sequence is the number of the record that added it."""

    id: str
    version: int
    base: str | None
    sequence: int
    stamp: int
    changes: int
    """How many keys it changes: what a removal of cells may find once it is truncated."""
    replaces: bool = False
    inherited: tuple[tuple[int, int], ...] = ()
    """Of a commit whose ancestors were truncated: the stamps of theirs that it still shows."""

    @classmethod
    def of(cls, commit: Commit, number: int, stamp: int, changes: int) -> StampedCommit:
        """The commit under a stamp, as the record of that number adds it."""
        return cls(commit.id, commit.version, commit.base, number, stamp, changes, commit.replaces)

    def commit(self) -> Commit:
        """As the history knows it."""
        base = None if self.base is None else CommitId(self.base)
        return Commit(CommitId(self.id), self.version, base, self.sequence, self.replaces)


class LedgerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the records up to here add up to."""

    mode: Literal["plain", "versioned"] = "plain"
    epoch: int = 0
    """The number of the record of the last claim."""
    owner: str | None = None
    """The handle that made the last claim, unless it has released it."""
    fence: int = 0
    """The number of the last record that put a fence up."""
    stamp_floor: int = 0
    """A commit needs a higher stamp than this: cells below it that no commit showed were removed."""
    commits: tuple[StampedCommit, ...] = ()
    truncated_below: int = 0
    through_sequence: int = 0
    tip: str | None = None
    garbage: tuple[str, ...] = ()
    truncated_at_s: float = 0.0
    """When the last truncation was made, by the clock of the process that made it."""
    cleaned: int = 0
    """The number of the record that announced the last removal of cells."""
    cleaned_by: str | None = None
    changes: int = 0
    """Keys changed by commits since the last removal of cells."""
    kept: int = 0
    """Keys that the last removal of cells left."""
    dropped: int = 0
    """The number of the record of the last drop."""


class LedgerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry. `by` is unique, so that a writer finds its own entry again when an answer was lost."""

    by: str
    commit: StampedCommit | None = None
    state: LedgerState | None = None


_decoder = msgspec.json.Decoder(LedgerRecord)


def encode_record(record: LedgerRecord) -> bytes:
    """The bytes of a record."""
    body = msgspec.json.encode(record)
    return _FORMAT + xxh3_64_intdigest(body).to_bytes(8, "little") + body


def decode_record(raw: bytes, *, of: str) -> LedgerRecord:
    """The record that these bytes are, or CorruptRecordError."""
    if raw[:1] != _FORMAT or xxh3_64_intdigest(raw[9:]).to_bytes(8, "little") != raw[1:9]:
        raise CorruptRecordError(f"a ledger record of {of} is damaged; restore the namespace from a copy")
    try:
        return _decoder.decode(raw[9:])
    except msgspec.MsgspecError as error:
        raise CorruptRecordError(
            f"a ledger record of {of} is of a kind that this version of ckpt does not know; update ckpt"
        ) from error


class Ledger:
    """One handle's view of a ledger. Thread-safe; it never talks to the server itself."""

    def __init__(self, namespace: str, address: str, handle: str) -> None:
        self._of = f"namespace {namespace!r} in {address}"
        self._handle = handle
        self.lock = threading.RLock()
        self.number = 0
        """The newest record that this view has seen."""
        self.state = LedgerState()
        """The last whole state; the commits after it are in the history."""
        self.history = History()
        self.changes = 0
        """Keys changed by commits since the last removal of cells."""
        self.kept = 0
        """Keys that the last removal of cells left."""
        self.cleaned_by_others = 0
        """The number of the last record by which another handle announced a removal of cells."""
        self.names: deque[str] = deque(maxlen=_NAMES)
        """The newest records that were taken in: where a writer finds its own when an answer was lost."""
        self._stamped: dict[CommitId, StampedCommit] = {}
        self._stamp_sets: dict[CommitId, StampSet] = {}

    @property
    def is_versioned(self) -> bool:
        """Whether a commit makes the namespace versioned."""
        return len(self.history) > 0

    def fold(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Take in what the server holds after `number`; what is known already is passed over."""
        with self.lock:
            for number, raw in records:
                if number <= self.number:
                    continue
                record = decode_record(raw, of=self._of)
                if record.state is not None:
                    self._replace(record.state)
                elif record.commit is not None and number == self.number + 1:
                    self._add(record.commit)
                    self.changes += record.commit.changes
                else:
                    raise CorruptRecordError(
                        f"record {self.number + 1} of the ledger of {self._of} is missing; "
                        "restore the namespace from a copy"
                    )
                self.number = number
                self.names.append(record.by)

    def stamp_of(self, commit_id: CommitId | None) -> int:
        """The stamp of a known commit; 0 for None."""
        return self._stamped[commit_id].stamp if commit_id is not None else 0

    @property
    def highest_stamp(self) -> int:
        """The highest stamp of any commit; 0 if there is none."""
        return max((stamped.stamp for stamped in self._stamped.values()), default=0)

    def stamps(self, commit: Commit | None) -> StampSet:
        """What a reader of this commit sees."""
        with self.lock:
            path = []
            stamps = StampSet()
            for ancestor in self.history.chain(commit):
                known = self._stamp_sets.get(ancestor.id)
                if known is not None:
                    stamps = known
                    break
                path.append(ancestor.id)
            for commit_id in reversed(path):
                stamped = self._stamped[commit_id]
                stamps = (StampSet(stamped.inherited) if stamped.inherited else stamps).plus(stamped.stamp)
            if commit is not None and path:
                if len(self._stamp_sets) >= _STAMP_SETS:
                    self._stamp_sets.clear()
                self._stamp_sets[commit.id] = stamps
            return stamps

    @property
    def retained_changes(self) -> int:
        """Those of the changes that are of commits above the oldest retained ones: no removal finds them."""
        roots = {root.id for root in self.roots()}
        return sum(stamped.changes for name, stamped in self._stamped.items() if name not in roots)

    def roots(self) -> list[Commit]:
        """The oldest commit of every retained chain."""
        return [c for c in self.history.stored() if c.base is None or c.base not in self.history]

    # -- the states that follow from this one ----------------------------------------------------

    def whole(self) -> LedgerState:
        """Everything up to now as one state."""
        settled = self.history.settled
        tip = self.history.tip
        listed = {commit.id for commit in self.history.commits()}
        return msgspec.structs.replace(
            self.state,
            commits=tuple(self._stamped[c.id] for c in self.history.stored()),
            truncated_below=settled.truncated_below,
            through_sequence=self.number,
            tip=tip.id if tip else None,
            garbage=tuple(c.id for c in self.history.stored() if c.id not in listed),
            changes=self.changes,
            kept=self.kept,
        )

    def truncated(self, plan: Truncation, now_s: float) -> LedgerState:
        """The state after a truncation: floors show what their ancestors wrote."""
        with self.lock:
            after = self.history.copy()
            after.apply(plan)
            floors = {floor: self.stamps(self.history[floor]) for floor in plan.floors}
            commits = []
            for commit in after.stored():
                stamped = self._stamped[commit.id]
                if commit.id in floors:
                    inherited = tuple(_without(floors[commit.id], stamped.stamp))
                    stamped = msgspec.structs.replace(stamped, base=None, inherited=inherited)
                commits.append(stamped)
            return msgspec.structs.replace(
                self.state,
                commits=tuple(commits),
                truncated_below=after.settled.truncated_below,
                through_sequence=self.number,
                tip=after.settled.tip,
                garbage=after.settled.garbage,
                truncated_at_s=now_s,
                changes=self.changes,
                kept=self.kept,
            )

    # -- folding ---------------------------------------------------------------------------------

    def _add(self, stamped: StampedCommit) -> None:
        commit = stamped.commit()
        self._stamped[commit.id] = stamped
        self.history.add(commit)

    def _replace(self, state: LedgerState) -> None:
        if state.cleaned > self.state.cleaned and state.cleaned_by != self._handle:
            self.cleaned_by_others = state.cleaned
        self.state, self.changes, self.kept = state, state.changes, state.kept
        tip = None if state.tip is None else CommitId(state.tip)
        garbage = tuple(map(CommitId, state.garbage))
        self._stamped = {CommitId(c.id): c for c in state.commits}
        self._stamp_sets.clear()
        self.history = History(
            (c.commit() for c in state.commits),
            settled=Settled(state.truncated_below, state.through_sequence, tip, garbage),
        )


def _without(stamps: StampSet, stamp: int) -> list[tuple[int, int]]:
    """The ranges of a set of stamps without its highest stamp, which is that of the commit itself."""
    *others, (low, high) = stamps.ranges
    assert high == stamp
    return [*others, (low, high - 1)] if low < high else others
