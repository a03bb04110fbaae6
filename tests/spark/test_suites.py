"""Spark's own suites hold on the ckpt provider: in the gate the quick ones of the store, in the proof all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import PROVING

_RUN = Path(__file__).parent / "suites" / "run.py"
_MISSING = 3
_SHOWN_LINES = 60


@pytest.mark.budget(75)
@pytest.mark.timeout(7200)
def test_sparks_own_suites(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, str(_RUN), "--report", str(report), *([] if PROVING else ["--quick"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == _MISSING:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])
    suites = json.loads(report.read_text(encoding="utf-8"))
    assert all(suite["passed"] for suite in suites.values())
