"""What the tests of several benchmarks share."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

Interrupted = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def interrupted() -> Interrupted:
    """(a line of progress, arguments of `ckpt bench`) → the rows that it prints after Ctrl-C then."""

    def run(at: str, *arguments: str) -> list[dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ckpt", "bench", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            # A shell that started these tests in the background has them ignore Ctrl-C.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(at):
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                break
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "interrupted; these are the results so far" in err
        assert "Traceback" not in err
        return [json.loads(line) for line in out.splitlines()]

    return run
