"""What every part of the conformance suite stands on: one store per test, opened as often as needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from ckpt.contract.backend import Backend
from ckpt.testing.clock import ManualClock

HOSTILE_KEYS: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\0\0",
    b".",
    b"..",
    b"/",
    b"a/b",
    b"../../etc/passwd",
    b"a\\b",
    b"CON",
    b"con",
    b"Key",
    b"key",
    b"KEY",
    b" ",
    b"key ",
    b"a\nb",
    b"\xff",
    b"\xff" * 255,
    b"\x80\x81",
    b"%2e%2e",
    b"*?[]{}$`'\"",
    "é".encode(),  # one code point
    "e\u0301".encode(),  # the same letter from two
    "ﬁ".encode(),
    "İ".encode(),
    "🜚".encode(),
    b"k" * 254,
    b"k" * 255,
    b"k" * 256,
    b"k" * 4096,
    b"k" * 65536,
    b"k" * 65535 + b"l",
)
"""Keys that break stores which take a key for a file name, a C string, a pattern or text."""

HOSTILE_NAMESPACES: tuple[str, ...] = (
    ".",
    "..",
    "a/b",
    "../up",
    "Name",
    "name",
    "NUL\0inside",
    "é",
    "e\u0301",
    " ",
    "tmp",
    "%2f",
    "n" * 1024,
    "n" * 1023 + "m",
)


class BackendHarness:
    """Gives each test a directory of its own, a clock, and handles on one store that are closed at the end.

    A subclass names its `scheme` and says how to open the store; every call within one test opens the same
    one.
    """

    scheme: ClassVar[str]

    reopens: ClassVar[bool | None] = None
    """Whether a store can be closed and opened again; by default, if the backend is persistent."""

    directory: Path
    """A directory that exists and belongs to this test alone; its name may serve as a unique name."""
    clock: ManualClock
    _opened: list[Backend]

    def open_backend(self) -> Backend:
        """Open the store of this test for writing: subclasses say how."""
        raise NotImplementedError

    def let_time_pass(self, seconds: float) -> None:
        """Wait until records that live shorter are gone; override it where the clock can be set."""
        time.sleep(seconds)

    @pytest.fixture(autouse=True)
    def _store_of_this_test(self, tmp_path: Path) -> Iterator[None]:
        self.directory = tmp_path / "store"
        self.directory.mkdir()
        self.clock = ManualClock()
        self._opened = []
        yield
        for handle in reversed(self._opened):
            handle.close()

    @pytest.fixture
    def backend(self, _store_of_this_test: None) -> Backend:
        """The store of this test, open."""
        return self.handle()

    def handle(self) -> Backend:
        """One more handle on the store, closed at the end of the test."""
        opened = self.open_backend()
        self._opened.append(opened)
        return opened

    def second_handle(self, backend: Backend) -> Backend:
        """Another writer beside `backend`; the test is skipped where there can be only one."""
        if not backend.capabilities.shared_writers:
            pytest.skip("one writer at a time")
        return self.handle()

    def reopened(self, backend: Backend) -> Backend:
        """The store after a close and an open; the test is skipped where nothing outlives the handle."""
        if not (backend.capabilities.persistent if self.reopens is None else self.reopens):
            pytest.skip("nothing outlives the handle")
        backend.close()
        return self.handle()


def numbered(count: int, value: bytes = b"v") -> dict[bytes, bytes]:
    """That many items with distinct keys and values."""
    return {b"key-%06d" % i: value + b"-%d" % i for i in range(count)}
