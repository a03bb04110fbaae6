"""Workers as their starter sees them: what one says, and its end, which may be `kill -9`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any, Self

from ckpt.dev import processes
from ckpt.errors import CkptError
from ckpt_bench.spark.jobs import Job

_SHOWN_LINES = 5


class BenchError(CkptError):
    """A worker could not do its job; the message has what it said last."""


class Worker:
    """A Spark session in a process of its own; whatever happens, nothing of it outlives the `with` block."""

    def __init__(self, job: Job, log: IO[bytes]) -> None:
        self._job, self._log = job, log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ckpt_bench.spark.work", job.encode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # What a killed PySpark leaves behind goes with the folder.
            env={**os.environ, "TMPDIR": os.path.dirname(log.name)},
        )

    def said(self) -> Iterator[dict[str, Any]]:
        """What it measures, as it does; ends when the job is done, and raises if that went wrong."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        if self._process.wait() != 0:
            raise BenchError(
                f"a Spark session for {self._job.kind} of {', '.join(self._job.providers)} ended with code "
                f"{self._process.returncode}; it said:\n{self._tail()}"
            )

    def first(self) -> dict[str, Any]:
        """The first thing that it says."""
        for what in self.said():
            return what
        raise BenchError(f"a Spark session for {self._job.kind} ended without a word; {self._tail()}")

    def _tail(self) -> str:
        with open(self._log.name, errors="replace") as file:
            lines = file.readlines()
        # Spark prints the cause in the middle of a long trace, and far from its end.
        causes = dict.fromkeys(line for line in lines if line.startswith("Caused by: "))
        return "".join([*causes, *lines[-_SHOWN_LINES:]])

    def kill(self) -> None:
        """`kill -9` for the session, its executors and its sidecar, all at once."""
        processes.kill_tree(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
