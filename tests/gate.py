"""The gate's time: which tests share a worker and which begin first, what each test took, what it may take.

A pytest plugin that `tests/conftest.py` loads. Every run writes `build/durations.json` and prints the ten
slowest tests. In CI a run fails if a test, or all of them together, take more than half again their budget.
Budgets are seconds on the machine that `REFERENCE_GAUGE_S` was measured on; a fixed piece of work, timed
before the first test and after the last, says how much slower this machine is.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.effort import PROVING, SEED

TEST_BUDGET_S = 30.0
"""What one test may take, unless it has a marker `budget`."""
WHOLE_BUDGET_S = 15 * 60.0
"""What `make test` may take."""
TOLERANCE = 1.5
REFERENCE_GAUGE_S = 0.30
"""What the gauge takes on the reference machine: two quiet cores of an AMD EPYC."""
USUAL_S, USUAL_IN_SPARK_S = 0.2, 2.0
"""What most tests take; decides nothing but which group of tests begins first."""

ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "build" / "durations.json"


def pytest_configure(config: pytest.Config) -> None:
    """Say what the markers of this plugin mean, and watch the run unless this is one of its workers."""
    config.addinivalue_line("markers", "proof: runs in make prove only")
    config.addinivalue_line(
        "markers", "budget(seconds): what the test may take, where that is over 30 seconds"
    )
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timekeeper(config), "ckpt-timekeeper")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The gate leaves out what is for the proof alone, and begins with the longest group of tests.

    Tests of one file are a group, as are those that a marker puts into one.
    """
    if not PROVING:
        left_out = {item for item in items if item.get_closest_marker("proof")}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    weights: defaultdict[str, float] = defaultdict(float)
    groups: dict[pytest.Item, str] = {}
    for item in items:
        marker = item.get_closest_marker("xdist_group")
        if marker is None:
            own = item.path.relative_to(ROOT).as_posix()
            item.add_marker(pytest.mark.xdist_group("spark" if _uses_spark(item) else own))
        groups[item] = _group_of(item)
        weights[groups[item]] += _budget_of(item, USUAL_IN_SPARK_S if _uses_spark(item) else USUAL_S)
    items.sort(key=lambda item: (-weights[groups[item]], groups[item]))


def _uses_spark(item: pytest.Item) -> bool:
    """Whether it runs in the one session of Spark that a worker has: a second JVM costs half a minute."""
    return "spark" in getattr(item, "fixturenames", ())


def _group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    return str(marker.args[0] if marker.args else marker.kwargs["name"])


def _budget_of(item: pytest.Item, otherwise: float) -> float:
    marker = item.get_closest_marker("budget")
    return otherwise if marker is None else float(marker.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> object:
    """Reports carry the budget of their test, also from a worker to the process that judges."""
    item.user_properties.append(("budget_s", _budget_of(item, TEST_BUDGET_S)))
    return (yield)


class Timekeeper:
    """Adds up what every test took, and judges it at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._took_s: defaultdict[str, float] = defaultdict(float)
        self._budget_s: dict[str, float] = {}
        self._gauged_s = 0.0
        self._began_s = 0.0
        self._whole_s = 0.0
        self._over: list[str] = []

    def pytest_report_header(self) -> str:
        """The seed with which a failure of a sample comes again."""
        return "effort: everything" if PROVING else f"effort: a sample; CKPT_SEED={SEED} takes the same again"

    def pytest_sessionstart(self) -> None:
        self._gauged_s = gauge_s() if _judges() else 0.0
        self._began_s = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("@")[0]
        if report.failed:
            # At once, and not only at the end, which a long run may not reach.
            print(f"\nfailed: {name}: {report.longrepr!s:.2000}", file=sys.stderr, flush=True)
        self._took_s[name] += report.duration
        for key, value in report.user_properties:
            if key == "budget_s":
                self._budget_s[name] = float(str(value))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the durations, and let the run fail if they are over budget and it passed otherwise."""
        self._whole_s = time.monotonic() - self._began_s
        if not self._took_s:
            return
        DURATIONS.parent.mkdir(exist_ok=True)
        slowest = sorted(self._took_s.items(), key=lambda pair: -pair[1])
        rounded = {name: round(took, 3) for name, took in slowest}
        DURATIONS.write_text(json.dumps({"whole_s": round(self._whole_s, 1), "tests_s": rounded}, indent=1))
        if _judges() and session.exitstatus == pytest.ExitCode.OK:
            self._gauged_s = max(self._gauged_s, gauge_s())
            took_s, budget_s = dict(self._took_s), dict(self._budget_s)
            if self._is_whole():
                took_s["the whole run"], budget_s["the whole run"] = self._whole_s, WHOLE_BUDGET_S
            self._over = over_budget(took_s, budget_s, self._gauged_s)
            if self._over:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _is_whole(self) -> bool:
        """Whether no option and no path leaves tests out."""
        option = self._config.option
        return self._config.args == ["tests"] and not (option.keyword or option.markexpr)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(self._took_s.items(), key=lambda pair: -pair[1])[:10]
        terminalreporter.section("the ten slowest")
        for name, took in slowest:
            terminalreporter.line(f"{took:7.1f} s  {name}")
        for line in self._over:
            terminalreporter.line(f"over budget: {line}", red=True)


def over_budget(took_s: Mapping[str, float], budget_s: Mapping[str, float], gauged_s: float) -> list[str]:
    """A line for each test that took too long for a machine on which the gauge takes `gauged_s`."""
    allowance = TOLERANCE * max(1.0, gauged_s / REFERENCE_GAUGE_S)
    return [
        f"{name} took {took:.0f} s; its budget is {budget:.0f} s, here {budget * allowance:.0f} s"
        for name, took, budget in ((name, took, budget_s[name]) for name, took in took_s.items())
        if took > budget * allowance
    ]


def _judges() -> bool:
    """Only where nothing else is expected to use the machine."""
    return os.environ.get("CI", "").lower() in ("1", "true") and not PROVING


def gauge_s() -> float:
    """How long a fixed piece of work takes on two processors at once: the best of three."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return min(max(pool.map(_work_s, range(2))) for _ in range(3))


def _work_s(_: int) -> float:
    began = time.perf_counter()
    table: dict[int, bytes] = {}
    for number in range(2_000_000):
        table[number * 7919 % 100_003] = b"%d" % number
    sorted(table)
    return time.perf_counter() - began
