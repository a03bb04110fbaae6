"""An object store to watch and to break, where the test says what a request does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ckpt.testing import ManualClock
from ckpt_backends.objects.backend import FsspecBackend, FsspecOptions


class ObjectStore:
    """Looks like an fsspec filesystem of S3: whole objects, conditional creation, errors of its own kind."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        self.before: Callable[[str, str], None] = lambda kind, path: None
        """Called before each request; what it raises is the answer."""
        self.after: Callable[[str, str], None] = lambda kind, path: None
        """Called when the request is done; what it raises is the answer all the same."""
        self.obeys_conditions = True
        self.clock = ManualClock()
        self._lock = threading.Lock()

    def open(self, **options: Any) -> FsspecBackend:
        """A new handle on the store."""
        return FsspecBackend(
            self,
            "bucket/place",
            FsspecOptions(**{"retry_s": 0, **options}),
            protocol="s3",
            address="fsspec+s3://bucket/place",
            clock=self.clock,
        )

    def names(self, folder: str) -> list[str]:
        """The objects in a folder."""
        return sorted(name for name in self.objects if name.startswith(f"bucket/place/{folder}/"))

    # -- the filesystem --------------------------------------------------------------------------

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        assert isinstance(value, bytes)
        self._begin("put", path)
        with self._lock:
            if mode == "create" and self.obeys_conditions and path in self.objects:
                raise OSError(22, "PreconditionFailed")
            self.objects[path] = value
        self.after("put", path)

    def cat_file(self, path: str) -> bytes:
        self._begin("get", path)
        with self._lock:
            found = self.objects.get(path)
        if found is None:
            raise FileNotFoundError(path)
        self.after("get", path)
        return found

    def info(self, path: str) -> dict[str, Any]:
        self._begin("head", path)
        with self._lock:
            if path not in self.objects:
                raise FileNotFoundError(path)
            size = len(self.objects[path])
        self.after("head", path)
        return {"name": path, "size": size, "type": "file"}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        assert detail
        self._begin("list", path)
        with self._lock:
            rows = [
                {"name": name, "size": len(data), "type": "file"}
                for name, data in self.objects.items()
                if name.rpartition("/")[0] == path
            ]
        if not rows:
            raise FileNotFoundError(path)
        self.after("list", path)
        return rows

    def rm_file(self, path: str) -> None:
        self._begin("delete", path)
        with self._lock:
            if self.objects.pop(path, None) is None:
                raise FileNotFoundError(path)
        self.after("delete", path)

    def invalidate_cache(self, path: str | None = None) -> None:
        pass

    def _begin(self, kind: str, path: str) -> None:
        with self._lock:
            self.counts[kind] += 1
        self.before(kind, path)


@pytest.fixture
def objects() -> ObjectStore:
    """An object store of this test alone."""
    return ObjectStore()


@pytest.fixture
def make_objects() -> Callable[[], ObjectStore]:
    """For tests that need one after the other."""
    return ObjectStore
