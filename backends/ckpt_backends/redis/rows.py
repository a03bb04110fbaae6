"""Plain rows on Redis: what a fenced or belated request writes is never seen, and every key is scanned once.

A hash holds the values, a sorted set the order of the keys. Both stand at a place (`layout.py`); a
writer names the place in the names of the Redis keys, so a request for another place hits nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from ckpt_backends.cells import NotNowError
from ckpt_backends.redis.layout import RedisLayout, RowPlace, after, starting_with
from ckpt_backends.redis.link import Command
from ckpt_backends.redis.requests import RedisRequests, add_members, script, set_fields
from ckpt_backends.redis.scripts import MOVE_ROWS, PAGE, WROTE_ROWS

_SWEPT_AT_ONCE = 200
_SWEEP_MARGIN_S = 60.0
"""Clocks differ: rows are swept this long after they have expired. Readers check the time themselves."""
_MOST_MOVES = 100
FIRST_PAGE_ROWS, PAGE_ROWS, PAGE_BYTES = 16, 512, 1 << 20


class RedisRows:
    """The plain rows of every namespace of one handle; it remembers where they were last."""

    def __init__(self, requests: RedisRequests, layout: RedisLayout) -> None:
        self._requests, self._layout = requests, layout
        self._places: dict[str, RowPlace] = {}
        self._doubtful: dict[str, RowPlace] = {}
        """The highest places to which this handle has sent something that may still arrive."""
        self._expiring: set[str] = set()
        """Namespaces in which some rows expire, as far as this handle knows."""
        self._lock = threading.Lock()

    # -- places ----------------------------------------------------------------------------------

    def fence(self, namespace: str, number: int) -> None:
        """Move the rows to a place that handles with a lower fence do not know."""
        place = self._place(namespace)
        while place.fence < number:
            place = self._move(namespace, place, RowPlace(number, 0))

    def clear(self, namespace: str) -> None:
        """Remove every row, once: an attempt that arrives late clears nothing."""
        place = self._look(namespace)
        while True:
            target = place.next()
            place = self._move(namespace, place, target, clear=True)
            if place == target:
                return

    def _place(self, namespace: str) -> RowPlace:
        with self._lock:
            known = self._places.get(namespace)
        return self._look(namespace) if known is None else known

    def _look(self, namespace: str) -> RowPlace:
        ledger = self._layout.ledger(namespace)
        (raw,) = self._requests.read(ledger, [b"HGET", ledger, b"place"])
        return self._found(namespace, raw)

    def _found(self, namespace: str, raw: bytes | None) -> RowPlace:
        place = RowPlace.parse(raw)
        with self._lock:
            self._places[namespace] = place
        return place

    def _move(self, namespace: str, old: RowPlace, new: RowPlace, *, clear: bool = False) -> RowPlace:
        """Where the rows are after an attempt to move them."""
        ledger = self._layout.ledger(namespace)
        keys = [ledger, *self._layout.rows(namespace, old), *self._layout.rows(namespace, new)]
        arguments = [str(old).encode(), str(new).encode(), b"clear" if clear else b""]
        (raw,) = self._requests.write(ledger, script(MOVE_ROWS, keys, arguments))
        return self._found(namespace, raw)

    def _undoubted(self, namespace: str, fence: int) -> RowPlace | None:
        """The place to write to under this fence, out of reach of earlier requests; None if it is not up."""
        place = self._place(namespace)
        if place.fence != fence:
            place = self._look(namespace)
        with self._lock:
            doubtful = self._doubtful.get(namespace)
        if doubtful is not None:
            if place <= doubtful:
                place = self._look(namespace)
            if place <= doubtful and place.fence == doubtful.fence:
                place = self._move(namespace, place, doubtful.next())
            with self._lock:
                if place > doubtful and self._doubtful.get(namespace) == doubtful:
                    del self._doubtful[namespace]
        return place if place.fence == fence else None

    # -- writing and reading ---------------------------------------------------------------------

    def write(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
    ) -> bool:
        """Write rows under a fence, all or none; False, and nothing to be seen, if it is not the fence."""
        self._requests.require_one(namespace, puts)
        ledger = self._layout.ledger(namespace)
        ttl_ms = b"%d" % int(((ttl_s or 0) + _SWEEP_MARGIN_S) * 1000)
        expiring = () if ttl_s is None else puts
        for _ in range(_MOST_MOVES):
            place = self._undoubted(namespace, fence)
            if place is None:
                return False
            rows, order, expiry = self._layout.rows(namespace, place)
            written = str(place).encode()
            commands: list[Command] = []
            if deletes:
                commands.append([b"HDEL", rows, *deletes])
                commands += [[b"ZREM", names, *deletes] for names in (order, expiry)]
            if puts:
                commands += [*set_fields(rows, puts), add_members(order, puts)]
            lasting = puts and ttl_s is None and namespace in self._expiring
            if lasting:
                commands.append([b"ZREM", expiry, *puts])
            arguments = [written, ttl_ms, b"%d" % _SWEPT_AT_ONCE, *expiring]
            commands.append(script(WROTE_ROWS, [ledger, rows, order, expiry], arguments))
            try:
                answers = self._requests.transact(ledger, *commands)
            except BaseException:
                with self._lock:
                    self._doubtful[namespace] = max(place, self._doubtful.get(namespace, place))
                raise
            found, some_expire = answers[-1]
            if self._found(namespace, found) == place:
                if not some_expire or lasting or expiring or not puts:
                    return True
                # The first such row since this handle looked: what it has just written may be among those
                # that expire. Written again, it is not.
                self._expiring.add(namespace)
        raise self._restless(namespace)

    def read(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows of those keys that exist."""
        if not keys:
            return {}
        ledger = self._layout.ledger(namespace)
        place = self._place(namespace)
        for _ in range(_MOST_MOVES):
            rows, _, _ = self._layout.rows(namespace, place)
            # Asked for afterwards: rows never come back to a place, so they were there when they were read.
            values, raw = self._requests.read(ledger, [b"HMGET", rows, *keys], [b"HGET", ledger, b"place"])
            found = self._found(namespace, raw)
            if found == place:
                return {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            place = found
        raise self._restless(namespace)

    def scan(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row whose key starts with `prefix`, in the order of the keys."""
        ledger = self._layout.ledger(namespace)
        start, end = starting_with(prefix)
        place = self._place(namespace)
        wanted = FIRST_PAGE_ROWS
        while True:
            rows, order, _ = self._layout.rows(namespace, place)
            limits = [b"%d" % wanted, b"%d" % PAGE_BYTES, str(place).encode()]
            page = script(PAGE, [rows, order, ledger], [start, end, *limits])
            ((raw, *found),) = self._requests.read(ledger, page)
            now = self._found(namespace, raw)
            if now != place:
                place = now
                continue
            keys, values = found
            yield from ((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
            if not keys:
                return
            start = after(keys[-1])
            wanted = min(4 * wanted, PAGE_ROWS)

    def _restless(self, namespace: str) -> NotNowError:
        return NotNowError(
            f"the rows of namespace {namespace!r} in {self._requests.at} were moved {_MOST_MOVES} times in "
            "one call; look for processes that claim or drop it again and again"
        )
