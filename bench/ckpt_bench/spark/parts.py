"""The parts of the comparison: what each asks of workers, and the figures it makes of their answers.

| part | question |
| --- | --- |
| `batches` | how long does a micro-batch take, beside the others and the stateless floor? |
| `restart` | what does a state cost when a killed query starts again? |
| `growth` | does a commit take longer when the state is larger? |
| `memory` | how much heap does a key take? |
| `files` | does the number of files grow with partitions or batches? |

Figures are plain data (`ckpt bench spark --json`), which `ckpt_bench.spark.present` shows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ckpt_bench.spark.contestants import CONTESTANTS
from ckpt_bench.spark.jobs import Job, SessionSpec
from ckpt_bench.spark.workers import Worker

_FLOOR = "nothing"
"""The contestant that no provider can start sooner than."""

Step = Callable[[str], None]
"""Is told what was done last; called as often as the part has steps."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large the comparison is, and where it runs."""

    folder: str
    address: str | None
    """Where ckpt keeps state; None: in an indexed log below the folder."""
    providers: tuple[str, ...]
    master: str = "local[*]"
    memory: str = "6g"
    partitions: int = 200
    rows: int = 100_000
    keys: int = 1_000_000
    batches: int = 8
    warmup: int = 3
    restart_keys: int = 2_000_000
    restart_rows: int = 1000
    rounds: int = 3
    sizes: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)

    @property
    def stateful(self) -> tuple[str, ...]:
        """The providers without the floors."""
        return tuple(name for name in self.providers if CONTESTANTS[name].stateful)

    def session(self, folder: str, partitions: int | None = None) -> SessionSpec:
        """A session whose state, if it is ckpt's, is in the folder."""
        address = self.address or f"log://{os.path.join(folder, 'store')}"
        return SessionSpec(self.master, self.memory, partitions or self.partitions, address)

    @contextmanager
    def place(self, name: str) -> Iterator[str]:
        """A folder of its own for one thing, removed when that is done: states are large."""
        folder = os.path.join(self.folder, name)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def worker(self, job: Job) -> Iterator[Worker]:
        """A worker that is gone afterwards; its log stays as long as the plan's folder."""
        os.makedirs(job.folder, exist_ok=True)
        with open(os.path.join(self.folder, "worker.log"), "ab") as log, Worker(job, log) as worker:
            yield worker


@dataclass(frozen=True, slots=True)
class Part:
    """One question: how many steps its answer takes, and how to find it."""

    name: str
    steps: Callable[[Plan], int]
    measure: Callable[[Plan, Step], dict[str, Any]]


# -- batches -------------------------------------------------------------------------------------


def _batches(plan: Plan, step: Step) -> dict[str, Any]:
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in plan.providers}
    with plan.place("batches") as folder:
        job = Job(
            "batches",
            plan.session(folder),
            folder,
            plan.providers,
            rows=plan.rows,
            keys=plan.keys,
            batches=plan.batches,
            warmup=plan.warmup,
        )
        with plan.worker(job) as worker:
            for said in worker.said():
                if said["number"] >= 0:
                    figures[said["provider"]].append(_without(said, "provider", "number"))
                step(f"{said['provider']}: {said['took_ms']:,} ms")
    return {
        "partitions": plan.partitions,
        "rows": plan.rows,
        "keys": plan.keys,
        "batches": plan.batches,
        "providers": figures,
    }


# -- restart -------------------------------------------------------------------------------------


def _restart(plan: Plan, step: Step) -> dict[str, Any]:
    figures: dict[str, dict[str, list[int]]] = {
        name: {"empty_ms": [], "restarted_ms": []} for name in plan.stateful
    }
    floor_ms: list[int] = []
    with plan.place("restart") as folder:
        for name in plan.stateful:
            filled = os.path.join(folder, name)
            job = Job("fill", plan.session(filled), filled, (name,), keys=plan.restart_keys)
            with plan.worker(job) as worker:
                worker.first()
                worker.kill()
            step(f"{name}: filled and killed")
        for number in range(plan.rounds):
            floor_ms.append(_start(plan, _FLOOR, os.path.join(folder, f"{_FLOOR}-{number}"), number))
            step(f"{_FLOOR}: {floor_ms[-1]:,} ms")
            first = number % len(plan.stateful)
            for name in plan.stateful[first:] + plan.stateful[:first]:
                empty = os.path.join(folder, f"{name}-empty-{number}")
                for what, where in (("empty_ms", empty), ("restarted_ms", os.path.join(folder, name))):
                    took_ms = _start(plan, name, where, number)
                    figures[name][what].append(took_ms)
                    step(f"{name}: {what.removesuffix('_ms')}, {took_ms:,} ms")
    return {
        "partitions": plan.partitions,
        "keys": plan.restart_keys,
        "floor_ms": floor_ms,
        "providers": figures,
    }


def _start(plan: Plan, name: str, folder: str, number: int) -> int:
    job = Job(
        "start",
        plan.session(folder),
        folder,
        (name,),
        rows=plan.restart_rows,
        keys=plan.restart_keys,
        seed=number,
    )
    os.sync()  # nobody's first commit is to wait until what others have left behind is on disk
    with plan.worker(job) as worker:
        started_ms: int = worker.first()["started_ms"]
        worker.kill()
    return started_ms


# -- growth --------------------------------------------------------------------------------------


def _growth(plan: Plan, step: Step) -> dict[str, Any]:
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in plan.stateful:
        figures[name] = {str(size): [] for size in plan.sizes}
        with plan.place("growth") as folder:
            job = Job(
                "growth",
                plan.session(folder),
                folder,
                (name,),
                rows=plan.rows,
                batches=plan.batches,
                warmup=plan.warmup,
                sizes=plan.sizes,
            )
            with plan.worker(job) as worker:
                for said in worker.said():
                    if said.get("number", -1) >= 0:
                        found = figures[name][str(said["size"])]
                        found.append(_without(said, "provider", "size", "number"))
                    step(f"{name}: {said['size']:,} keys")
    return {"partitions": plan.partitions, "rows": plan.rows, "providers": figures}


# -- memory --------------------------------------------------------------------------------------


def _memory(plan: Plan, step: Step) -> dict[str, Any]:
    figures = {}
    for name in plan.stateful:
        with plan.place("memory") as folder:
            job = Job("memory", plan.session(folder), folder, (name,), keys=plan.keys, batches=3)
            with plan.worker(job) as worker:
                figures[name] = worker.first()["heap_bytes"] / plan.keys
        step(f"{name}: {figures[name]:.0f} bytes of heap a key")
    return {"partitions": plan.partitions, "keys": plan.keys, "heap_bytes_per_key": figures}


# -- files ---------------------------------------------------------------------------------------


def _files(plan: Plan, step: Step) -> dict[str, Any]:
    figures: dict[str, list[dict[str, int]]] = {name: [] for name in plan.stateful}
    for partitions in _few_and_all(plan):
        with plan.place("files") as folder:
            session = plan.session(folder, partitions)
            rows = 10 * partitions
            job = Job("batches", session, folder, plan.stateful, rows=rows, keys=rows, batches=plan.batches)
            with plan.worker(job) as worker:
                for said in worker.said():
                    batches = said["number"] + 1
                    if batches in (-(-plan.batches // 2), plan.batches):
                        figures[said["provider"]].append(
                            {"partitions": partitions, "batches": batches, "files": said["files"]}
                        )
                    step(f"{said['provider']}: {said['files']:,} files")
    return {"providers": figures}


def _few_and_all(plan: Plan) -> tuple[int, ...]:
    return max(plan.partitions // 10, 1), plan.partitions


def _without(said: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name not in names}


PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("batches", lambda p: (p.warmup + p.batches) * len(p.providers), _batches),
        Part("restart", lambda p: len(p.stateful) * (1 + 2 * p.rounds) + p.rounds, _restart),
        Part("growth", lambda p: len(p.stateful) * len(p.sizes) * (1 + p.warmup + p.batches), _growth),
        Part("memory", lambda p: len(p.stateful), _memory),
        Part("files", lambda p: len(_few_and_all(p)) * p.batches * len(p.stateful), _files),
    )
}
"""Name → part, in the order in which they run."""
