"""Where results go: no work is done for a file that cannot be written, and none of it is lost."""

from __future__ import annotations

import resource
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
    assert said_by(done) == [
        "ckpt: cannot write /dev/full: no space left on device; the results are on stdout instead"
    ]


@pytest.mark.parametrize(
    ("full", "kind", "figure"),
    [
        ("READ.hdr", "hdrhistogram", "Operations"),
        ("READ.hgrm", "hdrhistogram", "Operations"),
        ("raw", "raw", "Total Operations"),
    ],
)
def test_a_disk_that_fills_costs_a_file_and_no_results(
    bench: Bench, tmp_path: Path, full: str, kind: str, figure: str
) -> None:
    (tmp_path / full).symlink_to("/dev/full")
    done = bench(*("run", "memory://", "-P", "workloadc"), *files_in(tmp_path, kind), code=3)
    assert done.figures["READ"][figure] == 1000
    assert done.figures["CLEANUP"][figure] == 1
    assert said_by(done) == [
        f"ckpt: cannot write {tmp_path}/{full}: no space left on device; the results are whole: "
        "for the files make room or name another place, and run again"
    ]


def test_several_files_on_a_full_disk_are_one_line(bench: Bench, tmp_path: Path) -> None:
    """A limit on the size of files fails the calls that a full disk fails, on every file there is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        done = bench(
            *("run", "memory://", "-P", "workloada", "-s", "--html", tmp_path / "page.html"),
            *("-p", f"exportfile={tmp_path}/results", *files_in(tmp_path, "hdrhistogram")),
            code=3,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.figures["READ"]["Operations"] + done.figures["UPDATE"]["Operations"] == 1000
    files = [f"{tmp_path}/{name}.{end}" for name in ("READ", "UPDATE", "CLEANUP") for end in ("hdr", "hgrm")]
    beside, *single = said_by(done)
    assert sorted(beside.removeprefix("ckpt: cannot write ").split(": ")[0].split(", ")) == sorted(files)
    assert [line.split(";")[0] for line in single] == [
        f"ckpt: cannot write {tmp_path}/{name}: file too large" for name in ("results", "page.html")
    ]


def test_operations_that_failed_are_told_beside_a_file_that_could_not_be_written(
    bench: Bench, tmp_path: Path
) -> None:
    store = f"log://{tmp_path}/store"
    bench("load", store, "-P", "workloadc", "-p", "recordcount=10")
    done = bench("run", store, "-P", "workloadc", "-p", "exportfile=/dev/full", code=1)
    assert [line.split()[1] for line in said_by(done)] == ["READ:", "cannot"]


def files_in(folder: Path, kind: str) -> list[str]:
    """Properties that ask for files there."""
    asked = {
        "measurementtype": kind,
        "hdrhistogram.fileoutput": "true",
        "hdrhistogram.output.path": f"{folder}/",
        "measurement.raw.output_file": f"{folder}/raw",
    }
    return [part for name, value in asked.items() for part in ("-p", f"{name}={value}")]


def said_by(done: Any) -> list[str]:
    """What went wrong, line by line."""
    return [line for line in done.err.splitlines() if line.startswith("ckpt: ")]


def test_compare_says_so_too(tmp_path: Path) -> None:
    page = tmp_path / "missing" / "page.html"
    ended = CliRunner().invoke(main, ["bench", "compare", "open", "--quick", "--html", str(page)])
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"ckpt: cannot write {page}: there is no folder")


def test_options_with_one_dash_as_ycsb_has_them(bench: Bench) -> None:
    found = bench("run", "memory://", "-P", "workloadc", "-threads", 2, "-target", "100000", "-s").figures
    assert found["READ"]["Operations"] == 1000


def test_a_label_stands_before_each_line_of_status(bench: Bench) -> None:
    done = bench("run", "memory://", "-P", "workloadc", "-s", "-l", "third try ")
    assert [line for line in done.err.splitlines() if "operations;" in line][-1].startswith("third try 20")
