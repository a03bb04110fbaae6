"""Benchmarks run once, small, as tests; `make bench` times them at full size and prints the ratios."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt_bench.stores import Store, open_store

Batches = Callable[[int, int, int], list[dict[bytes, bytes]]]


@pytest.fixture
def timed(request: pytest.FixtureRequest) -> bool:
    option = request.config.getoption
    return bool(option("benchmark_enable") or not option("benchmark_disable"))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str, bool], Store]]:
    stores: list[Store] = []

    def open_named(name: str, durable: bool) -> Store:
        stores.append(open_store(name, str(tmp_path / f"{name}-{len(stores)}"), durable=durable))
        return stores[-1]

    yield open_named
    for store in stores:
        store.close()


@pytest.fixture
def batches() -> Batches:
    """(how many, records each, bytes each) → batches over 100,000 keys; the same for every store."""

    def make(count: int, records: int, size: int) -> list[dict[bytes, bytes]]:
        choose = random.Random(count * records * size)
        pool = choose.randbytes(1 << 20)
        starts = range((1 << 20) - size)
        return [
            {
                b"key-%012d" % choose.randrange(100_000): pool[(at := choose.choice(starts)) : at + size]
                for _ in range(records)
            }
            for _ in range(count)
        ]

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much longer each store took than the log, by group: what `make bench` is for."""
    session = getattr(terminalreporter.config, "_benchmarksession", None)
    groups: dict[str, dict[str, object]] = {}
    for bench in getattr(session, "benchmarks", []):
        if bench.stats and bench.params:
            groups.setdefault(bench.group, {})[str(next(iter(bench.params.values())))] = bench.stats
    if not groups:
        return
    terminalreporter.section("time of each store / time of the log (median; quartiles of the store)")
    for group, stores in sorted(groups.items()):
        if "log" not in stores:
            continue
        own = stores["log"].median
        rows = [
            f"{name} {stats.median / own:.2f} [{stats.q1 / own:.2f} {stats.q3 / own:.2f}]"
            for name, stats in sorted(stores.items(), key=lambda item: statistics.median(item[1].data))
            if name != "log"
        ]
        terminalreporter.write_line(f"{group:<44} {'   '.join(rows)}")
