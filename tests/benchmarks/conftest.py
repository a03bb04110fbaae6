"""What one call costs, beside its nearest peer in the same table, and beside the stored runs of this machine.

The gate runs every benchmark once without timing it (`--benchmark-disable`); each asserts that what it timed
did the right thing, and none asserts a time. `make bench` times them, stores the times in `build/benchmarks`
and shows them beside those of the runs before. Rows of one table (`benchmark.group`) do the same work at
equal durability; the peers are those of `ckpt_bench.stores`. docs/bench.md says what `ckpt bench compare` is
for.

| file | one call of |
| --- | --- |
| `test_puts.py`, `test_gets.py` | a store: put, get, scan |
| `test_commits.py`, `test_opening.py` | a store: commit of a version, opening |
| `test_values.py`, `test_frames.py` | bytes: encode and decode a state, make and read a frame |
| `test_keeper.py` | the SafeKeeper: save, and save until it is stored |
| `test_sidecar.py` | the sidecar: round trip, commit, get |

Planners go into `test_planners.py` (one `plan` of 100,000 keys for each, beside LPTF) and routing into
`test_routing.py` (`F(k)` of a column of keys with a table, beside the hash alone) when they exist.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.session import BenchmarkSession

from ckpt_backends.engine.native import native
from ckpt_bench.stores import Store
from tests.benchmarks.comparison import Change, Run, changes, comparable, report
from tests.benchmarks.work import OpenHere, open_or_skip

Row = dict[str, Any]
Group = tuple[str | None, list[Row]]

_CHANGES = pytest.StashKey[Sequence[Change]]()
_RUNS = pytest.StashKey[Sequence[Run]]()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path that is gone after the test: runs that are timed write gigabytes."""
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def open_here(folder: Path) -> Iterator[OpenHere]:
    """Stores that are closed with the test."""
    with ExitStack() as stack:

        def open_one(name: str, *, durable: bool) -> Store:
            store = open_or_skip(name, folder, durable=durable)
            stack.callback(store.close)
            return store

        yield open_one


# -- this run beside those before --------------------------------------------------------------------


def pytest_benchmark_generate_machine_info() -> dict[str, Any]:
    """What two runs have to share so that their times can be compared.

    pytest-benchmark's own list has the clock rate of the moment, which differs from run to run.
    """
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "log": "compiled" if native else "pure Python",
    }


def _cpu() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def pytest_benchmark_compare_machine_info(
    config: pytest.Config, benchmarksession: BenchmarkSession, machine_info: Mapping[str, Any]
) -> None:
    """Called before the tests when there are stored runs and `--benchmark-compare` asks for them."""
    stored = [run for _, run in benchmarksession.storage.load()]
    config.stash[_RUNS] = comparable(stored, machine_info)


@pytest.hookimpl(wrapper=True)
def pytest_benchmark_group_stats(
    config: pytest.Config, benchmarks: list[Row]
) -> Generator[None, list[Group], list[Group]]:
    """The tables have this run alone, ours beside the peers; the report has the runs before."""
    rows = [row for row in benchmarks if row["path"] is None]
    config.stash[_CHANGES] = changes(rows, config.stash.get(_RUNS, []))
    groups = yield
    return [
        (group, [{**row, "source": None} for row in listed if row["path"] is None])
        for group, listed in groups
    ]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The report, after the tables."""
    if config.getoption("benchmark_compare") and _CHANGES in config.stash:
        terminalreporter.section("this run beside those before")
        for line in report(config.stash[_CHANGES], config.stash.get(_RUNS, [])):
            terminalreporter.write_line(line, yellow=line.endswith("slower"))
