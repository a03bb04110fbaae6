"""`make` says what it can do, and what is missing in one line with the command that installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which nothing has been set up."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, *args: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | {"PATH": path}
    return subprocess.run(
        ["make", *args], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_help_lists_the_targets(checkout: Path) -> None:
    done = make(checkout)
    listed = [line.split()[1] for line in done.stdout.splitlines()]
    assert listed == [
        *("help", "demo", "test", "prove", "spark", "lint"),
        *("format", "bench", "wheel", "clean"),
    ]
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("target", ["demo", "test", "lint"])
def test_no_python_is_named_with_the_command_that_installs_it(checkout: Path, target: str) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    for tool in ("make", "bash", "awk"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    done = make(checkout, target, path=str(tools))
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        "ckpt needs Python 3.11 or later on the PATH: sudo apt-get install python3 "
        "(or make PYTHON=/path/to/python3)"
    )


@pytest.mark.parametrize(
    ("answers", "says"),
    [("exit 1", "is not Python 3.11 or later"), ('[[ "$*" != *venv* ]]', "lacks its venv module")],
)
def test_an_unfit_python_is_named(checkout: Path, answers: str, says: str) -> None:
    python = checkout / "python"
    python.write_text(f"#!/bin/bash\n{answers}\n")
    python.chmod(0o755)
    done = make(checkout, "test", f"PYTHON={python}")
    assert done.returncode != 0
    first = done.stderr.splitlines()[0]
    assert says in first
    assert "apt-get install" in first
