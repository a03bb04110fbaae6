"""Prove everything, part by part: `make prove`, or `make prove WHAT="log redis"` for some of it.

Each part runs its tests with nothing sampled (`tests/effort.py`) in a pytest of its own, so a part that
fails ends no other. What it proved is kept in `build/prove/` until the part runs again, and the table at
the end is of all that is kept. A proof that was interrupted goes on with the parts that have not passed at
this commit. With `--write`, the table also replaces the one in `docs/trust.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "prove"
PAGE = ROOT / "docs" / "trust.md"
BEGIN, END = "<!-- proved: begin -->", "<!-- proved: end -->"
COLUMNS = ("rounds", "states", "bytes", "lost")
"""What tests count with pytest's `record_property`."""

PARTS: dict[str, tuple[str, ...]] = {
    "log": ("log/*", "backends/test_log*", "trust/test_log_*", "trust/test_flips*", "trust/test_kill*"),
    "file": ("backends/test_file*", "backends/test_memory*"),
    "objects": ("backends/test_fsspec*", "backends/test_s3*", "trust/test_s3_*"),
    "redis": ("backends/test_redis*", "trust/test_redis_*"),
    "hbase": ("backends/test_hbase*", "trust/test_hbase_*"),
    "cassandra": ("backends/test_cassandra*", "trust/test_cassandra_*"),
    "cells": ("cells/*", "backends/*"),
    "keeper": ("safekeeper/*", "serde/*", "core/*"),
    "sidecar": ("sidecar/*", "transfer/*", "testing/*"),
    "suites": ("spark/test_suites*",),
    "spark": ("spark/*", "bench/test_spark_bench*"),
    "bench": ("bench/*", "benchmarks/*"),
    "rebalance": ("rebalance/*",),
    "rest": ("*",),
}
"""The parts, and the tests of each by patterns of paths; a test belongs to the first part that matches."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are named (none: all), print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    parser.add_argument("--workers", type=int, default=3)
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)!r}: {', '.join(PARTS)}")
    for part in given.parts or [part for part in PARTS if not is_proved(part)]:
        run(part, given.workers)
    kept = [part for part in PARTS if (RESULTS / f"{part}.json").exists()]
    found = {part: json.loads((RESULTS / f"{part}.json").read_text()) for part in kept}
    table = "\n".join(rows(found))
    print(f"\n{table}")
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return 1 if any(each["failed"] or each["exit"] for each in found.values()) else 0


def run(part: str, workers: int) -> None:
    """Run the tests of one part and keep what they proved."""
    print(f"\n== {part}", flush=True)
    result = RESULTS / f"{part}.json"
    result.unlink(missing_ok=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    options = ["-q", "-n", str(workers), "--dist", "loadgroup", "--no-loadscope-reorder", "--timeout=7200"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files_of(part)],
        cwd=ROOT,
        env={**os.environ, "CKPT_PROVE": str(result)},
        check=False,
    )
    found = json.loads(result.read_text()) if result.exists() else {"passed": 0, "failed": 0, "proofs": []}
    stamp = {"exit": done.returncode, "commit": _commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    result.write_text(json.dumps({**found, **stamp}, indent=1))


def is_proved(part: str) -> bool:
    """Whether the part has passed at this commit, with nothing changed since."""
    path = RESULTS / f"{part}.json"
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    return not found["exit"] and found["commit"] == _commit() and not found["commit"].endswith("-dirty")


def files_of(part: str) -> list[str]:
    """The test files of a part."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in paths if _part_of(path.relative_to(ROOT / "tests").as_posix()) == part]


def _part_of(name: str) -> str:
    return next(part for part, patterns in PARTS.items() if any(fnmatch(name, each) for each in patterns))


def rows(found: dict[str, Any]) -> Iterator[str]:
    """The table, in Markdown: a row for each part, and one for each test that counted something."""
    yield f"| part | what | {' | '.join(COLUMNS)} | commit, date |"
    yield f"| --- | --- | {' | '.join(['---:'] * len(COLUMNS))} | --- |"
    for part, each in found.items():
        outcome = f"{each['passed']:,} tests passed, {each['failed']:,} failed"
        if each["exit"] and not each["failed"]:
            outcome += f", and pytest ended with {each['exit']}"
        minutes = round(each.get("whole_s", 0) / 60)
        blank = " | ".join([""] * len(COLUMNS))
        yield f"| **{part}** | {outcome}, {minutes} min | {blank} | {each['commit']}, {each['date']} |"
        for proof in each["proofs"]:
            counts = " | ".join(f"{proof[name]:,}" if name in proof else "" for name in COLUMNS)
            yield f"| | {proof['what']} | {counts} | |"


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
