"""The ledger of a namespace in one HBase row: two writers never both add the next record.

HBase compares and sets one column of one row at a time. So a record is written first, under a name of its
own (`r`, its number in 16 hexadecimal digits, `-`, a random name), and then made the newest by a
compare-and-set of the column `head`. A record that lost that race is in the row, but in no chain.

| column | bytes |
| --- | --- |
| `meta:head` | xxh3-64 of the rest (8), number of the newest record (8), names (8 each) of the newest 64 |
| `meta:r…` | random name of the record before it (8), then the record |
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from ckpt.errors import CorruptRecordError
from ckpt_backends.cells.server import NotNowError
from ckpt_backends.hbase.table import META, Table

_HEAD = META + b":head"
_RECORD = META + b":r"
_NAME_BYTES = 8
_NAMES = 64
_NUMBER = struct.Struct(">Q")
_NO_NAME = bytes(_NAME_BYTES)
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class _Head:
    number: int
    names: tuple[bytes, ...]
    raw: bytes | None

    @classmethod
    def of(cls, raw: bytes | None) -> _Head:
        if raw is None:
            return cls(0, (), None)
        body = raw[_NUMBER.size :]
        if len(body) < _NUMBER.size or raw != _sealed(body):
            raise CorruptRecordError(
                "the head of a ledger (meta:head) is damaged; restore the namespace from a copy"
            )
        names = (body[at : at + _NAME_BYTES] for at in range(_NUMBER.size, len(body), _NAME_BYTES))
        return cls(_NUMBER.unpack_from(body)[0], tuple(names), raw)

    def followed_by(self, name: bytes) -> bytes:
        return _sealed(_NUMBER.pack(self.number + 1) + name + b"".join(self.names[: _NAMES - 1]))

    def name_of(self, number: int) -> bytes | None:
        """The name of one of the newest records."""
        back = self.number - number
        return self.names[back] if 0 <= back < len(self.names) else None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that is in the row, or may be, and can still become the newest one."""

    number: int
    record: bytes
    name: bytes
    before: bytes
    expected: bytes | None
    """The head that it follows."""
    wanted: bytes
    """The head that makes it the newest."""

    @property
    def column(self) -> bytes:
        """Where the record is."""
        return _column(self.number, self.name)

    @property
    def cell(self) -> bytes:
        """The record as it is stored."""
        return self.before + self.record


class RowLedger:
    """The ledgers of one table; each in the row that describes its namespace."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._heads: dict[bytes, _Head] = {}
        self._attempts: dict[bytes, Attempt] = {}
        self._lock = threading.Lock()

    def load(self, row: bytes, after: int) -> list[tuple[int, bytes]]:
        """The records above `after` that are in the chain, ascending."""
        for _ in range(_LOOKS):
            head = self._look(row)
            if head.number <= after:
                return []
            if head.number - after <= len(head.names):
                records = self._named(row, head, after)
            else:
                records = self._chain(row, head, after)
            if records:
                return records
            # Between the two reads they were forgotten: newer ones stand for them.
        raise NotNowError("the ledger of a namespace changes faster than it is read; try again later")

    def prepare(self, row: bytes, number: int, record: bytes) -> Attempt | None:
        """What to write so that the record can be added; None if another handle has taken `number`."""
        with self._lock:
            head, earlier = self._heads.get(row), self._attempts.get(row)
        if head is None or head.number != number - 1 or earlier is not None:
            head = self._look(row)
        if (
            earlier is not None
            and (earlier.number, earlier.record) == (number, record)
            and (head.number >= number or head.raw == earlier.expected)
        ):
            return earlier
        if head.number != number - 1:
            return None
        name = os.urandom(_NAME_BYTES)
        before = head.names[0] if head.names else _NO_NAME
        attempt = Attempt(number, record, name, before, head.raw, head.followed_by(name))
        with self._lock:
            self._attempts[row] = attempt
        return attempt

    def decide(self, row: bytes, attempt: Attempt) -> bool:
        """Make a written record the newest one; whether it is in the chain."""
        is_newest = self._table.replace(row, _HEAD, attempt.expected, attempt.wanted)
        head = _Head.of(attempt.wanted) if is_newest else self._look(row)
        with self._lock:
            self._heads[row] = head
            if self._attempts.get(row) is attempt:
                del self._attempts[row]
        # An attempt without an answer may have succeeded.
        return is_newest or head.name_of(attempt.number) == attempt.name

    def forget(self, row: bytes, below: int) -> None:
        """Remove the records with lower numbers, and those that lost; never one that may still win."""
        cells = self._table.row(row, [META])
        head = _Head.of(cells.get(_HEAD))
        chain = {_column(head.number - back, name) for back, name in enumerate(head.names)}
        doomed = [
            column
            for column in cells
            if column.startswith(_RECORD)
            and (
                (number := _number(column)) < below
                or (number > head.number - len(head.names) and number <= head.number and column not in chain)
            )
        ]
        self._table.remove_columns(row, doomed)

    def _look(self, row: bytes) -> _Head:
        head = _Head.of(self._table.row(row, [_HEAD]).get(_HEAD))
        with self._lock:
            self._heads[row] = head
        return head

    def _named(self, row: bytes, head: _Head, after: int) -> list[tuple[int, bytes]]:
        wanted = {
            number: _column(number, head.names[head.number - number])
            for number in range(after + 1, head.number + 1)
        }
        cells = self._table.row(row, list(wanted.values()))
        return _unbroken({number: cells[column] for number, column in wanted.items() if column in cells})

    def _chain(self, row: bytes, head: _Head, after: int) -> list[tuple[int, bytes]]:
        cells = self._table.row(row, [META])
        found: dict[int, bytes] = {}
        number, name = head.number, head.names[0]
        while number > after and (cell := cells.get(_column(number, name))) is not None:
            found[number] = cell
            number, name = number - 1, cell[:_NAME_BYTES]
        return _unbroken(found)


def _sealed(body: bytes) -> bytes:
    return _NUMBER.pack(xxh3_64_intdigest(body)) + body


def _column(number: int, name: bytes) -> bytes:
    return b"%s%016x-%s" % (_RECORD, number, name.hex().encode())


def _number(column: bytes) -> int:
    return int(column[len(_RECORD) : len(_RECORD) + 16], 16)


def _unbroken(cells: dict[int, bytes]) -> list[tuple[int, bytes]]:
    """The records from the newest down to the first that is missing, ascending; none without the newest."""
    newest_first: Sequence[int] = sorted(cells, reverse=True)
    found: list[tuple[int, bytes]] = []
    for number in newest_first:
        if found and found[-1][0] != number + 1:
            break
        found.append((number, cells[number][_NAME_BYTES:]))
    return found[::-1]
