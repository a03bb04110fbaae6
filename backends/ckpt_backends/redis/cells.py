"""Cells on Redis, and the ledger that makes them count: a commit is one transaction, all of it or nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from ckpt.errors import BackendUnavailableError
from ckpt_backends.redis.layout import (
    RedisLayout,
    after,
    cells_up_to,
    escaped,
    split_cell_name,
    stamp_suffix,
    starting_with,
)
from ckpt_backends.redis.link import Command
from ckpt_backends.redis.requests import RedisRequests, add_members, script, set_fields
from ckpt_backends.redis.rows import FIRST_PAGE_ROWS, PAGE_BYTES, PAGE_ROWS
from ckpt_backends.redis.scripts import (
    CLEAR_CELLS,
    COMMITTED,
    FORGET,
    LOAD,
    NEWEST_CELLS,
    NOTE_STAMP,
    PAGE,
    PARK_CELLS,
    REMOVE_CELLS,
    RESERVE_STAMPS,
)

_KEYS_AT_ONCE = 1000
"""Redis does nothing else while a script runs."""
_STAMPS_AT_ONCE = 1000


class RedisLedgers:
    """The ledger of every namespace: numbered records, and stamps that are given once."""

    def __init__(self, requests: RedisRequests, layout: RedisLayout) -> None:
        self._requests, self._layout = requests, layout
        self._stamps: dict[str, tuple[int, int]] = {}
        """The last stamp that was used, and the last that is reserved, by namespace."""
        self._lock = threading.Lock()

    def load(self, namespace: str, after_number: int) -> list[tuple[int, bytes]]:
        """The records above a number."""
        ledger = self._layout.ledger(namespace)
        answer = self._requests.read(ledger, script(LOAD, [ledger], [b"%d" % after_number]))
        ((newest, first, records),) = answer
        if newest < after_number:
            raise BackendUnavailableError(
                f"{self._requests.at} has lost records of namespace {namespace!r} that it had acknowledged, "
                "by a failover, a restart or a flush; open the store again, and see what is there"
            )
        return [(number, raw) for number, raw in enumerate(records, first) if raw is not None]

    def forget(self, namespace: str, below: int) -> None:
        """Remove the records below a number."""
        ledger = self._layout.ledger(namespace)
        self._requests.write(ledger, script(FORGET, [ledger], [b"%d" % below]))

    def new_stamp(self, namespace: str, above: int) -> int:
        """A stamp that no other commit gets; the server is asked for many at once."""
        with self._lock:
            used, reserved = self._stamps.get(namespace, (0, 0))
            if above < reserved and used < reserved:
                stamp = max(used, above) + 1
                self._stamps[namespace] = stamp, reserved
                return stamp
        ledger = self._layout.ledger(namespace)
        arguments = [b"%d" % above, b"%d" % _STAMPS_AT_ONCE]
        (before,) = self._requests.write(ledger, script(RESERVE_STAMPS, [ledger], arguments))
        stamp = int(before) + 1
        with self._lock:
            self._stamps[namespace] = stamp, stamp + _STAMPS_AT_ONCE - 1
        return stamp


class RedisCells:
    """The cells of every namespace."""

    def __init__(self, requests: RedisRequests, layout: RedisLayout) -> None:
        self._requests, self._layout = requests, layout

    # -- writing ---------------------------------------------------------------------------------

    def commit(
        self, namespace: str, number: int, record: bytes, stamp: int, cells: Mapping[bytes, bytes]
    ) -> bool:
        """Write cells and add the record that makes them count; neither, if the number is not the next."""
        *early, last = self._requests.parts(namespace, _named(cells, stamp), _key_of)
        return all(self._add(namespace, number, stamp, part) for part in early) and self._add(
            namespace, number, stamp, last, record
        )

    def _add(
        self, namespace: str, number: int, stamp: int, named: Mapping[bytes, bytes], *record: bytes
    ) -> bool:
        keys = [self._layout.ledger(namespace), *self._layout.cells(namespace)]
        keys += self._layout.parked_cells(namespace)
        arguments = [b"%d" % number, b"%d" % stamp, *record]
        end = script(COMMITTED, keys, arguments)
        if not named:
            return bool(self._requests.write(keys[0], end)[0])
        begin = script(PARK_CELLS, keys, arguments[:1])
        return bool(self._requests.transact(keys[0], begin, *self._put(namespace, named), end)[-1])

    def write(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        """Write cells that nothing makes count yet."""
        ledger = self._layout.ledger(namespace)
        for part in self._requests.parts(namespace, _named(cells, stamp), _key_of):
            end = script(NOTE_STAMP, [ledger], [b"%d" % stamp])
            self._requests.transact(ledger, *self._put(namespace, part), end)

    def _put(self, namespace: str, named: Mapping[bytes, bytes]) -> list[Command]:
        cells, order = self._layout.cells(namespace)
        return [*set_fields(cells, named), add_members(order, named)] if named else []

    def remove(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        """Remove the cells of each key up to and including a stamp."""
        keys = self._layout.cells(namespace)
        ranges = [cells_up_to(key, stamp)[0] for key, stamp in up_to.items()]
        for at in range(0, len(ranges), _KEYS_AT_ONCE):
            self._requests.write(keys[0], script(REMOVE_CELLS, keys, ranges[at : at + _KEYS_AT_ONCE]))

    def clear(self, namespace: str, up_to: int) -> None:
        """Remove every cell up to and including a stamp."""
        ledger, (cells, order) = self._layout.ledger(namespace), self._layout.cells(namespace)
        (done,) = self._requests.write(ledger, script(CLEAR_CELLS, [ledger, cells, order], [b"%d" % up_to]))
        start = b"-"
        while not done:
            limit = [b"LIMIT", b"0", b"%d" % _KEYS_AT_ONCE]
            (names,) = self._requests.read(ledger, [b"ZRANGEBYLEX", order, start, b"+", *limit])
            doomed = [name for name in names if split_cell_name(name)[1] <= up_to]
            if doomed:
                self._requests.transact(ledger, [b"HDEL", cells, *doomed], [b"ZREM", order, *doomed])
            if not names:
                return
            start = after(names[-1])

    # -- reading ---------------------------------------------------------------------------------

    def newest(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        """For each key that has one: its newest cell at or below a stamp."""
        if not bounds:
            return {}
        keys = self._layout.cells(namespace)
        ranges = [cells_up_to(key, stamp)[0] for key, stamp in bounds.items()]
        chunks = [ranges[at : at + _KEYS_AT_ONCE] for at in range(0, len(ranges), _KEYS_AT_ONCE)]
        found = {}
        for names, values in self._requests.read(keys[0], *(script(NEWEST_CELLS, keys, c) for c in chunks)):
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    key, stamp = split_cell_name(name)
                    found[key] = stamp, value
        return found

    def scan(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        """Every cell at or below a stamp of keys with a prefix: in the order of the keys, newest first."""
        keys = self._layout.cells(namespace)
        start, end = starting_with(escaped(prefix))
        wanted = FIRST_PAGE_ROWS
        while True:
            limits = [b"%d" % wanted, b"%d" % PAGE_BYTES, b""]
            ((_, names, values),) = self._requests.read(keys[0], script(PAGE, keys, [start, end, *limits]))
            for name, value in zip(names, values, strict=True):
                key, stamp = split_cell_name(name)
                if stamp <= bound and value is not None:
                    yield key, stamp, value
            if not names:
                return
            start = after(names[-1])
            wanted = min(4 * wanted, PAGE_ROWS)


def _named(cells: Mapping[bytes, bytes], stamp: int) -> dict[bytes, bytes]:
    suffix = stamp_suffix(stamp)
    return {escaped(key) + suffix: raw for key, raw in cells.items()}


def _key_of(name: bytes) -> bytes:
    return split_cell_name(name)[0]
