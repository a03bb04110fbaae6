"""Schemes: imported on first use, explained when missing, open to third parties."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import ckpt
from ckpt.contract import registry
from ckpt.contract.addresses import Address
from ckpt.errors import ConfigError
from ckpt_backends.memory import MemoryBackend


class Mine(MemoryBackend):
    """What a third party may register."""

    scheme = "mine"

    @classmethod
    def from_address(cls, address: Address, **extra: Any) -> MemoryBackend:
        return cls(f"mine-{address.location}")


def registered(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [p for p in points if p.group == group and name in (None, p.name)]

    monkeypatch.setattr(registry, "entry_points", entry_points)


def test_an_unknown_scheme_gets_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="no backend for scheme 'memroy'; did you mean 'memory'"):
        ckpt.open_backend("memroy://")


def test_keywords_win_over_the_address() -> None:
    with pytest.raises(ConfigError, match="memory has no option 'size'"):
        ckpt.open_backend("memory://", size=3)


def test_third_parties_register_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    import ckpt_backends.memory as home

    monkeypatch.setattr(home, "Mine", Mine, raising=False)
    registered(monkeypatch, EntryPoint("mine", "ckpt_backends.memory:Mine", registry.ENTRY_POINT_GROUP))
    assert "mine" in registry.schemes()
    with ckpt.open_backend("mine://somewhere") as backend:
        assert isinstance(backend, Mine)


def test_an_entry_point_that_cannot_be_loaded_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, EntryPoint("mine", "no_such_package:Mine", registry.ENTRY_POINT_GROUP))
    with pytest.raises(ConfigError, match=r"'mine' cannot be loaded.*no_such_package"):
        ckpt.open_backend("mine://x")


def test_a_missing_driver_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = registry.Registered("no_such_driver:Backend", "redis")
    monkeypatch.setitem(registry._BUILTIN, "redis", entry)
    with pytest.raises(ConfigError, match=r"pip install 'ckpt\[redis\]'"):
        ckpt.open_backend("redis://host/0")


def test_fsspec_protocols_belong_to_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        registry._BUILTIN, "fsspec", registry.Registered("ckpt_backends.memory:MemoryBackend")
    )
    assert registry.load_factory("fsspec+s3") is MemoryBackend


def test_importing_ckpt_imports_no_backend() -> None:
    script = "import sys, ckpt; print([m for m in sys.modules if m.startswith('ckpt_backends')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
