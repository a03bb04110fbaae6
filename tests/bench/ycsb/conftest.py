"""The command as a user calls it, and its results as a script parses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

from ckpt.cli import main


@dataclass
class Done:
    """What a command printed."""

    code: int
    out: str
    err: str
    figures: dict[str, dict[str, float]] = field(default_factory=dict)


@pytest.fixture
def bench() -> Callable[..., Done]:
    """`ckpt bench …`; its text output as metric → measurement → value."""

    def call(*arguments: object, code: int = 0) -> Done:
        ended = CliRunner().invoke(main, ["bench", *map(str, arguments)])
        done = Done(ended.exit_code, ended.stdout, ended.stderr)
        assert done.code == code, (done.code, done.out, done.err, ended.exception)
        for line in done.out.splitlines():
            if line.startswith("[") and line.count(", ") == 2:
                metric, measurement, value = line.split(", ")
                done.figures.setdefault(metric.strip("[]"), {})[measurement] = float(value)
        return done

    return call
