"""Fences without a condition on every write: once a fence is up, no write under a lower one is ever seen.

A condition on a batch makes Cassandra store the batch three times. So a write is announced instead:

1. announce under which fence, with which time, which keys will be written, on a quorum;
2. look whether that fence is still up: if not, nothing is written;
3. write the rows, all with that time;
4. look again: if another fence is up by now, the write is not acknowledged.

A handle puts a fence up by a condition, and then reads what is announced. Either a writer's look came
before the fence, and then its announcement is found here, or it comes after, and the writer stops. Writes
that are announced under lower fences may still be under way, held up in a network for ever so long. Each of
their keys is written again as it is now, with a slightly later time, so that they lose to it whenever they
arrive. Only then is the fence *settled*, and writes under it are admitted.

Times are those of a clock that only goes forward, in steps of `STEP`. A writer that finds a later time than
its own has been announced takes a later one still, so that the last write wins whatever the clocks of hosts
say, and within a step there is room for what rewrites an announced key: above that write, below every later
one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ckpt_backends.cassandra.keys import Intent, pack_intent, unpack_intent
from ckpt_backends.cassandra.ledger import Names
from ckpt_backends.cassandra.link import CassandraLink, PartitionRequest, bigint
from ckpt_backends.cassandra.schema import Cql

STEP = 4096
"""Microseconds between two times of a clock."""


class ForwardClock:
    """Times that only go forward; near the time of day, and never behind what was seen."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """A time that is later than all before."""
        with self._lock:
            self._last = max(time.time_ns() // 1000 // STEP * STEP, self._last + STEP)
            return self._last

    def see(self, other: int) -> None:
        """Never again give a time that is not later than this one."""
        with self._lock:
            self._last = max(self._last, other // STEP * STEP)


@dataclass(frozen=True, slots=True)
class FenceRow:
    """The columns of a namespace in the table of fences, but for what is announced, as `LOOK` names them."""

    fence: int | None = None
    settled: int | None = None
    mark: int | None = None
    big_rows: bool | None = None
    big_cells: bool | None = None

    def admits(self, fence: int) -> bool:
        """Whether that fence is up, and the handle that put it up has come to the end of it."""
        return (self.fence or 0) == fence and (self.settled or 0) >= fence


@dataclass(slots=True)
class AnnouncedWrite:
    """One announced write."""

    namespace: str
    fence: int
    slot: bytes
    keys: tuple[bytes, ...]
    time: int = 0
    announced: Iterator[object] = field(default_factory=lambda: iter(()))
    big: bool = False
    """Whether the namespace may hold values in parts."""


@dataclass(frozen=True, slots=True)
class RaisedFence:
    """What there is to know once a fence is up."""

    fence: int
    mark: int
    """The latest time that any write was announced with; 0 if there was none."""
    intents: Mapping[bytes, Intent]


@dataclass(slots=True)
class _Slots:
    """Where this handle announces writes to one namespace; a slot is used again once its write has ended."""

    free: list[bytes] = field(default_factory=list)
    made: int = 0
    doubts: dict[bytes, set[bytes]] = field(default_factory=dict)
    """Slots of writes that may still be under way: the keys that no later write has covered yet."""


class Fences:
    """Announces writes, looks at fences and puts them up."""

    def __init__(self, link: CassandraLink, names: Names) -> None:
        self._link, self._names = link, names
        self._clock = ForwardClock()
        self._handle = os.urandom(8)
        self._slots: defaultdict[str, _Slots] = defaultdict(_Slots)
        self._lock = threading.Lock()

    # -- writers ---------------------------------------------------------------------------------

    def begin(self, namespace: str, fence: int, keys: tuple[bytes, ...]) -> AnnouncedWrite:
        """Announce a write, and return while the announcement is under way."""
        write = AnnouncedWrite(namespace, fence, self._take_slot(namespace), keys)
        self._announce(write)
        return write

    def is_admitted(self, write: AnnouncedWrite) -> bool:
        """Whether the fence of the write is up, now that others know of it; False ends the write."""
        try:
            seen = self._announced(write)
            if seen.admits(write.fence) and (seen.mark or 0) > write.time:
                # Everything acknowledged before this write began has at most that time: one later is enough.
                self._announce(write)
                seen = self._announced(write)
            if seen.admits(write.fence):
                write.big = bool(seen.big_rows)
                return True
            self._withdraw(write)
        except BaseException:
            # Nothing but the announcement was sent, and the next one in this slot has a later time.
            self._free(write)
            raise
        self._free(write)
        return False

    def finish(self, write: AnnouncedWrite) -> bool:
        """After all was written: whether the fence of the write was up all the time."""
        seen = self.look(write.namespace)
        self._withdraw(write)
        self._free(write)
        if not seen.admits(write.fence):
            return False
        with self._lock:
            slots = self._slots[write.namespace]
            for slot, uncovered in list(slots.doubts.items()):
                uncovered.difference_update(write.keys)
                if not uncovered:
                    del slots.doubts[slot]
                    slots.free.append(slot)
        return True

    def doubt(self, write: AnnouncedWrite) -> None:
        """The write has failed, but may still arrive: what was announced of it stays."""
        with self._lock:
            self._slots[write.namespace].doubts[write.slot] = set(write.keys)

    def _announce(self, write: AnnouncedWrite) -> None:
        write.time = self._clock.next()
        intent = pack_intent(write.fence, write.time, write.keys)
        values = (bigint(write.time), write.slot, intent, *self._names.place(write.namespace))
        write.announced = self._link.answers(
            [PartitionRequest.one(Cql.ANNOUNCE, *values, level=self._link.quorum, timestamp=write.time)]
        )

    def _announced(self, write: AnnouncedWrite) -> FenceRow:
        """What there is to see once the announcement is known."""
        next(write.announced)
        seen = self.look(write.namespace)
        self._clock.see(seen.mark or 0)
        return seen

    def look(self, namespace: str) -> FenceRow:
        """What is known of the namespace on a quorum, now."""
        rows = self._link.ask(Cql.LOOK, *self._names.place(namespace), level=self._link.quorum)
        return FenceRow(*rows[0]) if rows else FenceRow()

    def _withdraw(self, write: AnnouncedWrite) -> None:
        """Best effort: what stays announced only costs the next owner a little work."""
        self._link.post(self._withdrawal(write.namespace, write.slot, write.time))

    def _withdrawal(self, namespace: str, slot: bytes, at: int) -> PartitionRequest:
        values = (slot, bigint(at), *self._names.place(namespace))
        return PartitionRequest.one(Cql.WITHDRAW, *values, level=self._link.quorum)

    def _take_slot(self, namespace: str) -> bytes:
        with self._lock:
            slots = self._slots[namespace]
            if slots.free:
                return slots.free.pop()
            slots.made += 1
            return self._handle + slots.made.to_bytes(4, "big")

    def _free(self, write: AnnouncedWrite) -> None:
        with self._lock:
            self._slots[write.namespace].free.append(write.slot)

    # -- owners ----------------------------------------------------------------------------------

    def put_up(self, namespace: str, number: int) -> RaisedFence:
        """Put a fence up unless a higher one is, and read what is announced."""
        place = self._names.place(namespace)
        up = self.look(namespace).fence
        while up is None or up < number:
            expected = None if up is None else bigint(up)
            applied, actual = self._link.applied((Cql.RAISE, (bigint(number), *place, expected)))
            if applied:
                break
            up = actual[-1] if actual else None
        return self.raised(namespace)

    def raised(self, namespace: str) -> RaisedFence:
        """The fence and what is announced, now."""
        rows = self._link.ask(Cql.READ_INTENTS, *self._names.place(namespace), level=self._link.quorum)
        if not rows:
            return RaisedFence(0, 0, {})
        up, mark, announced = rows[0]
        intents = {slot: unpack_intent(raw) for slot, raw in (announced or {}).items()}
        self._clock.see(max(mark or 0, *(intent.time for intent in intents.values()), 0))
        return RaisedFence(up or 0, mark or 0, intents)

    def settle(self, namespace: str, number: int, late: Iterable[tuple[bytes, int]]) -> None:
        """Take back what was announced under lower fences, and admit writes under this one."""
        self._link.done(self._withdrawal(namespace, slot, at) for slot, at in late)
        place = self._names.place(namespace)
        # Its time is its number, so that it never goes down.
        self._link.ask(Cql.SETTLE, bigint(number), *place, level=self._link.quorum, timestamp=number)
