"""What a run of `make prove` has proved: a pytest plugin that writes it where `tests/prove.py` wants it.

A test counts with pytest's `record_property`: `rounds`, `states`, `bytes` that were tried, and what was
`lost`. State machines of Hypothesis count their examples as rounds.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.effort import PROVING
from tests.prove import COLUMNS


def pytest_configure(config: pytest.Config) -> None:
    if PROVING and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Proofs(Path(os.environ["CKPT_PROVE"])), "ckpt-proofs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> object:
    settings = getattr(getattr(item, "cls", None), "settings", None)
    if isinstance(settings, hypothesis.settings):
        item.user_properties.append(("rounds", settings.max_examples))
    return (yield)


class Proofs:
    """Gathers outcomes and counts of all tests, also from workers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: Counter[str] = Counter()
        self._proofs: list[dict[str, Any]] = []
        self._began_s = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.passed and report.when == "call"):
            self._outcomes[report.outcome] += 1
        counted = {name: value for name, value in report.user_properties if name in COLUMNS}
        if report.when == "call" and counted:
            name = report.nodeid.partition("@")[0].removeprefix("tests/")
            self._proofs.append({"what": name if report.passed else f"{name}: FAILED", **counted})

    def pytest_sessionfinish(self) -> None:
        found = {
            "passed": self._outcomes["passed"],
            "failed": self._outcomes["failed"],
            "whole_s": round(time.monotonic() - self._began_s),
            "proofs": sorted(self._proofs, key=lambda proof: str(proof["what"])),
        }
        self._path.write_text(json.dumps(found))
