"""A real server in a folder of its own: started again, it has the same data and the same ports.

A server is one or more processes, each with a *role*. What another process needs to find it again stands in
`server.json` of its folder. Configuration files are readable by their owner only, and no secret stands on a
command line.
"""

from __future__ import annotations

import abc
import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from ckpt.dev import cache, ports, processes
from ckpt.dev.processes import Process
from ckpt.dev.state import ServerState
from ckpt.errors import BackendUnavailableError, ConfigError

_PORT_ATTEMPTS = 3
_TAIL_BYTES = 64 << 10
_REASON = re.compile(
    r"error|exception|fatal|fail|cannot|can't|could not|unable|in use|denied|invalid|unknown|bad |wrong",
    re.IGNORECASE,
)
_NO_REASON = re.compile(r"^\s*(at |\.\.\. \d+ )")


class Server(abc.ABC):
    """A real server on the loopback interface; a context that starts it and stops it.

    `kill`, `freeze` and `thaw` take roles, by default all of them.
    """

    kind: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    port_names: tuple[str, ...] = ("port",)
    start_timeout_s: ClassVar[float] = 60.0
    stop_grace_s: ClassVar[float] = 10.0

    host: ClassVar[str] = ports.HOST

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.folder}>"

    # What a kind of server says about itself.

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """What `ckpt.open_backend` takes."""

    @abc.abstractmethod
    def prepare(self, report: cache.Report = cache.silent, /) -> None:
        """Check that every tool is there, and fetch what can be fetched."""

    @abc.abstractmethod
    def _files(self) -> Mapping[str, str]:
        """The configuration files, by name in the folder."""

    @abc.abstractmethod
    def _commands(self) -> Mapping[str, Sequence[str]]:
        """How to start its processes, by role."""

    @abc.abstractmethod
    def _answers(self) -> bool:
        """Ask the server something."""

    def _environment(self) -> Mapping[str, str]:
        """What its processes find in their environment beside ours."""
        return {}

    # What every server can do.

    @property
    def port(self) -> int:
        """The port that clients connect to; the same for as long as the folder exists."""
        return self._port(self.port_names[0])

    @property
    def pids(self) -> dict[str, int]:
        """The numbers of its living processes, by role."""
        return {role: process.pid for role, process in self._living().items()}

    @property
    def running(self) -> bool:
        """Whether every process of it is alive. It may be frozen, or not answer yet."""
        return len(self._living()) == len(self.roles)

    def log(self, role: str) -> str:
        """The path of the log of one of its processes."""
        return os.path.join(self.folder, f"{role}.log")

    def start(
        self,
        *,
        report: cache.Report = cache.silent,
        cancelled: threading.Event | None = None,
        may_move: bool = False,
    ) -> Self:
        """Start the processes that do not run, and return when the server answers.

        It comes back on the ports it had. If another process has taken one of them, that is an error, unless
        it `may_move` to others.
        """
        self.prepare(report)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            chosen = self._choose_ports(may_move=may_move)
            started = self._launch(report)
            try:
                self._wait(report, cancelled or threading.Event())
            except BaseException as error:
                processes.kill(started)
                # Between choosing a port and listening on it, another process may have been faster.
                if not (chosen and isinstance(error, BackendUnavailableError) and self._taken_ports()):
                    raise
                if attempt == _PORT_ATTEMPTS:
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """End it as an operator would: SIGTERM, then SIGKILL after a bounded time; data stays."""
        processes.terminate(list(self._living().values()), grace_s=self.stop_grace_s)

    def kill(self, *roles: str) -> None:
        """End processes with SIGKILL, and return when they are gone."""
        processes.kill(self._chosen(roles))

    def freeze(self, *roles: str) -> None:
        """Suspend processes: connections stay open and nothing answers, from when this returns."""
        processes.freeze(self._chosen(roles))

    def thaw(self, *roles: str) -> None:
        """Let frozen processes go on."""
        for process in self._chosen(roles):
            process.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # How.

    @property
    def _has_answered(self) -> bool:
        """Whether it ever has, so that there is nothing left to set up."""
        return ServerState.load(self.folder).answered

    def _port(self, name: str) -> int:
        chosen = ServerState.load(self.folder).ports
        if name not in chosen:
            raise ConfigError(f"{self.kind} in {self.folder} has no port before it is started")
        return chosen[name]

    def _path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def _chosen(self, roles: Sequence[str]) -> list[Process]:
        for role in roles:
            if role not in self.roles:
                raise ConfigError(f"{self.kind} has no role {role!r}; it has {', '.join(self.roles)}")
        return [process for role, process in self._living().items() if not roles or role in roles]

    def _living(self) -> dict[str, Process]:
        return ServerState.load(self.folder).living()

    def _choose_ports(self, *, may_move: bool) -> bool:
        """Choose ports unless there are some that will do; whether it did."""
        state = ServerState.load(self.folder)
        if state.ports:
            if self._living():
                return False
            taken = self._taken_ports()
            if not taken:
                return False
            if not may_move:
                raise BackendUnavailableError(
                    f"{self.kind} cannot start on port {taken[0]} again, which another process has taken"
                )
        chosen: set[int] = set()
        while len(chosen) < len(self.port_names):
            chosen.add(ports.free_port())
        state.ports = dict(zip(self.port_names, chosen, strict=True))
        state.save(self.folder)
        return True

    def _taken_ports(self) -> list[int]:
        return [port for port in ServerState.load(self.folder).ports.values() if not ports.is_free(port)]

    def _launch(self, report: cache.Report) -> list[Process]:
        living = self._living()
        if len(living) == len(self.roles):
            return []
        report("starting")
        self._configure()
        started = []
        for role, command in self._commands().items():
            if role in living:
                continue
            log = self.log(role)
            if os.path.exists(log):
                os.replace(log, f"{log}.old")
            process = processes.spawn(command, folder=self.folder, log=log, environment=self._environment())
            started.append(process)
            state = ServerState.load(self.folder)
            state.processes[role] = process
            state.save(self.folder)
        return started

    def _configure(self) -> None:
        files = self._files()
        digest = hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()
        state = ServerState.load(self.folder)
        # Some servers change their own configuration (a failover does): what we have written already stays.
        if state.written != digest or not all(os.path.exists(self._path(name)) for name in files):
            for name, content in files.items():
                os.makedirs(os.path.dirname(self._path(name)), mode=0o700, exist_ok=True)
                cache.write_file(self._path(name), content)
            state.written = digest
            state.save(self.folder)

    def _wait(self, report: cache.Report, cancelled: threading.Event) -> None:
        report("waiting until it answers")
        deadline = time.monotonic() + self.start_timeout_s
        pause_s = 0.02
        while not self._answers():
            for role in self.roles:
                if role not in self._living():
                    raise BackendUnavailableError(
                        f"{self.kind} ({role}) ended at its start: {self._reason(role)}; see {self.log(role)}"
                    )
            if time.monotonic() > deadline:
                raise BackendUnavailableError(
                    f"{self.kind} does not answer after {self.start_timeout_s:.0f} s; "
                    f"see {self.log(self.roles[0])}"
                )
            if cancelled.wait(pause_s):
                raise BackendUnavailableError(f"{self.kind} was not started: interrupted")
            pause_s = min(pause_s * 1.5, 0.25)
        if not self._has_answered:
            state = ServerState.load(self.folder)
            state.answered = True
            state.save(self.folder)

    def _reason(self, role: str) -> str:
        """The line of the log that most likely says why the process ended."""
        try:
            with open(self.log(role), "rb") as file:
                file.seek(max(os.path.getsize(self.log(role)) - _TAIL_BYTES, 0))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            lines = []
        lines = [line.strip() for line in lines if line.strip() and not _NO_REASON.match(line)]
        telling = [line for line in lines if _REASON.search(line)]
        return (telling or lines or ["it has not said why"])[-1][:300].rstrip(".")
