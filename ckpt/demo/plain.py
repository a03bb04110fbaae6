"""A word count that is killed with `kill -9` and ends with every count exact; also a pattern to copy.

It runs on a SafeKeeper, without Spark.

What makes it exact is in the state. The state of a word is its count and the offset of the last event that
it counts, so count and offset become durable together. Checkpoints of different words are written at
different times, so after a crash each word is as new as its own checkpoint. The *safe position* is an offset
below which every event is in a durable checkpoint; it is saved after a barrier. On restart the stream is
replayed from the safe position, and a word skips the events that its checkpoint has counted already.

```
offset     0 ················ safe position ················ killed
"be"       counted ──────────────────────────▶ offset 61     skips up to 61, counts the rest again
"or"       counted ─────────▶ offset 44                      counts everything after the safe position
```
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from ckpt.contract.registry import open_backend
from ckpt.demo.words import BLOCK, counts, stream
from ckpt.errors import ConfigError
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt.values.envelope import ValueCodec

WORDS, POSITION = "ckpt-demo-words", "ckpt-demo-position"
_BARRIER = 10 * BLOCK
"""Events between two barriers that move the safe position."""
MIN_EVENTS = _BARRIER


class WorkerReport(msgspec.Struct, tag_field="kind", tag="report"):
    """What a worker says about itself, one line of JSON each."""

    offset: int
    """Events below this one are counted, in memory at least."""
    safe: int
    """Events below this one are in durable checkpoints."""
    skipped: int
    """Replayed events that a checkpoint had counted already."""


@dataclass(frozen=True, slots=True)
class WordCountResult:
    """What the demo showed."""

    events: int
    words: int
    killed_at: int
    """The last offset that the first worker reported before it was killed."""
    resumed_at: int
    """The safe position that the second worker found."""
    skipped: int
    wrong: tuple[str, ...]
    """Words whose count is not exact."""
    top: tuple[tuple[str, int, int], ...]
    """The most frequent words: counted, and expected."""

    @property
    def exact(self) -> bool:
        """Every count is what it would have been without the crash."""
        return not self.wrong


def count(address: str, seed: int, events: int, report: Callable[[WorkerReport], None]) -> None:
    """Count the words of the stream, from wherever an earlier worker got to."""
    with SafeKeeper(address) as keeper:
        words = keeper.namespace(WORDS, every_events=8)
        position = keeper.namespace(POSITION)
        offset = safe = int(position.load("safe", 0))
        skipped = 0
        report(WorkerReport(offset, safe, skipped))
        for block in stream(seed, offset, events):
            for word in block:
                counted, last = words.load(word, (0, -1))
                if offset > last:
                    words.update(word, (counted + 1, offset))
                else:
                    skipped += 1
                offset += 1
            if offset % _BARRIER == 0 or offset == events:
                keeper.checkpoint()
                keeper.flush()  # every count up to here is durable …
                position.save("safe", offset).result()  # … so this may say so
                safe = offset
            report(WorkerReport(offset, safe, skipped))


def run(
    address: str,
    *,
    seed: int,
    events: int,
    on_report: Callable[[WorkerReport], None] = lambda _: None,
    on_kill: Callable[[int], None] = lambda _: None,
) -> WordCountResult:
    """Run a worker, kill it with SIGKILL in the middle, run another to the end, and compare every count."""
    if events < MIN_EVENTS:
        raise ConfigError(f"the demo needs at least {MIN_EVENTS} events, got {events}")
    _require_room(address)
    killed_at = 0
    # Well after a barrier, so that there is something to replay and something to skip.
    kill_at = events // 2 // _BARRIER * _BARRIER + 6 * BLOCK
    with _Worker(address, seed, events, hold_at=kill_at + BLOCK) as first:
        for report in first.reports():
            on_report(report)
            killed_at = report.offset
            if report.offset >= kill_at:
                first.kill()
                on_kill(killed_at)
                break
    resumed: WorkerReport | None = None
    skipped = 0
    with _Worker(address, seed, events, hold_at=None) as second:
        for report in second.reports():
            resumed = resumed or report
            skipped = report.skipped
            on_report(report)
        second.require_success()
    expected = counts(seed, events)
    counted = _counts(address)
    differing = {word for word in expected | counted if expected[word] != counted[word]}
    return WordCountResult(
        events=events,
        words=len(expected),
        killed_at=killed_at,
        resumed_at=resumed.offset if resumed else 0,
        skipped=skipped,
        wrong=tuple(sorted(differing)),
        top=tuple((word, counted[word], number) for word, number in expected.most_common(5)),
    )


def _counts(address: str) -> Counter[str]:
    """What the checkpoints say, read without the SafeKeeper that wrote them."""
    codec = ValueCodec()
    with open_backend(address) as backend:
        states = {
            key.decode(): codec.decode(value, namespace=WORDS, key=key) for key, value in backend.scan(WORDS)
        }
    return Counter({word: counted for word, (counted, _) in states.items()})


def _require_room(address: str) -> None:
    with open_backend(address) as backend:
        if not backend.capabilities.persistent:
            raise ConfigError(f"{backend.address} does not outlive a process; try log:///tmp/ckpt-demo")
        taken = sorted({WORDS, POSITION} & set(backend.namespaces()))
        if taken:
            raise ConfigError(
                f"{backend.address} holds namespace {taken[0]!r} of an earlier demo; "
                f"choose another address, or drop it with `ckpt drop`"
            )


class _Worker:
    """A child process that counts; it is gone when the context ends."""

    def __init__(self, address: str, seed: int, events: int, *, hold_at: int | None) -> None:
        # At `hold_at` it waits, so that it cannot finish before it is killed, however busy the machine is.
        arguments = [address, str(seed), str(events), str(hold_at or 0)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ckpt.demo.plain", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the parent, which ends its worker
        )

    def reports(self) -> Iterator[WorkerReport]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield msgspec.json.decode(line, type=WorkerReport)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def require_success(self) -> None:
        if self._process.wait() != 0:
            raise ConfigError(f"the demo's worker ended with exit code {self._process.returncode}; see above")

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _work(address: str, seed: int, events: int, hold_at: int) -> None:
    held = hold_at == 0

    def report(now: WorkerReport) -> None:
        nonlocal held
        os.write(1, msgspec.json.encode(now) + b"\n")
        if not held and now.offset >= hold_at:
            held = True
            os.read(0, 1)

    count(address, seed, events, report)


if __name__ == "__main__":
    _work(sys.argv[1], *map(int, sys.argv[2:5]))
