"""The command as a user calls it, and its results as a script reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from ckpt.cli import main


@dataclass
class Done:
    """What a command printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)

    def experiment(self, name: str) -> dict[str, Any]:
        return next(each for each in self.document["experiments"] if each["name"] == name)


def run(*arguments: object, code: int = 0) -> Done:
    ended = CliRunner().invoke(main, ["bench", "reproduce", *map(str, arguments)])
    done = Done(ended.exit_code, ended.stdout, ended.stderr)
    assert done.code == code, (done.code, done.out, done.err, ended.exception)
    return done


@pytest.fixture(scope="session")
def reproduce() -> Callable[..., Done]:
    """`ckpt bench reproduce …`, which must end with the given exit code."""
    return run
