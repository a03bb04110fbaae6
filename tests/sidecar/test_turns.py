"""A sidecar asks for short turns on the processor, for all of its threads and without a privilege."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys
import threading

import pytest

from ckpt.sidecar.turns import TURN_NS, take_short_turns

_GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}


def turn_ns() -> int:
    """How long the turns of the calling thread are, as the kernel tells."""
    attributes = ctypes.create_string_buffer(48)
    number = _GET_ATTRIBUTES[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) == 0
    return int(struct.unpack_from("@Q", attributes, 24)[0])


def knows_turns() -> bool:
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    return platform.system() == "Linux" and platform.machine() in _GET_ATTRIBUTES and release >= (6, 12)


def report() -> None:
    """In a process of its own: nobody else's turns are changed."""
    os.nice(3)
    assert take_short_turns()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(turn_ns()))
    thread.start()
    thread.join()
    print(found[0], os.getpriority(os.PRIO_PROCESS, 0))


@pytest.mark.skipif(not knows_turns(), reason="needs Linux 6.12 on a machine whose system calls we know")
def test_threads_that_are_started_later_have_them_and_nice_stays() -> None:
    code = (
        f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}]; import test_turns; test_turns.report()"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == [str(TURN_NS), "3"]


def test_where_nobody_can_ask_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "a machine of tomorrow")
    assert not take_short_turns()
