"""A process is known by more than its number, and no signal reaches another one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from ckpt.dev import processes
from ckpt.dev.processes import Process, spawn

PATIENT = "import time; print('ready', flush=True); time.sleep(3600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PATIENT


def started(code: str, folder: Path) -> Process:
    """A Python that runs code which says `ready` when it is."""
    log = folder / "log"
    process = spawn([sys.executable, "-c", code], folder=str(folder), log=str(log), environment={})
    waiting = threading.Event()
    while b"ready" not in log.read_bytes():
        assert process.alive, log.read_text()
        waiting.wait(0.01)
    return process


def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    process = started(PATIENT, tmp_path)
    assert os.getsid(process.pid) == process.pid
    processes.kill([process])
    assert not process.alive


def test_terminate_asks_first_and_kills_who_does_not_listen(tmp_path: Path) -> None:
    processes.terminate([started(PATIENT, tmp_path)], grace_s=60)
    stubborn = started(STUBBORN, tmp_path)
    processes.terminate([stubborn], grace_s=0.1)
    assert not stubborn.alive


def test_a_frozen_process_is_alive_and_can_be_terminated(tmp_path: Path) -> None:
    process = started(PATIENT, tmp_path)
    process.signal(signal.SIGSTOP)
    assert process.alive
    processes.terminate([process], grace_s=60)
    assert not process.alive


@pytest.mark.parametrize("change", [{"started_ticks": 1}, {"boot": "another"}])
def test_another_process_with_the_same_number_is_left_alone(
    tmp_path: Path, change: dict[str, object]
) -> None:
    process = started(PATIENT, tmp_path)
    other = msgspec.structs.replace(process, **change)
    assert not other.alive
    processes.kill([other])
    processes.terminate([other], grace_s=0)
    assert process.alive
    processes.kill([process])


def test_who_was_never_there_has_ended() -> None:
    nobody = Process(2**22 + 1, 1, "boot")
    assert not nobody.alive
    assert nobody.wait(0)
    processes.kill([nobody])


def test_a_number_that_a_thread_has_now_is_no_process() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert thread.native_id is not None
    nobody = Process(thread.native_id, 1, "boot")
    assert not nobody.alive
    processes.kill([nobody])
    ended.set()
    thread.join()
