"""Gives turns: at each number of keys every store is filled, used, killed, recovered, opened and collected.

Within a phase stores take turns in an order that chance decides, so that whatever else the machine does hits
all alike. A store that has used up its time in a phase has had its last round of it.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ckpt_bench.compare.turns import Job, Sizes
from ckpt_bench.failing import StoreError
from ckpt_bench.growth.cell import Cell
from ckpt_bench.growth.process import CellProcess
from ckpt_bench.processes import Memory

Step = Callable[[int, str, str], object]
"""Told the number of keys, the phase and the store."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    keys: Sequence[int] = (10_000, 100_000, 1_000_000)
    rounds: int = 20
    """Of puts, gets and opening."""
    long_rounds: int = 5
    """Of what takes the longer, the more keys there are: recovery and garbage collection."""
    budget_s: float = 20.0
    """A store begins no round of a phase after so long."""
    calls: int = 20
    """In one round."""
    records: int = 100
    """Of one call."""
    value_bytes: int = 100


QUICK = Plan(keys=(500, 2000), rounds=2, long_rounds=1, budget_s=1.0, calls=2)
"""Shows that everything works, and nothing about speed."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A store that takes part."""

    name: str
    folder: str
    """On the disk where it is to be."""
    address: str | None = None
    """Of one of ckpt's backends, with options; where it says is `folder`."""


@dataclass
class Found:
    """What was measured so far: also if that was interrupted."""

    samples: dict[tuple[str, int, str], list[float]] = field(default_factory=dict)
    """(operation, keys, store) → seconds of one operation, or bytes for each key, round by round."""
    faults: list[str] = field(default_factory=list)

    def add(self, operation: str, store: str, keys: int, value: float) -> None:
        self.samples.setdefault((operation, keys, store), []).append(value)


class Growth:
    """Measures stores, one number of keys after the other."""

    def __init__(self, stores: Sequence[Contestant], plan: Plan, seed: int, found: Found, step: Step) -> None:
        self._stores, self._plan, self._seed = stores, plan, seed
        self._found, self._step = found, step
        self._order = random.Random(seed)

    def run(self) -> None:
        """All of it."""
        for keys in self._plan.keys:
            _Size(keys, self._stores, self._plan, self._seed, self._found, self._step, self._order).run()


class _Size:
    """One number of keys."""

    def __init__(
        self,
        keys: int,
        stores: Sequence[Contestant],
        plan: Plan,
        seed: int,
        found: Found,
        step: Step,
        order: random.Random,
    ) -> None:
        self._keys, self._plan, self._found, self._step, self._order = keys, plan, found, step, order
        sizes = Sizes(keys, plan.rounds, plan.calls, plan.records, plan.value_bytes)
        self._jobs = {
            each.name: Job(
                "growth",
                each.name,
                os.path.join(each.folder, f"{number}-{keys}"),
                False,
                sizes,
                seed,
                each.address,
            )
            for number, each in enumerate(stores)
        }
        self._processes: dict[str, CellProcess] = {}
        self._empty: dict[str, Memory] = {}

    def run(self) -> None:
        try:
            self._phase("fill", self._fill, 1)
            self._phase("put and get", self._use, self._plan.rounds)
            self._phase("kill", self._kill, 1)
            self._phase("recover", self._recover, self._plan.long_rounds)
            self._phase("close", self._settle, 1)
            self._phase("open", self._open, self._plan.rounds)
            self._phase("collect garbage", self._collect, self._plan.long_rounds)
            self._phase("leave", self._leave, 1)
        finally:
            for name in list(self._jobs):
                self._remove(name)

    def _phase(self, what: str, do: Callable[[str, int], None], rounds: int) -> None:
        spent_s = dict.fromkeys(self._jobs, 0.0)
        for number in range(rounds):
            turns = [name for name in self._jobs if spent_s[name] <= self._plan.budget_s]
            self._order.shuffle(turns)
            for name in turns:
                self._step(self._keys, what, name)
                began_s = time.monotonic()
                try:
                    do(name, number)
                except StoreError as error:
                    self._found.faults.append(
                        f"{name} failed at {self._keys:,} keys ({what}) and is left out there: {error}"
                    )
                    self._remove(name)
                spent_s[name] += time.monotonic() - began_s

    # -- what is done in a phase -----------------------------------------------------------------

    def _fill(self, name: str, number: int) -> None:
        del number
        self._processes[name] = CellProcess(self._jobs[name])
        self._empty[name] = self._processes[name].ask(Cell.fill)

    def _use(self, name: str, number: int) -> None:
        for operation, turn in (("put", Cell.put), ("get", Cell.get)):
            took = self._processes[name].ask(turn, number)
            self._add(operation, name, took.seconds / took.operations)

    def _kill(self, name: str, number: int) -> None:
        del number
        full, empty = self._processes[name].ask(Cell.memory), self._empty[name]
        self._processes.pop(name).kill()
        self._add("memory", name, (full.resident_bytes - empty.resident_bytes) / self._keys)
        self._add("own-memory", name, (full.own_bytes - empty.own_bytes) / self._keys)

    def _recover(self, name: str, number: int) -> None:
        # Opening changes what a crash left, so each round has its own.
        job = self._jobs[name]
        copy = f"{job.folder}-copy"
        try:
            shutil.copytree(job.folder, copy)
            os.sync()  # so that the recovery does not wait for what the copy has left to write
            process = self._processes[name] = CellProcess(job)
            first_s, all_s = process.ask(Cell.recover, copy, number)
            self._processes.pop(name).end()
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        self._add("recover", name, first_s)
        self._add("recover-all", name, all_s)

    def _settle(self, name: str, number: int) -> None:
        self._processes[name] = CellProcess(self._jobs[name])
        self._processes[name].ask(Cell.open, number)

    def _open(self, name: str, number: int) -> None:
        self._add("open", name, self._processes[name].ask(Cell.open, number))

    def _collect(self, name: str, number: int) -> None:
        self._add("gc", name, self._processes[name].ask(Cell.collect, number))

    def _leave(self, name: str, number: int) -> None:
        del number
        self._add("disk", name, self._processes[name].ask(Cell.disk) / self._keys)
        self._processes.pop(name).end()

    def _add(self, operation: str, name: str, value: float) -> None:
        self._found.add(operation, name, self._keys, value)

    def _remove(self, name: str) -> None:
        """End its process, if it has one, and leave nothing of it."""
        if name in self._processes:
            self._processes.pop(name).kill()
        shutil.rmtree(self._jobs.pop(name).folder, ignore_errors=True)
