"""Where results are to go is tried before the work, without leaving a trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ckpt.cli import main
from ckpt.errors import ConfigError
from ckpt_bench.outputs import require_folder, require_writable


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


def test_a_folder_for_charts_is_made_or_named_before_the_work(tmp_path: Path) -> None:
    require_folder(str(tmp_path / "new" / "charts"))
    assert (tmp_path / "new" / "charts").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"cannot make the folder {tmp_path}/file/charts: not a directory"):
        require_folder(str(tmp_path / "file" / "charts"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "raw-append-nosync", "--quick", "--rounds", "1", "--keys", "100", "--json"),
        ("growth", "--quick", "--store", "log", "--keys", "100", "--rounds", "1", "--json"),
        ("reproduce", "s4", "table-5.1", "--quick", "--json"),
    ],
)
def test_a_disk_that_is_full_in_the_end_costs_the_page_and_no_results(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["bench", *arguments, "--html", "/dev/full"])
    assert done.exit_code == 3, done.output
    assert "{" in done.stdout, "the results"
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ckpt: cannot write /dev/full: no space left on device; the results are whole")


@pytest.mark.parametrize(
    ("arguments", "which"),
    [
        (("compare", "--quick", "--json", "--csv"), "--json and --csv"),
        (("growth", "--quick", "--csv", "--markdown"), "--csv and --markdown"),
        (("reproduce", "s4", "--full", "--quick"), "--quick and --full"),
    ],
)
def test_options_that_exclude_each_other_are_refused(arguments: tuple[str, ...], which: str) -> None:
    done = CliRunner().invoke(main, ["bench", *arguments])
    assert (done.exit_code, done.stderr) == (2, f"ckpt: {which} exclude each other; give one of them\n")


@pytest.mark.parametrize(("option", "value"), [("--budget", "-1"), ("--budget", "0"), ("--keys", "1e30")])
def test_growth_refuses_sizes_that_have_no_end_or_no_beginning(option: str, value: str) -> None:
    done = CliRunner().invoke(main, ["bench", "growth", "--quick", option, value])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"ckpt: Invalid value for '{option}'")
    assert done.stderr.count("\n") == 1
