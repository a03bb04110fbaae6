"""What the tests of several benchmarks share."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Interrupted = Callable[..., list[dict[str, Any]]]
WAITS_FOR_CTRL_C = """
import os, signal, sys, time
if "--multiprocessing-fork" in sys.orig_argv and not os.path.exists(waited := f"{__file__}.waited"):
    open(waited, "x").close()
    print("a worker starts", file=sys.stderr, flush=True)
    while signal.SIGINT not in signal.sigpending():  # or it is raised here
        time.sleep(0.001)
"""


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


@pytest.fixture
def says_that_a_worker_starts(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What the first process that a benchmark starts says before anything else; it goes on after Ctrl-C."""
    folder: Path = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(WAITS_FOR_CTRL_C)
    monkeypatch.syspath_prepend(str(folder))
    return "a worker starts"
