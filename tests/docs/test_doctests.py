"""Every example in a docstring runs and prints what it shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

PACKAGES = ("ckpt", "ckpt_backends", "ckpt_bench")


def modules() -> list[str]:
    found = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        found += [name, *(info.name for info in pkgutil.walk_packages(package.__path__, f"{name}."))]
    return found


@pytest.mark.parametrize("name", modules())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
