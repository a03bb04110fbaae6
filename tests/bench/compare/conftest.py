"""Comparisons at sizes that show that everything works, and nothing about speed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ckpt.cli import main


@pytest.fixture
def compare() -> Callable[..., Result]:
    """`ckpt bench compare` with arguments; small, and with a seed."""

    def run(*arguments: str) -> Result:
        small = ["--quick", "--seed", "7", "--keys", "200", "--rounds", "2"]
        return CliRunner().invoke(main, ["bench", "compare", *small, *arguments])

    return run


@pytest.fixture
def rows(compare: Callable[..., Result]) -> Callable[..., list[dict[str, Any]]]:
    """The rows of a comparison that has to succeed."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        done = compare("--json", *arguments)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
