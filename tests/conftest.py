"""For every test: in CI nothing is skipped for want of something, and no thread of ours is left over."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A server, a driver or a tool that is missing is a reason to skip on a user's machine, not in CI.

    The conformance suite may skip: it does where a backend declares that it cannot do something.
    """
    report = yield
    if IN_CI and report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if f"{os.sep}testing{os.sep}" not in path:
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: skipped in CI, where everything must be there: {reason}"
    return report


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = [t for t in threading.enumerate() if t not in before and t.name.startswith("ckpt")]
    for thread in ours:
        thread.join(timeout=5)
    left = [t.name for t in ours if t.is_alive()]
    assert not left, f"threads left running: {left}; something was not closed"
