"""Where results are to go is tried before the work, without leaving a trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckpt.errors import ConfigError
from ckpt_bench.outputs import require_writable


def test_what_is_there_stays_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "old.html"
    old.write_text("old")
    require_writable(old)
    require_writable(str(tmp_path / "new.html"))
    assert old.read_text() == "old"
    assert os.listdir(tmp_path) == ["old.html"]


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """Its reader would take that for the end, and without a reader it would wait."""
    os.mkfifo(tmp_path / "pipe")
    require_writable(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/page.html", "there is no folder .*missing; make it"),
        ("file/page.html", "there is no folder"),
        (".", "it is a folder; name a file in it"),
        ("x" * 300, "file name too long; name a file that you may write"),
    ],
)
def test_what_cannot_be_written_says_what_to_do(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"^cannot write {tmp_path}.*: {reason}"):
        require_writable(tmp_path / name)
