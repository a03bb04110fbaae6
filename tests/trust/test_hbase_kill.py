"""HBase killed under load: nothing acknowledged is lost, and the same handles go on when it is back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import pytest

import ckpt
from ckpt.dev import Server
from ckpt.errors import BackendUnavailableError
from ckpt.testing.servers import own_server

ROUNDS = int(os.environ.get("CKPT_KILL_ROUNDS", "3"))
ENDS_S = 240

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = own_server("hbase", tmp_path_factory.mktemp("hbase") / "server")
    yield started
    started.kill()


class Load:
    """Writes until it is stopped, and knows what was acknowledged."""

    def __init__(self, write: Callable[[int], None]) -> None:
        self._write = write
        self.acknowledged = 0
        self.attempted = 0
        self._stop = threading.Event()
        self._moved = threading.Condition()

    def run(self) -> None:
        while not self._stop.is_set():
            self.attempted += 1
            self._write(self.attempted)
            with self._moved:
                self.acknowledged = self.attempted
                self._moved.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Return when so many more writes have been acknowledged."""
        with self._moved:
            wanted = self.acknowledged + count
            assert self._moved.wait_for(lambda: self.acknowledged >= wanted, timeout=ENDS_S)

    def stop(self) -> None:
        self._stop.set()


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(server: Server) -> None:
    """In turn: the Thrift server alone, the rest of HBase alone, and both at once."""
    with ckpt.open_backend(server.address, timeout_s=5, retry_s=ENDS_S, prefix="kill") as backend:

        def put(number: int) -> None:
            batch = {b"%d-%d" % (number % 20, n): b"%d" % number for n in range(50)}
            backend.put_many("words", batch)

        def commit(number: int) -> None:
            backend.commit("store", number, {b"last": b"%d" % number, b"%d" % number: b""})

        backend.claim("words")
        loads = [Load(put), Load(commit)]
        with ThreadPoolExecutor(2, thread_name_prefix="load") as pool:
            running: list[Future[None]] = [pool.submit(load.run) for load in loads]
            try:
                for roles in islice(cycle((["thrift"], ["master"], ["thrift", "master"])), ROUNDS):
                    for load in loads:
                        load.wait_for_more(5)
                    server.kill(*roles)
                    server.start()
                    for load in loads:
                        load.wait_for_more(1)
            finally:
                for load in loads:
                    load.stop()
            for one in running:
                one.result(timeout=ENDS_S)
        puts, commits = (load.acknowledged for load in loads)
        assert puts == loads[0].attempted
        newest = {number % 20: number for number in range(1, puts + 1)}
        expected = {b"%d-%d" % (k, n): b"%d" % v for k, v in newest.items() for n in range(50)}
        for reader in (backend, ckpt.open_backend(server.address, prefix="kill")):
            assert dict(reader.scan("words")) == expected
            assert [c.version for c in reader.versions("store")] == list(range(1, commits + 1))
            assert dict(reader.scan("store")) == {
                b"last": b"%d" % commits,
                **{b"%d" % number: b"" for number in range(1, commits + 1)},
            }
            assert list(reader.verify()) == []
            reader.close()


@pytest.mark.parametrize("role", ["thrift", "master"])
def test_a_frozen_server_ends_calls_and_work_goes_on_when_it_thaws(server: Server, role: str) -> None:
    prefix = f"frozen-{role}"
    with (
        ckpt.open_backend(server.address, timeout_s=1, retry_s=1, prefix=prefix) as backend,
        ckpt.open_backend(server.address, retry_s=ENDS_S, prefix=prefix) as patient,
    ):
        patient.put_many("words", {b"a": b"1"})
        server.freeze(role)
        try:
            with ThreadPoolExecutor(2, thread_name_prefix="caller") as pool:
                calls = [
                    pool.submit(backend.put_many, "words", {b"a": b"2"}),
                    pool.submit(backend.get_many, "words", [b"a"]),
                ]
                for call in calls:
                    assert isinstance(call.exception(timeout=ENDS_S), BackendUnavailableError)
        finally:
            server.thaw(role)
        assert patient.get_many("words", [b"a"]) in ({b"a": b"1"}, {b"a": b"2"})
        patient.put_many("words", {b"a": b"3"})
        assert patient.get_many("words", [b"a"]) == {b"a": b"3"}


def test_a_writer_that_is_killed_loses_nothing_it_reported(hbase_table: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ckpt.testing.crash", "--rounds", "6", "--seconds-per-round", "1.5"]
    address = f"{hbase_table}?prefix=crash-{tmp_path.name}"
    ran = subprocess.run(
        [*command, "--address", address], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none lost" in ran.stdout
