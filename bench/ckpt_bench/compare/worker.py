"""A process that keeps one store and takes a turn when told to.

Each store has a process of its own: what one of them does in the background, garbage collection for
instance, never holds the interpreter of another.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from ckpt_bench.compare.cases import CASES
from ckpt_bench.compare.turns import Job, Player, Turn
from ckpt_bench.failing import StoreError, failing_in_words
from ckpt_bench.interrupts import Interrupts, kept_from_children

_END_S = 10.0


class Worker:
    """The process as the one who gives the turns sees it. A failure raises StoreError, and it can go on.

    Ctrl-C is heard while it is waited for: neither half a process nor half a message is ever left.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process: BaseProcess = spawn.Process(target=_serve, args=(theirs,), daemon=True)
        with kept_from_children():
            self._process.start()
        theirs.close()

    def begin(self, job: Job) -> None:
        """Open the store and fill it; returns at once, `ready` waits."""
        self._send(("begin", job))

    def ready(self) -> None:
        """Return when what `begin` asked for is done."""
        self._answer()

    def turn(self, number: int) -> Turn:
        """One round of work."""
        self._send(("turn", number))
        answer = self._answer()
        assert isinstance(answer, Turn)
        return answer

    def end(self) -> None:
        """Close the store and remove it."""
        self._send(("end", None))
        self._answer()

    def stop(self) -> None:
        """End the process: after the turn that it is in, unless that takes too long, or Ctrl-C says so."""
        self._connection.close()
        try:
            with self._interrupts.heard():
                self._process.join(_END_S)
        finally:
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
            self._process.close()

    @property
    def alive(self) -> bool:
        """Whether it can be asked for anything."""
        return self._process.is_alive()

    def _send(self, what: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._connection.send(what)

    def _answer(self) -> object:
        try:
            with self._interrupts.heard():
                answer: object = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(_END_S)
            raise StoreError(f"its process ended with code {self._process.exitcode}") from None
        if isinstance(answer, StoreError):
            raise answer
        return answer


def _serve(connection: Connection) -> None:
    """Answer until the other side is gone."""
    playing: list[tuple[Job, Player]] = []

    def begin(job: Job) -> None:
        playing.append((job, CASES[job.case].play(job)))

    def turn(number: int) -> Turn:
        return playing[-1][1].turn(number)

    def end(_: None) -> None:
        while playing:
            job, player = playing.pop()
            try:
                player.close()
            finally:
                shutil.rmtree(job.folder, ignore_errors=True)

    commands: dict[str, Callable[..., object]] = {"begin": begin, "turn": turn, "end": end}
    try:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                name, argument = connection.recv()
                connection.send(_tried(commands[name], argument))
    finally:
        _tried(end, None)  # nothing is left on a server, also after Ctrl-C


def _tried(command: Callable[..., object], argument: object) -> object:
    try:
        with failing_in_words():
            return command(argument)
    except StoreError as error:
        return error
