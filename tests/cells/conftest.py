"""A server in this process: every promise of `CellServer` kept in the plainest way, and room to break it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ckpt.contract.backend import Capabilities
from ckpt_backends.cells import CellBackend, CellOptions, CellServer
from ckpt_backends.cells.access import ServerLocation


@dataclass
class Shelf:
    """What the server holds of one namespace."""

    head: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    fence: int = 0
    rows: dict[bytes, bytes] = field(default_factory=dict)
    stamp: int = 0
    cells: dict[bytes, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))


class Shelves:
    """The data of a server, shared by its connections. `before` is called ahead of each request."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.shelves: dict[str, Shelf] = defaultdict(Shelf)
        self.names: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda request: None
        self.after: Callable[[str], None] = lambda request: None

    def open(self, *, every_cell: bool = True, **options: object) -> Cells:
        """A backend on this server."""
        server = DictServer(self) if every_cell else NewestOnlyServer(self)
        return Cells(server, CellOptions(**{"retry_s": 0, **options}), address="cells://here")


class Cells(CellBackend):
    scheme = "cells"
    capabilities = Capabilities(
        persistent=True,
        shared_writers=True,
        ttl=True,
        atomic_put=True,
        ordered_scan=True,
        detects_corruption=False,
    )

    @classmethod
    def _reached(
        cls, location: ServerLocation, values: Mapping[str, Any]
    ) -> tuple[CellServer, CellOptions, str]:
        raise AssertionError("no address names it")


class DictServer(CellServer):
    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves

    def _ask(self, request: str, namespace: str) -> Shelf:
        self._shelves.counts[request] += 1
        self._shelves.before(request)
        return self._shelves.shelves[namespace]

    def names(self) -> list[str]:
        return list(self._shelves.names)

    def register(self, namespace: str) -> None:
        self._ask("register", namespace)
        self._shelves.names.add(namespace)

    def load(self, namespace: str, after: int) -> list[tuple[int, bytes]]:
        shelf = self._ask("load", namespace)
        with self._shelves.lock:
            return sorted((number, raw) for number, raw in shelf.records.items() if number > after)

    def append(self, namespace: str, number: int, record: bytes, *, fences: bool) -> bool:
        shelf = self._ask("append", namespace)
        with self._shelves.lock:
            if shelf.head != number - 1:
                return False
            shelf.head = number
            shelf.records[number] = record
        self._shelves.after("append")
        return True

    def forget(self, namespace: str, below: int) -> None:
        shelf = self._ask("forget", namespace)
        with self._shelves.lock:
            for number in [number for number in shelf.records if number < below]:
                del shelf.records[number]

    def fence(self, namespace: str, number: int, *, exclusive: bool) -> None:
        shelf = self._ask("fence", namespace)
        shelf.fence = max(shelf.fence, number)

    def write_plain(
        self,
        namespace: str,
        puts: Mapping[bytes, bytes],
        deletes: Sequence[bytes],
        *,
        ttl_s: float | None,
        fence: int,
        exclusive: bool,
    ) -> bool:
        shelf = self._ask("write_plain", namespace)
        with self._shelves.lock:
            if shelf.fence != fence:
                return False
            shelf.rows.update(puts)
            for key in deletes:
                shelf.rows.pop(key, None)
        self._shelves.after("write_plain")
        return True

    def read_plain(self, namespace: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        shelf = self._ask("read_plain", namespace)
        with self._shelves.lock:
            return {key: shelf.rows[key] for key in keys if key in shelf.rows}

    def scan_plain(self, namespace: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        shelf = self._ask("scan_plain", namespace)
        with self._shelves.lock:
            rows = sorted(shelf.rows.items())
        yield from ((key, raw) for key, raw in rows if key.startswith(prefix))

    def clear_plain(self, namespace: str) -> None:
        self._ask("clear_plain", namespace).rows.clear()

    def new_stamp(self, namespace: str, above: int) -> int:
        shelf = self._ask("new_stamp", namespace)
        with self._shelves.lock:
            shelf.stamp = max(shelf.stamp, above) + 1
            return shelf.stamp

    def write_cells(self, namespace: str, stamp: int, cells: Mapping[bytes, bytes]) -> None:
        shelf = self._ask("write_cells", namespace)
        with self._shelves.lock:
            for key, raw in cells.items():
                shelf.cells[key][stamp] = raw
        self._shelves.after("write_cells")

    def newest_cells(self, namespace: str, bounds: Mapping[bytes, int]) -> dict[bytes, tuple[int, bytes]]:
        shelf = self._ask("newest_cells", namespace)
        found = {}
        with self._shelves.lock:
            for key, bound in bounds.items():
                stamps = [stamp for stamp in shelf.cells.get(key, ()) if stamp <= bound]
                if stamps:
                    found[key] = (max(stamps), shelf.cells[key][max(stamps)])
        return found

    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        shelf = self._ask("scan_cells", namespace)
        with self._shelves.lock:
            keys = sorted(key for key in shelf.cells if key.startswith(prefix))
        for key in keys:
            with self._shelves.lock:
                cells = sorted(shelf.cells.get(key, {}).items(), reverse=True)
            yield from ((key, stamp, raw) for stamp, raw in cells if stamp <= bound)

    def remove_cells(self, namespace: str, up_to: Mapping[bytes, int]) -> None:
        shelf = self._ask("remove_cells", namespace)
        with self._shelves.lock:
            for key, last in up_to.items():
                shelf.cells[key] = {s: raw for s, raw in shelf.cells[key].items() if s > last}
                if not shelf.cells[key]:
                    del shelf.cells[key]

    def clear_cells(self, namespace: str, up_to: int) -> None:
        shelf = self._ask("clear_cells", namespace)
        with self._shelves.lock:
            self.remove_cells(namespace, dict.fromkeys(list(shelf.cells), up_to))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class NewestOnlyServer(DictServer):
    """Like HBase's scanner: one cell a key."""

    scans_every_cell = False

    def scan_cells(self, namespace: str, prefix: bytes, bound: int) -> Iterator[tuple[bytes, int, bytes]]:
        last = None
        for key, stamp, raw in super().scan_cells(namespace, prefix, bound):
            if key != last:
                last = key
                yield key, stamp, raw


@pytest.fixture
def shelves() -> Shelves:
    """The data of one server."""
    return Shelves()


@pytest.fixture
def make_shelves() -> type[Shelves]:
    """For tests that need one after the other."""
    return Shelves
