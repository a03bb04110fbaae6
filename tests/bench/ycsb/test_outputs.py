"""Where results go: no work is done for a file that cannot be written, and none of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ckpt.cli import main

Bench = Callable[..., Any]


@pytest.mark.parametrize(
    "to",
    [
        ("-p", "exportfile={}/results"),
        ("--html", "{}/page.html"),
        ("-p", "hdrhistogram.fileoutput=true", "-p", "hdrhistogram.output.path={}/run-"),
        ("-p", "measurementtype=raw", "-p", "measurement.raw.output_file={}/raw"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_work(
    bench: Bench, tmp_path: Path, to: tuple[str, ...]
) -> None:
    missing = tmp_path / "missing"
    done = bench(
        "load", f"log://{tmp_path}/store", "-P", "workloada", *(part.format(missing) for part in to), code=2
    )
    assert done.err.startswith(f"ckpt: cannot write {missing}/")
    assert f"there is no folder {missing}; make it" in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "store").exists(), "nothing was done"


def test_results_are_printed_if_their_file_cannot_be_written_in_the_end(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloadc", "-p", "exportfile=/dev/full", code=3)
    assert done.figures["READ"]["Operations"] == 1000


def test_compare_says_so_too(tmp_path: Path) -> None:
    page = tmp_path / "missing" / "page.html"
    ended = CliRunner().invoke(main, ["bench", "compare", "open", "--quick", "--html", str(page)])
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"ckpt: cannot write {page}: there is no folder")


def test_options_with_one_dash_as_ycsb_has_them(bench: Bench) -> None:
    found = bench("run", "memory://", "-P", "workloadc", "-threads", 2, "-target", "100000", "-s").figures
    assert found["READ"]["Operations"] == 1000
