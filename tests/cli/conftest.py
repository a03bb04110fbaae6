"""A command line in this process, and a small store for it to look at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ckpt
from ckpt.cli import main
from ckpt.values.envelope import ValueCodec

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run a command; an exception that is not a clean exit fails the test at once."""

    def run_command(*args: str, code: int = 0, answer: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(args), input=answer, prog_name="ckpt")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        if code:
            assert "Traceback" not in result.output
        return result

    return run_command


@pytest.fixture
def run_json(run: Run) -> Callable[..., list[Any]]:
    """Run a command with --json and give back its documents, one per line."""

    def run_command(*args: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in run(*args, "--json", code=code).stdout.splitlines()]

    return run_command


@pytest.fixture(params=["file", "log"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be made."""
    return f"{request.param}://{tmp_path}/store"


@pytest.fixture
def store(address: str) -> Iterator[str]:
    """The address of a store with a plain namespace, a versioned one, and keys that are hard to show."""
    codec = ValueCodec()
    with ckpt.open_backend(address) as backend:
        backend.put_many(
            "words",
            {
                key: codec.encode({"count": n}, namespace="words", key=key)
                for key, n in ((b"be", 2), (b"or", 1))
            },
        )
        backend.put_many(
            "odd", {b"\xff\x00": b"raw \xfe", b"hex:00": b"1", "naïve".encode(): b"2", b" ": b"3"}
        )
        backend.commit("store", 1, {b"k": b"old", b"gone": b"x"}, commit_id="first")
        backend.commit("store", 2, {b"k": b"new"}, [b"gone"], commit_id="second")
        backend.commit("store", 2, {b"k": b"other"}, base="first", commit_id="branch")
    return address
