"""S3 and its writers killed with `kill -9` under load: nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ckpt
from ckpt.dev import S3Server
from ckpt.errors import FencedError
from ckpt.testing import KillConformance, own_server
from ckpt.testing.outcomes import PATIENT_S
from ckpt_backends.objects.backend import FsspecBackend
from ckpt_backends.objects.requests import ObjectExistsError
from tests.effort import effort

SMALL = "unindexed_segments=8&small_segments=16"
"""So that index flushes and compactions happen all the time."""


class TestS3Kills(KillConformance):
    rounds, writers = effort(2, 20), effort(2, 20)

    @classmethod
    def start_server(cls, folder: Path) -> S3Server:
        return own_server("s3", folder)

    def address(self, server: S3Server, place: str) -> str:
        base, _, query = server.address.partition("?")
        return f"{base}/{place}?{query}&{SMALL}"


def test_of_many_that_create_one_object_exactly_one_wins(dev_server: Callable[[str], str]) -> None:
    base, _, query = dev_server("s3").partition("?")
    address = f"{base}/race-{secrets.token_hex(6)}?{query}"
    handles = [ckpt.open_backend(address) for _ in range(6)]
    for handle in handles:
        handle.put_many(f"ready-{secrets.token_hex(2)}", {b"be": b"1"})
    start = threading.Barrier(len(handles))

    def create(number: int, name: str) -> bool:
        handle = handles[number]
        assert isinstance(handle, FsspecBackend)
        start.wait()
        try:
            handle._requests.create(name, b"%d" % number)
        except ObjectExistsError as error:
            return error.data == b"%d" % number
        return True

    with ThreadPoolExecutor(len(handles)) as pool:
        for turn in range(10):
            name = f"race/{turn}"
            won = list(pool.map(lambda number, name=name: create(number, name), range(len(handles))))
            assert sum(won) == 1
            assert handles[0]._requests.get(name) == b"%d" % won.index(True)
    for handle in handles:
        handle.close()


RACER = """
import sys
import ckpt

with ckpt.open_backend(sys.argv[1]) as backend:
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(15):
        backend.put_many("words", {f"{sys.argv[2]}-{turn}".encode(): b"x", b"shared": sys.argv[2].encode()})
        backend.commit(f"store-{sys.argv[2]}", turn + 1, {b"turn": b"%d" % turn})
    print(backend.claim("owned"), flush=True)
"""


def test_processes_that_write_at_once_overwrite_nothing(dev_server: Callable[[str], str]) -> None:
    base, _, query = dev_server("s3").partition("?")
    address = f"{base}/racers-{secrets.token_hex(6)}?{query}&{SMALL}"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, address, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    epochs = [int(racer.communicate(timeout=PATIENT_S)[0]) for racer in racers]
    assert sorted(epochs) == [1, 2, 3]
    with ckpt.open_backend(address) as backend:
        found = dict(backend.scan("words"))
        assert found.pop(b"shared") in (b"0", b"1", b"2")
        assert sorted(found) == sorted(b"%d-%d" % (number, turn) for number in range(3) for turn in range(15))
        for number in range(3):
            assert [c.version for c in backend.versions(f"store-{number}")] == list(range(1, 16))
        assert list(backend.verify()) == []


def test_of_two_owners_only_the_last_may_write(dev_server: Callable[[str], str]) -> None:
    base, _, query = dev_server("s3").partition("?")
    address = f"{base}/owners-{secrets.token_hex(6)}?{query}"
    with ckpt.open_backend(address) as old, ckpt.open_backend(address) as new:
        first = old.claim("words")
        old.put_many("words", {b"be": b"1"})
        assert new.claim("words") > first
        with pytest.raises(FencedError, match="words"):
            old.put_many("words", {b"be": b"stale"})
        new.put_many("words", {b"be": b"2"})
        assert dict(old.scan("words")) == dict(new.scan("words")) == {b"be": b"2"}
