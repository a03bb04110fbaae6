"""Cassandra killed and frozen: nothing acknowledged is lost, and the same handle goes on."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

import ckpt
from ckpt.dev import Server
from ckpt.errors import BackendUnavailableError
from ckpt.testing.servers import own_server

KEYS = [b"key-%02d" % n for n in range(20)]
ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "5"))
PATIENT_S = 180.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that the tests of this module may kill: starting one takes longer than a test."""
    started = own_server("cassandra", tmp_path_factory.mktemp("cassandra") / "node")
    yield started
    started.kill()


class Writer:
    """Writes numbered batches and commits through one handle, and notes what was acknowledged."""

    def __init__(self, backend: ckpt.Backend) -> None:
        self._backend = backend
        self._stop = threading.Event()
        self.moved = threading.Condition()
        self.put = self.put_begun = self.committed = self.commit_begun = 0
        self.errors: list[BaseException] = []
        works = (self._puts, self._commits)
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
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

    def _puts(self) -> None:
        number = self.put_begun = self.put_begun + 1
        fresh = {b"batch-%d-%d" % (number, n): b"%d" % number for n in range(10)}
        self._backend.put_many("words", {**dict.fromkeys(KEYS, b"%d" % number), **fresh})
        self.put = number

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
        """What is there is what was acknowledged, or something newer."""
        put, committed = self.put, self.committed
        found = backend.get_many("words", KEYS)
        assert min(int(found[key]) for key in KEYS) >= put
        batches = {b"batch-%d-%d" % (number, n) for number in range(1, put + 1) for n in range(10)}
        assert batches <= {key for key, _ in backend.scan("words", prefix=b"batch-")}
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
def test_five_killed_servers_lose_nothing(server: Server) -> None:
    choose = random.Random(4)
    with (
        ckpt.open_backend(server.address, retry_s=PATIENT_S, timeout_s=5) as backend,
        ckpt.open_backend(server.address, retry_s=PATIENT_S, timeout_s=5) as reader,
    ):
        writer = Writer(backend)
        for _ in range(ROUNDS):
            writer.wait_for_more()
            threading.Event().wait(choose.random() * 0.1)
            server.kill()
            server.start()
            writer.require_nothing_lost(reader)
        writer.wait_for_more()
        writer.stop()
        writer.require_nothing_lost(reader)
        assert list(reader.verify()) == []


@pytest.mark.crash
def test_a_frozen_server_is_an_error_in_time_and_work_goes_on(server: Server) -> None:
    with ckpt.open_backend(server.address, prefix="frozen", timeout_s=2, retry_s=0) as backend:
        backend.put_many("words", {b"be": b"1", b"or": b"1"})
        server.freeze()
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            backend.put_many("words", {b"be": b"2"})
        with pytest.raises(BackendUnavailableError):
            backend.get_many("words", [b"be"])
        server.thaw()
        while True:
            # The driver needs a moment to find its connections again; the limit of the test ends this.
            with contextlib.suppress(BackendUnavailableError):
                backend.put_many("words", {b"be": b"3"})
                break
        assert dict(backend.scan("words")) == {b"be": b"3", b"or": b"1"}


@pytest.mark.crash
def test_killed_writers_lose_nothing(cassandra_keyspace: str) -> None:
    address = f"{cassandra_keyspace}?prefix=crash-{uuid.uuid4().hex}"
    options = ["--rounds", "6", "--seconds-per-round", "0.8", "--address", address]
    command = [sys.executable, "-m", "ckpt.testing.crash", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none lost" in ran.stdout
