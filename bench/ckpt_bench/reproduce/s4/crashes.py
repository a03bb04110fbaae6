"""Operators that are killed with `kill -9` once all they saved is durable: what a recovery finds then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from ckpt.errors import CkptError


class OperatorError(CkptError):
    """An operator could not do its job; the message has what it said last."""


def crashed(job: str, address: str, **settings: Any) -> dict[str, Any]:
    """Run a job of `operators` in a process of its own, and kill that when it is done; what it measured."""
    told = json.dumps({"job": job, "address": address, **settings})
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ckpt_bench.reproduce.s4.operators", told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # A checkout that is only on the path of this process is also on that one's.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C is for the command, which then ends the operator.
            start_new_session=True,
        )
        with process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline()
            finally:
                process.kill()
        if not said:
            log.seek(0)
            last = (log.read().strip().splitlines() or ["nothing"])[-1]
            raise OperatorError(f"the operator that was to {job} on {address} failed; it said last: {last}")
    found: dict[str, Any] = json.loads(said)
    if found.get("failed"):
        raise OperatorError(
            f"{len(found['failed'])} saves to {address} failed; the first: {found['failed'][0]}"
        )
    return found
