"""CRASH: a process that writes to the store is killed with `kill -9`; what it had been promised is counted.

An acknowledged write that is gone or altered is an error at every durability but `queued`, which promises
nothing before the next flush; there the loss is only counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from ckpt.contract.addresses import Durability, parse_address
from ckpt.contract.backend import Backend
from ckpt.contract.registry import open_backend
from ckpt.errors import BackendUnavailableError, CkptError
from ckpt.values.envelope import ValueCodec
from ckpt_bench.ycsb.bindings import status_of
from ckpt_bench.ycsb.measures import Recorder, Row
from ckpt_bench.ycsb.settings import Interval, Settings
from ckpt_bench.ycsb.victim import crash_key, crash_value

_CHUNK = 1000
_READ_BYTES = 1 << 16
_START_S = 60.0


class Crashes:
    """Kills writers, and counts what became of what they had been told is durable."""

    def __init__(
        self,
        address: str,
        settings: Settings,
        *,
        recorder: Recorder,
        cancelled: threading.Event,
        on_error: Callable[[str, Exception], None],
        say: Callable[[str], object],
    ) -> None:
        self._address = address
        self._settings = settings
        self._recorder = recorder
        self._cancelled = cancelled
        self._on_error = on_error
        self._say = say
        self._random = random.Random(settings.seed)
        self._namespace = f"{settings.table}.crash"
        self._size = settings.fieldcount * settings.fieldlength
        self._codec = ValueCodec()
        self.moments_ns: list[tuple[int, int]] = []
        """When each was killed, and when the first record was read again."""
        self.done = 0
        """How many of them, also those that failed."""
        self.counts: Counter[str] = Counter(Acknowledged=0, Lost=0, Altered=0)

    def run(self) -> None:
        """As many crashes as the settings ask for, unless told to leave the rest out."""
        for number in range(self.done, self._settings.crashcount):
            if self._cancelled.is_set():
                return
            try:
                self._one(f"crash {number + 1} of {self._settings.crashcount}")
            except (CkptError, OSError) as error:
                self._recorder.statuses["CRASH", status_of(error)] += 1
                self._on_error("CRASH", error)
            self.done += 1

    def _one(self, what: str) -> None:
        with open_backend(self._address) as backend:
            self._drop(backend)
        acknowledged = self._killed()
        started_ns = time.perf_counter_ns()
        with open_backend(self._address) as backend:
            backend.get_many(self._namespace, [crash_key(0)])
            wide = self._settings.measurement_interval is not Interval.OP
            starts = (started_ns,) * (2 if wide else 1)
            read_ns = time.perf_counter_ns()
            self._recorder.of("CRASH").extend((*starts, read_ns))
            self.moments_ns.append((started_ns, read_ns))
            lost, altered = self._missed(backend, acknowledged)
            self._drop(backend)
        self.counts.update(Acknowledged=len(acknowledged), Lost=lost, Altered=altered)
        self._say(
            f"{what}: killed after {len(acknowledged)} acknowledged writes; {lost} lost, {altered} altered"
        )

    def _drop(self, backend: Backend) -> None:
        """Take the namespace from whoever was killed as its owner, and leave nothing of it."""
        backend.claim(self._namespace)
        backend.drop(self._namespace)
        backend.release(self._namespace)

    def _killed(self) -> list[int]:
        """The numbers of the writes that a process was told are durable before it was killed."""
        way = "safekeeper" if self._settings.safekeeper else "backend"
        # An address may hold a password, which everybody could read in a command line. Its session is another
        # one, since Ctrl-C is for us, who then end it.
        told_it = json.dumps([self._address, self._namespace, self._size, way]).encode()
        with subprocess.Popen(
            [sys.executable, "-m", "ckpt_bench.ycsb.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as victim:
            try:
                assert victim.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # it ended already, and says why elsewhere
                    victim.stdin.write(told_it)
                    victim.stdin.flush()
                with contextlib.suppress(BrokenPipeError):
                    victim.stdin.close()
                told = self._listen(victim)
            finally:
                victim.kill()
            assert victim.stdout is not None
            told += victim.stdout.read()
        return [int(line) for line in told[: told.rfind(b"\n") + 1].split()]

    def _listen(self, victim: subprocess.Popen[bytes]) -> bytes:
        """What it says until its time has come: a random one after its first word."""
        assert victim.stdout is not None
        assert victim.stderr is not None
        told = b""
        until_s = time.monotonic() + _START_S
        while (left_s := until_s - time.monotonic()) > 0 and not self._cancelled.is_set():
            if not select.select([victim.stdout], [], [], min(left_s, 0.1))[0]:
                continue
            more = os.read(victim.stdout.fileno(), _READ_BYTES)
            if not more:
                reason = victim.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise BackendUnavailableError(f"the process that was to be killed ended by itself: {reason}")
            if not told:
                until_s = time.monotonic() + self._random.random() * self._settings.crash_seconds
            told += more
        return told

    def _missed(self, backend: Backend, acknowledged: list[int]) -> tuple[int, int]:
        """How many of these writes are gone, and how many are not what was written."""
        lost = altered = 0
        for start in range(0, len(acknowledged), _CHUNK):
            chunk = acknowledged[start : start + _CHUNK]
            found = backend.get_many(self._namespace, [crash_key(number) for number in chunk])
            for number in chunk:
                value = found.get(crash_key(number))
                lost += value is None
                altered += value is not None and self._read(value, number) != crash_value(number, self._size)
        return lost, altered

    def _read(self, value: bytes, number: int) -> object:
        if not self._settings.safekeeper:
            return value
        return self._codec.decode(value, namespace=self._namespace, key=crash_key(number))

    def rows(self) -> list[Row]:
        """What was acknowledged, and what of it was not there any more."""
        return [("CRASH", what, count) for what, count in self.counts.items()]

    def faults(self) -> list[str]:
        """What must not happen."""
        promised = parse_address(self._address).options.get("durability") != Durability.QUEUED
        missed = self.counts["Lost"] * promised + self.counts["Altered"]
        if not missed:
            return []
        return [f"CRASH: {missed} of {self.counts['Acknowledged']} acknowledged writes were lost or altered"]
