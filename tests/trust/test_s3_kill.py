"""S3 and its writers killed with `kill -9` under load: nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import ckpt
from ckpt.dev import S3Server
from ckpt.errors import FencedError
from ckpt_backends.fsspec import FsspecBackend
from ckpt_backends.object_requests import ObjectExistsError

KEYS = [b"key-%02d" % n for n in range(20)]
ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "5"))
PATIENT_S = 120.0
SMALL = "unindexed_segments=8&small_segments=16"
"""So that index flushes and compactions happen all the time."""


class Writer:
    """Writes numbered batches and commits through one handle; knows what was acknowledged."""

    def __init__(self, backend: ckpt.Backend) -> None:
        self._backend = backend
        self._stop = threading.Event()
        self.moved = threading.Condition()
        self.put = self.put_begun = self.committed = self.commit_begun = 0
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(work,)) for work in (self._puts, self._commits)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
                with self.moved:
                    self.moved.notify_all()
        except BaseException as error:  # noqa: BLE001 whatever it is fails the test
            self.errors.append(error)
            with self.moved:
                self.moved.notify_all()

    def _puts(self) -> None:
        self.put_begun += 1
        self._backend.put_many("words", dict.fromkeys(KEYS, b"%d" % self.put_begun))
        self.put = self.put_begun

    def _commits(self) -> None:
        self.commit_begun += 1
        self._backend.commit("store", self.commit_begun, dict.fromkeys(KEYS[:5], b"%d" % self.commit_begun))
        self.committed = self.commit_begun

    def wait_for_more(self) -> None:
        """Until both kinds of writes were acknowledged again."""
        put, committed = self.put, self.committed
        with self.moved:
            went_on = self.moved.wait_for(
                lambda: self.errors or (self.put > put + 2 and self.committed > committed + 2), PATIENT_S
            )
        assert went_on, "writing does not go on"
        assert not self.errors, self.errors

    def require_nothing_lost(self, backend: ckpt.Backend) -> None:
        """What is there is what was acknowledged, or something newer, and whole."""
        put, committed = self.put, self.committed
        found = set(backend.get_many("words", KEYS).values())
        assert len(found) == 1
        assert int(found.pop()) >= put
        tip = backend.history("store").tip
        assert tip is not None
        assert tip.version >= committed
        seen = backend.get_many("store", KEYS[:5], version=tip.version)
        assert set(seen.values()) == {b"%d" % tip.version}

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENT_S)
        assert not self.errors, self.errors


@pytest.mark.crash
@pytest.mark.slow
def test_five_killed_servers_lose_nothing(private_server: Callable[..., S3Server]) -> None:
    server = private_server("s3")
    choose = random.Random(4)
    address = f"{server.address}&{SMALL}"
    with (
        ckpt.open_backend(address, retry_s=PATIENT_S) as backend,
        ckpt.open_backend(address, retry_s=PATIENT_S) as reader,
    ):
        writer = Writer(backend)
        for _ in range(ROUNDS):
            writer.wait_for_more()
            threading.Event().wait(choose.random() * 0.05)
            server.kill()
            server.start()
            writer.require_nothing_lost(reader)
        writer.wait_for_more()
        writer.stop()
        writer.require_nothing_lost(reader)
        assert list(reader.verify()) == []
    with ckpt.open_backend(server.address) as again:
        writer.require_nothing_lost(again)
    assert writer.put > 15


@pytest.mark.crash
@pytest.mark.slow
def test_killed_writers_lose_nothing(dev_server: Callable[[str], str]) -> None:
    base, _, query = dev_server("s3").partition("?")
    address = f"{base}/crash-{secrets.token_hex(6)}?{query}&{SMALL}"
    command = [sys.executable, "-m", "ckpt.testing.crash", "--rounds", "6", "--seconds-per-round", "1"]
    ran = subprocess.run(
        [*command, "--address", address], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none lost" in ran.stdout
    assert "while writing" in ran.stdout


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
