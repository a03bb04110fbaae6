"""The process that gets killed: writes in every way that the contract offers, and reports what it does.

Three threads share one open backend: two write plain and versioned namespaces of their own, batch by batch;
one saves through a SafeKeeper. Now and then all of it is closed and opened again, so that a kill may also hit
recovery, garbage collection and close.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import msgspec

from ckpt.contract.backend import Backend, Compacts
from ckpt.contract.registry import open_backend
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt.testing.crash_ledger import (
    Acknowledged,
    Broke,
    CommitReport,
    CrashLedger,
    Drop,
    Message,
    Save,
    Truncate,
    Write,
    WriterPhase,
    state_of,
    value_of,
)
from ckpt.testing.model import ModelNamespace

LENGTH = struct.Struct("<I")
"""Before each message in the pipe. A message is shorter than PIPE_BUF, so threads do not mix theirs."""
_KEYS = [b"key-%02d" % i for i in range(40)]
_KEPT_VERSIONS = 4
_OPERATIONS = 120
"""About how many writes each thread makes between two opens."""


class Reporter:
    """Tells the parent, through a pipe, what is about to be written and what was acknowledged."""

    def __init__(self, pipe: int, last_number: int) -> None:
        self._pipe = pipe
        self._numbers = itertools.count(last_number + 1)

    def number(self) -> int:
        """A number that no other write has."""
        return next(self._numbers)

    def say(self, message: Message) -> None:
        """Returns when the parent will read the message even if this process dies now."""
        data = msgspec.msgpack.encode(message)
        os.write(self._pipe, LENGTH.pack(len(data)) + data)


def write_until_killed(address: str, pipe: int, ledger: CrashLedger, seed: int) -> None:
    """Never returns normally; on an error it reports what happened."""
    reporter = Reporter(pipe, ledger.last_number)
    rng = random.Random(seed)
    try:
        while True:
            _one_life(address, reporter, ledger, rng)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        reporter.say(Broke(traceback.format_exc()[-3000:]))


def _one_life(address: str, reporter: Reporter, ledger: CrashLedger, rng: random.Random) -> None:
    reporter.say(WriterPhase("opening"))
    with open_backend(address) as backend, SafeKeeper(backend) as keeper:
        reporter.say(WriterPhase("writing"))
        jobs: list[Iterator[None]] = [
            _write(backend, reporter, f"plain-{i}", f"store-{i}", ledger, random.Random(rng.random()))
            for i in (1, 2)
        ]
        jobs.append(_save(keeper, reporter, random.Random(rng.random())))
        failures: list[BaseException] = []
        threads = [
            threading.Thread(target=_run, args=(job, rng.randrange(2 * _OPERATIONS), failures), daemon=True)
            for job in jobs
        ]
        for thread in threads:
            thread.start()
        if rng.random() < 0.3 and isinstance(backend, Compacts):
            backend.compact()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        reporter.say(WriterPhase("closing"))


def _run(job: Iterator[None], operations: int, failures: list[BaseException]) -> None:
    try:
        for _ in itertools.islice(job, operations):
            pass
    except BaseException as error:  # noqa: BLE001 - raised again where the threads are joined
        failures.append(error)


def _write(
    backend: Backend, reporter: Reporter, plain: str, store: str, ledger: CrashLedger, rng: random.Random
) -> Iterator[None]:
    """Batches of puts and deletes, commits with retries and branches, truncations, drops; one per step."""
    space = ledger.versioned.setdefault(store, ModelNamespace())
    while True:
        number = reporter.number()
        puts = rng.sample(_KEYS, rng.randrange(1, 8))
        deletes = [key for key in rng.sample(_KEYS, 3) if key not in puts]
        choice = rng.random()
        if choice < 0.55:
            reporter.say(Write(number, plain, puts, []))
            backend.put_many(plain, {key: value_of(number, key) for key in puts})
        elif choice < 0.65:
            reporter.say(Write(number, plain, [], deletes))
            backend.delete_many(plain, deletes)
        elif choice < 0.66:
            reporter.say(Drop(number, plain))
            backend.drop(plain)
        elif choice < 0.92 or not space.commits:
            _commit(backend, reporter, store, space, CommitReport(number, store, 0, None, puts, deletes), rng)
        else:
            keep_from = max(space.truncated_below, space.tip_version - rng.randrange(_KEPT_VERSIONS))
            reporter.say(Truncate(number, store, keep_from))
            backend.truncate(store, keep_from)
            space.truncate(keep_from)
        reporter.say(Acknowledged(number))
        yield


def _commit(
    backend: Backend,
    reporter: Reporter,
    store: str,
    space: ModelNamespace,
    commit: CommitReport,
    rng: random.Random,
) -> None:
    version = space.tip_version + 1
    choice = rng.random()
    if choice < 0.1 and space.tip is not None and space.can_replace(space.tip_version):
        version = space.tip_version  # the same version again, as a retry makes it
    elif choice < 0.2 and (named := space.named()):
        commit.base = rng.choice(named)
        version = space.commits[commit.base].version + 1
    commit.version = version
    items = {key: value_of(commit.number, key) for key in commit.puts}
    reporter.say(commit)
    backend.commit(store, version, items, commit.deletes, base=commit.base, commit_id=commit.id)
    space.commit(commit.id, version, commit.base, items, commit.deletes)


def _save(keeper: SafeKeeper, reporter: Reporter, rng: random.Random) -> Iterator[None]:
    """Saves and deletes of a few hot keys, acknowledged whenever the keeper does."""
    namespace = keeper.namespace("saves")
    while True:
        number = reporter.number()
        key = rng.choice(_KEYS)
        deleted = rng.random() < 0.1
        reporter.say(Save(number, "saves", key, deleted))
        ack = namespace.delete(key) if deleted else namespace.save(key, state_of(number))
        ack.add_done_callback(partial(_acknowledge, reporter, number))
        if rng.random() < 0.2:
            ack.result()
        yield


def _acknowledge(reporter: Reporter, number: int, done: Future[None]) -> None:
    error = done.exception()
    reporter.say(Acknowledged(number) if error is None else Broke(f"save {number} failed: {error!r}"))
