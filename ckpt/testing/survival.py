"""Run steps on a store, then crash it everywhere and fail every system call: nothing acknowledged is lost.

A scenario is a list of steps, each a function of an open backend. After step k has returned, its effect must
survive; while step k+1 runs, each plain key may be as before or as after it, and each versioned namespace, as
a whole, too. Give commits explicit ids, so that two runs can be compared.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt.contract.backend import Backend
from ckpt.contract.disk import Disk
from ckpt.errors import CkptError
from ckpt.testing.crashes import crash_states
from ckpt.testing.disk import RecordingDisk
from ckpt.testing.faults import Fault, FaultyDisk, each_fault

Step = Callable[[Backend], object]
OpenStore = Callable[[str, Disk], Backend]
"""Opens the store in a directory on a disk."""


class _QuickDisk(Disk):
    """Syncs nothing: to look at what a crash or a fault has left, nothing need be durable."""

    def sync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class _QuickFaultyDisk(FaultyDisk, _QuickDisk):
    """Fails as it is told to, and syncs nothing otherwise."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a reader can see of a store."""

    plain: dict[tuple[str, bytes], bytes]
    versioned: dict[str, Any]
    """Per namespace: its commits, the state of each, the state of the tip."""


def observe(backend: Backend) -> Observation:
    """Read everything there is to read, in both ways that it can be read."""
    plain: dict[tuple[str, bytes], bytes] = {}
    versioned: dict[str, Any] = {}
    for name in backend.namespaces():
        state = dict(backend.scan(name))
        if backend.get_many(name, list(state)) != state:
            raise AssertionError(f"get_many and scan of {name!r} do not agree")
        commits = backend.versions(name)
        if commits:
            states = {c.id: dict(backend.scan(name, commit_id=c.id)) for c in commits}
            versioned[name] = (commits, states, state)
        else:
            plain |= {(name, key): value for key, value in state.items()}
    return Observation(plain, versioned)


EVERYTHING = slice(None)


def survives_crashes(
    open_store: OpenStore,
    steps: Sequence[Step],
    directory: str | os.PathLike[str],
    *,
    only: slice = EVERYTHING,
    **limits: int,
) -> int:
    """Check every crash state of the scenario and return how many; `limits` as in `crash_states`.

    `only` picks some of them, by their number.
    """
    place = os.path.join(directory, "recorded")
    os.mkdir(place)
    disk = RecordingDisk(place)
    backend = open_store(place, disk)
    disk.mark("opened")
    seen = [observe(backend)]
    for number, step in enumerate(steps):
        step(backend)
        disk.mark(f"step {number}")
        seen.append(observe(backend))
    backend.close()
    count = 0
    crashed = os.path.join(directory, "crashed")
    for state in itertools.islice(crash_states(disk, **limits), only.start, only.stop, only.step):
        count += 1
        os.mkdir(crashed)
        state.write_to(crashed)
        done = max(0, len(state.marks) - 1)
        _check(open_store, crashed, seen, done, str(state))
        shutil.rmtree(crashed)
    return count


def survives_faults(
    open_store: OpenStore,
    steps: Sequence[Step],
    directory: str | os.PathLike[str],
    *,
    only: slice = EVERYTHING,
) -> list[Fault]:
    """Fail each operation of the scenario in each way, check what is left, and return the faults.

    `only` picks some of them, by their number. A step may succeed or raise a CkptError. Whatever comes
    after, the store must open again on a healthy disk, hold what was acknowledged, verify clean and take
    writes.
    """
    place = os.path.join(directory, "faulty")
    seen: list[Observation] = []

    def run(disk: Disk, acknowledged: list[int]) -> None:
        backend = open_store(place, disk)
        acknowledged.append(0)
        try:
            for number, step in enumerate(steps, 1):
                step(backend)
                acknowledged.append(number)
        finally:
            with contextlib.suppress(CkptError):
                backend.close()

    def run_healthy(disk: FaultyDisk) -> None:
        os.mkdir(place)
        run(disk, [])
        shutil.rmtree(place)

    os.mkdir(place)
    backend = open_store(place, Disk())
    seen.append(observe(backend))
    for step in steps:
        step(backend)
        seen.append(observe(backend))
    backend.close()
    shutil.rmtree(place)
    faults = list(each_fault(run_healthy))[only]
    for fault in faults:
        os.mkdir(place)
        acknowledged: list[int] = []
        with contextlib.suppress(CkptError):
            run(_QuickFaultyDisk(fault), acknowledged)
        _check(open_store, place, seen, max(acknowledged, default=0), str(fault))
        shutil.rmtree(place)
    return faults


def _check(open_store: OpenStore, place: str, seen: list[Observation], done: int, story: str) -> None:
    """The store opens, holds the result of `done` steps and perhaps of one more, and takes writes."""
    try:
        with open_store(place, _QuickDisk()) as backend:
            found = observe(backend)
            wrong = [_difference(found, seen[done], seen[min(done + 1, len(seen) - 1)])]
            wrong += [f"verify reports {bad}" for bad in backend.verify()]
            backend.put_many("after the fall", {b"key": b"value"})
        with open_store(place, _QuickDisk()) as backend:
            again = observe(backend)
            if again.plain.pop(("after the fall", b"key"), None) != b"value" or again != found:
                wrong.append("after one more put and a reopen it shows something else")
    except (CkptError, OSError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    if any(wrong):
        reasons = "; ".join(filter(None, wrong))
        raise AssertionError(f"after {done} acknowledged steps, {story}, in {place}: {reasons}")


def _difference(found: Observation, before: Observation, after: Observation) -> str:
    """What of the store is neither as it was before a step nor as it was to be after it."""
    for cell in {*before.plain, *after.plain, *found.plain}:
        if found.plain.get(cell) not in (before.plain.get(cell), after.plain.get(cell)):
            return f"{cell} is neither what it was nor what it was to be"
    for name in {*before.versioned, *after.versioned, *found.versioned}:
        if found.versioned.get(name) not in (before.versioned.get(name), after.versioned.get(name)):
            return f"{name!r} is neither what it was nor what it was to be"
    return ""
