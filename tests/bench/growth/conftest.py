"""Growth at sizes that show that everything works, and nothing about speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from ckpt.cli import main


@pytest.fixture
def growth() -> Callable[..., Result]:
    """`ckpt bench growth` with arguments; small, and with a seed."""

    def run(*arguments: str) -> Result:
        small = ["--quick", "--seed", "7", "--keys", "300,1e3"]
        return CliRunner().invoke(main, ["bench", "growth", *small, *arguments])

    return run
