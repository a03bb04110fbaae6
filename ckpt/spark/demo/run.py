"""Runs the demo: starts its Spark application, kills it in the middle of a batch, starts it again, compares.

The counts are compared with a count of the same words that knows nothing of Spark.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import msgspec

from ckpt.contract.registry import open_backend
from ckpt.demo import words
from ckpt.dev import processes, tools
from ckpt.errors import CkptError, ConfigError
from ckpt.spark.demo.messages import CKPT, QUERIES, Done, Ended, Failed, Halfway, Job, Message, Started
from ckpt.spark.jar import LEAST_JAVA, provider_jar, spark_home

_VOCABULARY = 100_000
_SHOWN_LINES = 15
MIN_BATCHES = 4
"""So that there are batches in a warm JVM before the kill and after it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the demo counts, and how Spark divides the work."""

    events: int = 200_000
    seed: int = 1
    batches: int = 6
    partitions: int = 40

    def __post_init__(self) -> None:
        if self.batches < MIN_BATCHES or self.events < self.batches or self.partitions < 2:
            raise ConfigError(
                f"the demo needs at least {MIN_BATCHES} batches, a word in each and 2 partitions; "
                f"got {self.batches} batches of {self.events} words and {self.partitions} partitions"
            )

    @property
    def killed_in(self) -> int:
        """The batch in which the application is killed; in an even one the query on ckpt goes first."""
        return self.batches // 4 * 2

    def offsets(self, batch: int) -> tuple[int, int]:
        """The offset of the first word of a batch, and of the first after it."""
        return self.events * batch // self.batches, self.events * (batch + 1) // self.batches


@dataclass(frozen=True, slots=True)
class Step:
    """Something that has just happened, for whoever looks on."""

    says: str
    done: Done | None = None
    """The batch that was finished, if that is what happened."""
    warm: bool = False
    """Whether the batch counts: the first of each query in a JVM compiles the query."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo showed."""

    settings: Settings
    spark: str
    words: int
    recovered: int
    """Words whose counts the query had when it was killed, and found again."""
    committed: int
    """Partitions that had committed the batch in which the application was killed."""
    restart_s: float
    """From the restart until that batch was done."""
    spark_start_s: float
    """From the restart until Spark was there."""
    wrong: tuple[str, ...]
    """Words whose count is not exact."""
    top: tuple[tuple[str, int, int], ...]
    """The most frequent words: counted, and expected."""
    batch_ms: dict[str, list[float]] = field(default_factory=dict)
    """How long each batch took on which provider, without the first of each JVM."""

    @property
    def exact(self) -> bool:
        """Every count is what it would have been without the crash."""
        return not self.wrong

    def median_ms(self, query: str) -> float:
        """The batch that half of the others are faster than."""
        return statistics.median(self.batch_ms[query])


class DemoError(CkptError):
    """The Spark application did not come to its end."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said
        """The last lines that Spark said."""


def require_spark() -> str:
    """The version of the Spark that the demo would run on; ConfigError if it cannot run here."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("pyspark is not installed; install it with: pip install 'ckpt[spark]'")
    tools.java("Spark", LEAST_JAVA)
    return spark_home().version


def run(address: str | None, settings: Settings, on_step: Callable[[Step], None]) -> Outcome:
    """Count words with Spark, kill it in the middle of a batch, go on, and compare every count.

    Without an address the state goes to an indexed log in a temporary folder.
    """
    version = require_spark()
    provider_jar(report=lambda line: on_step(Step(line)))
    with tempfile.TemporaryDirectory(prefix="ckpt-demo-") as folder:
        address = address or f"log://{folder}/log"
        _require_durable(address)
        on_step(Step("writing the words"))
        _write_words(folder, settings)
        expected = words.counts(settings.seed, settings.events, vocabulary=_VOCABULARY)
        batches = _Batches()

        def job(first: int, hold_in: int | None) -> Job:
            return Job(address, folder, settings.batches, settings.partitions, first, hold_in)

        on_step(Step(f"starting Spark {version}"))
        committed = 0
        with _Application(job(0, settings.killed_in)) as application:
            for message in application.messages():
                if isinstance(message, Done):
                    on_step(batches.add(message))
                elif isinstance(message, Halfway):
                    committed = message.partitions
                    break
            application.kill()
        at = f"batch {settings.killed_in + 1}, committed by {committed} of {settings.partitions} partitions"
        on_step(Step(f"kill -9 of driver, JVM and sidecar in {at}; starting Spark again"))
        recovered, began = batches.words_in_state, time.monotonic()
        restart_s = spark_start_s = 0.0
        batches.next_jvm()
        with _Application(job(settings.killed_in, None)) as application:
            for message in application.messages():
                if isinstance(message, Started):
                    spark_start_s = time.monotonic() - began
                elif isinstance(message, Done):
                    if message.query == CKPT and message.batch == settings.killed_in:
                        restart_s = time.monotonic() - began
                    on_step(batches.add(message))
        counted = {query: _counts(folder, query, settings.batches) for query in QUERIES}
    differing = {
        word for there in counted.values() for word in expected | there if expected[word] != there[word]
    }
    return Outcome(
        settings=settings,
        spark=version,
        words=len(expected),
        recovered=recovered,
        committed=committed,
        restart_s=restart_s,
        spark_start_s=spark_start_s,
        wrong=tuple(sorted(differing)),
        top=tuple((word, counted[CKPT][word], number) for word, number in expected.most_common(5)),
        batch_ms=batches.warm_ms,
    )


class _Batches:
    """How long batches took in a warm JVM, which has done a batch of the query before."""

    def __init__(self) -> None:
        self.warm_ms: dict[str, list[float]] = {query: [] for query in QUERIES}
        self.words_in_state = 0
        self._warm: set[str] = set()

    def next_jvm(self) -> None:
        self._warm.clear()

    def add(self, done: Done) -> Step:
        warm = done.query in self._warm
        if warm:
            self.warm_ms[done.query].append(done.ms)
        self._warm.add(done.query)
        if done.query == CKPT:
            self.words_in_state = done.words
        return Step(f"batch {done.batch + 1}", done, warm)


class _Application:
    """The Spark application as a child process; nothing of it is left when the context ends."""

    def __init__(self, job: Job) -> None:
        self._log = os.path.join(job.folder, "spark.log")
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ckpt.spark.demo.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "JAVA_HOME": _java_home(),
                    "PYSPARK_PYTHON": sys.executable,
                    "TMPDIR": job.folder,  # what a killed PySpark leaves behind goes with the folder
                },
                process_group=0,  # Ctrl-C is for the parent, which ends the application
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then it has said why
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()

    def messages(self) -> Iterator[Message]:
        """What the application reports until all is done; DemoError if that does not come."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = msgspec.json.decode(line, type=Message)
            if isinstance(message, Ended):
                return
            if isinstance(message, Failed):
                raise DemoError(f"the demo's Spark application failed: {message.message}", self._said())
            yield message
        code = self._process.wait()
        raise DemoError(f"the demo's Spark application ended with exit code {code}", self._said())

    def kill(self) -> None:
        """End it with SIGKILL, with every process that it has started."""
        # The sidecar left the process group: it may serve others, too.
        processes.kill_tree(self._process)

    def _said(self) -> str:
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return "\n".join(file.read().strip().splitlines()[-_SHOWN_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _java_home() -> str:
    """A Java that Spark can use, which need not be the first of the PATH."""
    return os.path.dirname(os.path.dirname(os.path.realpath(tools.java("Spark", LEAST_JAVA))))


def _require_durable(address: str) -> None:
    with open_backend(address) as backend:
        if not backend.capabilities.persistent:
            raise ConfigError(f"{backend.address} does not outlive a process; try log:///tmp/ckpt-demo")


def _write_words(folder: str, settings: Settings) -> None:
    os.mkdir(os.path.join(folder, "words"))
    for batch in range(settings.batches):
        start, stop = settings.offsets(batch)
        blocks = words.stream(settings.seed, start, stop, vocabulary=_VOCABULARY)
        with open(os.path.join(folder, "words", f"{batch:04}.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for block in blocks for word in block)


def _counts(folder: str, query: str, batches: int) -> Counter[str]:
    """What a query has put out, the newest count of each word."""
    newest: dict[str, int] = {}
    for batch in range(batches):
        with open(os.path.join(folder, "out", query, f"{batch}.json"), "rb") as file:
            newest |= msgspec.json.decode(file.read(), type=dict[str, int])
    return Counter(newest)
