"""A word-count operator in a process of its own, which saves as it is told and then waits to be killed.

It says one line of JSON when everything it was told is durable.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ckpt.keeper.acks import SaveResult
from ckpt.keeper.safekeeper import SafeKeeper
from ckpt_bench.reproduce.s4.default_fs import open_store

_FILL_RECORDS = 1000
_STATE_BYTES = 50


def word(number: int) -> str:
    """The word of a number; its key and state are about 70 bytes together."""
    return f"word-{number:08d}"


def stream(events: int, words: int, seed: int) -> list[str]:
    """Every word equally often, in no order.

    Examples
    --------
    >>> sorted(Counter(stream(6, 3, seed=1)).values())
    [2, 2, 2]
    """
    chosen = [word(number % words) for number in range(events)]
    random.Random(seed).shuffle(chosen)
    return chosen


def count_words(address: str, namespace: str, events: int, words: int, rate: float, seed: int) -> None:
    """Checkpoint the count of a word at each of its events, at a rate; how long until each was durable.

    And how much further behind that rate the last acknowledgement was than the first: the backlog.
    """
    waiting: dict[bytes, deque[float]] = {}
    took_ms: list[float] = []
    durable_s: list[float] = []
    failed: list[str] = []

    def acknowledged(result: SaveResult) -> None:
        started_s = waiting[result.key].popleft()
        if result.error is None:
            durable_s.append(time.perf_counter())
            took_ms.append((durable_s[-1] - started_s) * 1000)
        else:
            failed.append(str(result.error))

    counts: Counter[str] = Counter()
    with open_store(address) as backend, SafeKeeper(backend, on_result=acknowledged) as keeper:
        states = keeper.namespace(namespace)
        began_s = time.perf_counter()
        for number, each in enumerate(stream(events, words, seed)):
            counts[each] += 1
            time.sleep(max(began_s + number / rate - time.perf_counter(), 0))
            waiting.setdefault(each.encode(), deque()).append(time.perf_counter())
            states.save(each, {"word": each, "count": counts[each]})
        keeper.flush()
        behind_s = durable_s[-1] - durable_s[0] - (events - 1) / rate if durable_s else 0
        _say({"write_ms": took_ms, "behind_ms": behind_s * 1000, "failed": failed})


def fill(address: str, namespace: str, words: int) -> None:
    """Put a state for each word, in batches."""
    choose = random.Random(words)
    backend = open_store(address)
    for start in range(0, words, _FILL_RECORDS):
        numbers = range(start, min(start + _FILL_RECORDS, words))
        backend.put_many(
            namespace, {word(number).encode(): choose.randbytes(_STATE_BYTES) for number in numbers}
        )
    _say({"states": words})


_JOBS: dict[str, Callable[..., None]] = {"count_words": count_words, "fill": fill}


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 - this is what the process is for
    # Whoever started this kills it now. If that process is gone, stdin is at its end.
    sys.stdin.read()


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    _JOBS[job.pop("job")](**job)
