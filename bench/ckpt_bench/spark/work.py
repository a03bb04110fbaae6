"""One Spark session in a process of its own, doing one job: `python -m ckpt_bench.spark.work JOB`.

The job is JSON in the first argument; what it measures is one line of JSON each on standard output, which
nothing else writes to.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from ckpt_bench.processes import cpu_seconds
from ckpt_bench.spark.contestants import CONTESTANTS, OURS, files_below
from ckpt_bench.spark.jobs import Job
from ckpt_bench.spark.queries import FedQuery, Keys, add_input, open_session

_FILL_ROWS = 500_000
"""Most rows of a batch that fills a state."""

Say = Callable[..., None]


def batches(job: Job, say: Say) -> None:
    """Every provider gets the same batches, in turn, in an order that changes."""
    spark = open_session(job.session)
    queries = [
        FedQuery(spark, name, os.path.join(job.folder, name), job.session.partitions)
        for name in job.providers
    ]
    draw = np.random.default_rng(job.seed)
    for number in range(job.warmup + job.batches):
        keys = draw.integers(0, job.keys, job.rows)
        first = number % len(queries)
        for query in queries[first:] + queries[:first]:
            batch = query.feed(keys)
            files = _files(job.folder, query)
            say(provider=query.name, number=number - job.warmup, files=files, **asdict(batch))
    for query in queries:
        query.stop()
    spark.stop()


def fill(job: Job, say: Say) -> None:
    """One provider gets all keys, once each; it says so, and waits to be killed."""
    query = FedQuery(open_session(job.session), job.providers[0], job.folder, job.session.partitions)
    for piece in _pieces(job.keys):
        query.feed(piece)
    say(filled=job.keys)
    _wait_for_the_end()


def start(job: Job, say: Say) -> None:
    """A query is started on what its folder holds, takes one batch, and waits to be killed."""
    spark = open_session(job.session)
    # Before anything is timed: parts of Spark that are loaded once, the same for all.
    spark.range(1000).groupBy("id").count().write.format("noop").mode("overwrite").save()
    add_input(
        os.path.join(job.folder, "input"), np.random.default_rng(job.seed).integers(0, job.keys, job.rows)
    )
    began_s, began_cpu_s = time.time(), cpu_seconds(os.getpid())
    query = FedQuery(spark, job.providers[0], job.folder, job.session.partitions)
    batch = query.take(began_cpu_s)
    say(started_ms=round((batch.committed_at_s - began_s) * 1000), **asdict(batch))
    _wait_for_the_end()


def growth(job: Job, say: Say) -> None:
    """One provider, one query for each size of state; their batches take turns."""
    spark = open_session(job.session)
    name = job.providers[0]
    queries = [
        (size, FedQuery(spark, name, os.path.join(job.folder, f"{name}-{size}"), job.session.partitions))
        for size in job.sizes
    ]
    for size, query in queries:
        for piece in _pieces(size):
            query.feed(piece)
        say(provider=name, size=size, filled=True)
    draw = np.random.default_rng(job.seed)
    for number in range(job.warmup + job.batches):
        first = number % len(queries)
        for size, query in queries[first:] + queries[:first]:
            batch = query.feed(draw.integers(0, size, job.rows))
            say(provider=name, size=size, number=number - job.warmup, **asdict(batch))
    spark.stop()


def memory(job: Job, say: Say) -> None:
    """The heap that one provider's keys take, once everything was collected that can be."""
    spark = open_session(job.session)
    query = FedQuery(spark, job.providers[0], job.folder, job.session.partitions)
    query.feed(np.arange(job.session.partitions))
    before = _heap_bytes(spark)
    for piece in _pieces(job.keys):
        query.feed(piece)
    # A provider may keep more than one version: now each of them differs a little from the one before.
    for _ in range(job.batches):
        query.feed(np.arange(0, job.keys, 100))
    say(provider=job.providers[0], heap_bytes=_heap_bytes(spark) - before)
    spark.stop()


JOBS: dict[str, Callable[[Job, Say], None]] = {
    job.__name__: job for job in (batches, fill, start, growth, memory)
}


def _pieces(keys: int) -> Iterator[Keys]:
    """All keys in a few batches."""
    yield from np.array_split(np.arange(keys), max(-(-keys // _FILL_ROWS), 2))


def _files(folder: str, query: FedQuery) -> int:
    """Files that hold this query's state now."""
    if not CONTESTANTS[query.name].stateful:
        return 0
    return files_below(query.state, *([os.path.join(folder, "store")] if query.name == OURS else []))


def _heap_bytes(spark: Any) -> int:
    java = spark._jvm  # noqa: SLF001
    beans = java.java.lang.management.ManagementFactory
    used: list[int] = []
    # Until nothing more goes: what waits for a finaliser needs a second time.
    while len(used) < 2 or used[-1] < used[-2] * 0.999:
        java.System.gc()
        used.append(beans.getMemoryMXBean().getHeapMemoryUsage().getUsed())
    return used[-1]


def _wait_for_the_end() -> None:
    sys.stdin.read()


def main() -> None:
    """Do the job, and leave standard output to what it says."""
    job = Job.decode(sys.argv[1])
    with os.fdopen(os.dup(1), "w") as said:
        os.dup2(2, 1)

        def say(**what: Any) -> None:
            said.write(f"{json.dumps(what)}\n")
            said.flush()

        JOBS[job.kind](job, say)


if __name__ == "__main__":
    main()
