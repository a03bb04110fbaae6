"""Kill a writer with `kill -9`, again and again, and check every acknowledged write.

```
python -m ckpt.testing.crash --rounds 1000
python -m ckpt.testing.crash --rounds 50 --address file:///tmp/store --seed 7
```

Each round starts a process that writes to the store (`crash_writer`), kills it at a random instant, opens
the store again and compares it with what the process had reported (`crash_ledger`). The store is carried over
from round to round. On the first loss the seed is shown, the store is kept, and the exit code is 1.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ckpt.contract.addresses import parse_address
from ckpt.contract.backend import Backend
from ckpt.contract.registry import load_factory, open_backend
from ckpt.errors import CkptError, ConfigError
from ckpt.testing.crash_ledger import CrashLedger, Message, WriterPhase
from ckpt.testing.crash_writer import LENGTH, write_until_killed

_SMALL_LOG = "segment_bytes=64KiB&recent_records=200"
"""So that rotation, index flushes, merges and garbage collection happen in every round."""


class LossError(AssertionError):
    """The store is not what it must be."""


@dataclass(slots=True)
class KillCounts:
    """What all rounds together did."""

    rounds: int = 0
    acknowledged: int = 0
    survivors: int = 0
    """Writes found in the store that were under way when the writer was killed."""
    killed_while: Counter[str] = field(default_factory=Counter)


def kill_rounds(
    address: str,
    rounds: int,
    *,
    seed: int = 0,
    seconds_per_round: float = 0.25,
    on_round: Callable[[KillCounts], object] = lambda _: None,
) -> KillCounts:
    """Kill a writer to the store at `address` that many times; raises LossError on the first loss.

    The store must be new. Call it from a process without other threads: it forks.
    """
    rng = random.Random(seed)
    ledger = CrashLedger()
    outcome = KillCounts()
    for number in range(1, rounds + 1):
        moment = _choose_moment(rng, number, seconds_per_round)
        problems: list[str] = []
        try:
            _run_and_kill(address, ledger, rng.randrange(1 << 30), moment)
            killed_while = ledger.phase
            with _opened(address, ledger, read_only=rng.random() < 0.5) as backend:
                problems = [*ledger.compare(backend), *map(str, backend.verify())]
        except (AssertionError, CkptError) as error:
            raise LossError(f"round {number}: {error}") from error
        if problems:
            raise LossError(f"round {number}, killed while {killed_while}: " + "; ".join(problems[:5]))
        outcome.rounds = number
        outcome.acknowledged, outcome.survivors = ledger.acknowledged, ledger.survivors
        outcome.killed_while[killed_while] += 1
        on_round(outcome)
    return outcome


@dataclass(frozen=True, slots=True)
class _Moment:
    """When the writer is killed: after a delay, or soon after it has said that it enters a phase."""

    delay_s: float
    phase: str | None = None
    into_phase_s: float = 0.0


def _choose_moment(rng: random.Random, number: int, seconds_per_round: float) -> _Moment:
    if number % 3 == 1:  # by turns and not by chance, so that few rounds, too, kill a writer that writes
        return _Moment(8 * seconds_per_round, "writing", rng.random() * 0.01)
    choice = rng.random()
    if choice < 0.2:  # while the store is being opened, or has just begun to take writes
        return _Moment(rng.random() * 0.02)
    if choice < 0.35:
        return _Moment(8 * seconds_per_round, "closing", rng.random() * 0.01)
    return _Moment(rng.random() * seconds_per_round)


def _opened(address: str, ledger: CrashLedger, *, read_only: bool) -> Backend:
    """The store to look at; half of the time only as a reader, so that the next writer has to recover."""
    factory = load_factory(parse_address(address).scheme)
    if read_only and ledger.acknowledged and getattr(factory, "reads_need_mode", False):
        return open_backend(address, mode="read")
    return open_backend(address)


def _run_and_kill(address: str, ledger: CrashLedger, seed: int, moment: _Moment) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(address, writing, ledger, seed)
        os._exit(3)
    os.close(writing)
    try:
        for message in _messages(reading, moment, child):
            ledger.report(message)
    finally:
        os.close(reading)


def _messages(pipe: int, moment: _Moment, child: int) -> Iterator[Message]:
    """What the child says until it is killed, and what it had said by then."""
    deadline_s = time.monotonic() + moment.delay_s
    data = bytearray()
    decoder = msgspec.msgpack.Decoder(Message)
    alive = True
    while True:
        left_s = deadline_s - time.monotonic()
        if alive and (left_s <= 0 or not select.select([pipe], [], [], left_s)[0]):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            alive = False
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        data += chunk
        while len(data) >= LENGTH.size and len(data) >= LENGTH.size + LENGTH.unpack_from(data)[0]:
            end = LENGTH.size + LENGTH.unpack_from(data)[0]
            message = decoder.decode(bytes(data[LENGTH.size : end]))
            del data[:end]
            if moment.phase is not None and message == WriterPhase(moment.phase):
                deadline_s = min(deadline_s, time.monotonic() + moment.into_phase_s)
            yield message
    if alive:
        os.waitpid(child, 0)
        raise AssertionError("the writer ended by itself")


@click.command()
@click.option("--rounds", default=1000, show_default=True, help="How often the writer is killed.")
@click.option("--address", help="The store; it must not exist yet. Default: a log in a temporary folder.")
@click.option("--seed", type=int, help="Repeats the same kinds of writes and delays. Default: a random one.")
@click.option("--seconds-per-round", default=0.25, show_default=True, help="The longest life of a writer.")
def main(rounds: int, address: str | None, seed: int | None, seconds_per_round: float) -> None:
    """Kill a writer with `kill -9` at random instants and check that nothing acknowledged is lost."""
    console = Console()
    seed = random.SystemRandom().randrange(1 << 30) if seed is None else seed
    folder = tempfile.mkdtemp(prefix="ckpt-crash-") if address is None else None
    target = address or f"log://{folder}/log"
    if target.startswith("log://") and "?" not in target:
        target = f"{target}?{_SMALL_LOG}"
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[acknowledged]} acknowledged"),
    )
    try:
        if address is not None and os.path.exists(parse_address(address).path):
            raise ConfigError(f"{address} exists already; the rounds need a store of their own")
        # Without the refresh thread: a process that forks has one thread only.
        with Progress(*columns, console=console, auto_refresh=False) as progress:
            task = progress.add_task("kill -9", total=rounds, acknowledged=0)

            def show(outcome: KillCounts) -> None:
                progress.update(task, completed=outcome.rounds, acknowledged=outcome.acknowledged)
                if console.is_terminal:
                    progress.refresh()

            outcome = kill_rounds(
                target, rounds, seed=seed, seconds_per_round=seconds_per_round, on_round=show
            )
    except LossError as error:
        console.print(f"LOSS in {error}", markup=False, soft_wrap=True)
        console.print(f"seed {seed}; the store is kept: {target}", markup=False, soft_wrap=True)
        sys.exit(1)
    except CkptError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        sys.exit(2)
    if folder is not None:
        shutil.rmtree(folder)
    kills = ", ".join(f"{count} while {phase}" for phase, count in sorted(outcome.killed_while.items()))
    console.print(
        f"{outcome.rounds} kills ({kills}); {outcome.acknowledged} acknowledged writes, none lost; "
        f"{outcome.survivors} that were under way had become durable; seed {seed}",
        markup=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
