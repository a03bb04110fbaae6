"""A server killed and frozen under load: nothing acknowledged is lost, and the same handles go on."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from ckpt.contract.registry import open_backend
from ckpt.errors import BackendUnavailableError
from ckpt.testing.load import StoreLoad
from ckpt.testing.outcomes import PATIENT_S, begin, outcome, until_it_works


class Killable(Protocol):
    """A real server that a test has for itself, such as `ckpt.testing.own_server` starts."""

    def start(self) -> object:
        """Start what does not run, with the data it had, and return when it answers."""

    def kill(self, *roles: str) -> None:
        """End these processes of it (none named: all) with SIGKILL."""

    def freeze(self, *roles: str) -> None:
        """Suspend them, with their connections open."""

    def thaw(self, *roles: str) -> None:
        """Let them go on."""


class KillConformance:
    """A server of the class' own is killed again and again, as are processes that write to it.

    ```python
    class TestMyKills(KillConformance):
        @classmethod
        def start_server(cls, folder):
            return own_server("redis", folder)

        def address(self, server, place):
            return f"{server.address}?prefix={place}"
    ```
    """

    rounds: ClassVar[int] = 5
    """How often the server is killed."""
    writers: ClassVar[int] = 6
    """How many processes that write are killed."""
    victims: ClassVar[tuple[tuple[str, ...], ...]] = ((),)
    """Which processes of the server are killed in the first round, the second, and so on; (): all of them."""
    timeout_s: ClassVar[float] = 1.0
    """As short as the server, on a busy machine, can keep."""
    writer_s: ClassVar[float] = 1.0
    """The longest life of a process that writes; its first acknowledged write takes far less."""
    silent_says: ClassVar[str] = ""
    """What the error says, as a regular expression, if the server does not answer."""

    @classmethod
    def start_server(cls, folder: Path) -> Killable:
        """Start the server that these tests may kill, with its data in the folder: subclasses say how."""
        raise NotImplementedError

    def address(self, server: Any, place: str) -> str:
        """The address of a store on the server, one for each name of a place: subclasses say which."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killable]:
        """One for the class: to start it often takes longer than a test."""
        started = cls.start_server(tmp_path_factory.mktemp("killed") / "server")
        yield started
        started.kill()

    @pytest.fixture
    def store(self, server: Killable) -> str:
        """The address of a store of this test alone."""
        return self.address(server, uuid.uuid4().hex)

    def test_killed_servers_lose_nothing(
        self, server: Killable, store: str, record_property: Callable[[str, object], None]
    ) -> None:
        choose = random.Random(4)
        options = {"timeout_s": 5, "retry_s": PATIENT_S}
        with open_backend(store, **options) as backend, open_backend(store, **options) as reader:
            load = StoreLoad(backend)
            for roles in islice(cycle(self.victims), self.rounds):
                load.wait_for_more()
                threading.Event().wait(choose.random() * 0.05)
                server.kill(*roles)
                server.start()
                load.require_nothing_lost(reader)
            load.wait_for_more()
            load.stop()
            load.require_exactly(backend)
        with open_backend(store) as again:
            load.require_exactly(again)
        record_property("rounds", self.rounds)
        record_property("lost", 0)

    def test_a_frozen_server_ends_calls_and_work_goes_on_when_it_thaws(
        self, server: Killable, store: str
    ) -> None:
        with open_backend(store, timeout_s=self.timeout_s, retry_s=0) as backend:
            for number, roles in enumerate(self.victims):
                until_it_works(backend.put_many, "words", {b"be": b"1", b"or": b"1"})
                server.freeze(*roles)
                try:
                    put = begin(backend.put_many, "words", {b"be": b"2"})
                    get = begin(backend.get_many, "words", [b"be"])
                    ended = [outcome(put), outcome(get)]
                finally:
                    server.thaw(*roles)
                for end in ended:
                    assert isinstance(end, BackendUnavailableError), end
                    assert re.search(self.silent_says, str(end))
                value = b"new %d" % number
                until_it_works(backend.put_many, "words", {b"be": value})
                seen = until_it_works(lambda: dict(backend.scan("words")))
                assert seen == {b"be": value, b"or": b"1"}

    def test_killed_writers_lose_nothing(
        self, store: str, record_property: Callable[[str, object], None]
    ) -> None:
        rounds = ["--rounds", str(self.writers)]
        command = [sys.executable, "-m", "ckpt.testing.crash", *rounds, "--address", store]
        ran = subprocess.run(
            [*command, "--seconds-per-round", str(self.writer_s)],
            capture_output=True,
            text=True,
            timeout=PATIENT_S + self.writers * self.writer_s * 10,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "none lost" in ran.stdout
        assert "while writing" in ran.stdout
        record_property("rounds", self.writers)
        record_property("lost", 0)
