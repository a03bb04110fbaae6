"""Active and backup copies of each tuple: where they are sent, when they are applied, and in which order.

A tuple goes to the instance where its key is active and to those of the key's backups, as `Router` says. Only
the active instance passes on a result. The network delays each copy by itself, so copies arrive in another
order on each instance; a sorting buffer puts them right. The paper's three ways of synchronising replicas
(Definitions 3 to 5), each with what the one before has:

- `ORDER`: every replica applies tuples in the order of their timestamps, at its own pace. A backup may be
  behind its active instance, or ahead of it.
- `INPUT`: a tuple enters the buffers of all its replicas at once, when it has arrived at the last of them and
  they have told each other so. Replicas differ by their queues only.
- `PROCESS`: replicas apply a tuple together, when all of them have come to it. They never differ, and each
  waits for the slowest.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, I32
from ckpt.rebalance.routing import Router
from ckpt.rebalance.simulate.cluster import Network
from ckpt.rebalance.simulate.failing import Failure
from ckpt.rebalance.simulate.replicas.sorting import I64, released
from ckpt.rebalance.simulate.replicas.tuples import Tuples
from ckpt.rebalance.table import NO_BACKUP

Bool = npt.NDArray[np.bool_]


class Synchronisation(enum.StrEnum):
    """How far replicas of a key are kept together."""

    ORDER = "order"
    INPUT = "input"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Settings:
    """What instances and the network between them are like."""

    tuple_s: float = 1e-3
    """To apply one tuple, on the active instance or on a backup."""
    network: Network = field(default_factory=Network)
    jitter_s: float = 1e-3
    """Each copy of a tuple takes longer than the latency by this in the mean, independently (exponential)."""
    buffer_tuples: int = 32
    tuple_bytes: int = 64
    """State that a tuple adds to its key."""
    detect_s: float = 0.5
    """From a failure until the system knows of it."""
    checkpoint_s: float = 10.0
    """How often the state of all keys is stored; keys without replicas come back from there."""
    window_s: float = math.inf
    """How long a tuple stays part of its key's state."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("tuple_s", "jitter_s", "tuple_bytes", "detect_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be from 0, not {getattr(self, name)}")
        for name in ("checkpoint_s", "window_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Copies:
    """What became of every copy: one entry per tuple and instance, in the order in which they were applied.

    A copy that a failed instance did not get to apply has `done_s` = infinity.
    """

    tuples: Tuples
    router: Router
    settings: Settings
    failure: Failure | None
    number: I64
    """The tuple's."""
    instance: I32
    active: Bool
    """Whether its results are passed on."""
    done_s: F64

    @property
    def busy(self) -> F64:
        """What part of the time each instance works, up to the last tuple or its failure."""
        instances = self.router.table.instances
        applied = np.isfinite(self.done_s)
        work = np.bincount(self.instance[applied], minlength=instances) * self.settings.tuple_s
        return np.asarray(work / max(float(self.tuples.time_s[-1]), self.settings.tuple_s))

    @property
    def skew(self) -> float:
        """Copies of the instance that gets the most, over the mean."""
        counts = np.bincount(self.instance, minlength=self.router.table.instances)
        return float(counts.max() / counts.mean())

    @property
    def latency_s(self) -> F64:
        """Per tuple from its timestamp until the active instance has applied it."""
        taken = np.full(len(self.tuples), np.inf)
        at = np.flatnonzero(self.active)
        taken[self.number[at]] = self.done_s[at]
        return taken - self.tuples.time_s

    def history(self, key: int, instance: int) -> I64:
        """The tuples of a key in the order in which an instance has applied them: its state, and versions."""
        mine = (self.tuples.keys[self.number] == np.uint64(key)) & (self.instance == instance)
        return np.asarray(self.number[mine & np.isfinite(self.done_s)], np.int64)

    def version(self, key: int, instance: int, at_s: float) -> int:
        """How many tuples of a key an instance has applied by then."""
        mine = (self.tuples.keys[self.number] == np.uint64(key)) & (self.instance == instance)
        return int(np.count_nonzero(self.done_s[mine] <= at_s))


def replicate(
    tuples: Tuples,
    router: Router,
    synchronisation: Synchronisation,
    settings: Settings | None = None,
    failure: Failure | None = None,
) -> Copies:
    """The whole stream through all replicas; the same arguments give the same copies."""
    if not len(tuples):
        raise ConfigError("there are no tuples to replicate")
    settings = Settings() if settings is None else settings
    if failure is not None and not 0 <= failure.instance < router.table.instances:
        raise ConfigError(f"instance {failure.instance} cannot fail; there are {router.table.instances}")
    unique, inverse = np.unique(tuples.keys, return_inverse=True)
    places = router.route(unique)
    grid = np.column_stack([places.active, places.backups])[inverse]
    number, column = np.nonzero(grid != NO_BACKUP)
    instance = grid[number, column]
    jitter_s = np.random.default_rng(settings.seed).exponential(size=len(number)) * settings.jitter_s
    arrival_s = tuples.time_s[number] + settings.network.latency_s + jitter_s
    if synchronisation is not Synchronisation.ORDER:
        arrival_s = _admitted(number, instance, arrival_s, len(tuples), settings, failure)
    position = np.empty(len(number), np.int64)
    left_s = np.empty(len(number))
    for place in np.unique(instance).tolist():
        mine = np.flatnonzero(instance == place)
        order, at_s = released(number[mine], arrival_s[mine], settings.buffer_tuples)
        rows = mine[np.searchsorted(number[mine], order)]
        position[rows], left_s[rows] = np.arange(len(rows)), at_s
    if synchronisation is Synchronisation.PROCESS:
        order, done_s = _together(number, instance, left_s, settings, failure)
    else:
        order, done_s = _apart(instance, position, left_s, settings, failure)
    return Copies(
        tuples, router, settings, failure, number[order], instance[order], (column == 0)[order], done_s[order]
    )


def _admitted(
    number: I64, instance: I32, arrival_s: F64, count: int, settings: Settings, failure: Failure | None
) -> F64:
    """INPUT: every copy enters when the last one has arrived and its message has reached the others.

    A copy that a failed instance cannot confirm is waited for until the failure is known.
    """
    counted = arrival_s.copy()
    if failure is not None:
        dead = (instance == failure.instance) & (arrival_s > failure.at_s)
        counted[dead] = np.minimum(counted[dead], failure.at_s + settings.detect_s)
    last_s = np.full(count, -np.inf)
    np.maximum.at(last_s, number, counted)
    alone = np.bincount(number, minlength=count)[number] == 1
    admitted_s = np.maximum(last_s[number] + settings.network.latency_s, arrival_s)
    return np.asarray(np.where(alone, arrival_s, admitted_s))


def _apart(
    instance: I32, position: I64, left_s: F64, settings: Settings, failure: Failure | None
) -> tuple[I64, F64]:
    """Each instance applies its copies one after the other."""
    done_s = np.empty(len(instance))
    order = np.lexsort((position, instance))
    free_s, place = 0.0, -1
    for copy, at in zip(order.tolist(), instance[order].tolist(), strict=True):
        if at != place:
            free_s, place = 0.0, at
        free_s = max(free_s, left_s[copy]) + settings.tuple_s
        done_s[copy] = free_s
    if failure is not None:
        done_s[(instance == failure.instance) & (done_s > failure.at_s)] = np.inf
    return order[np.argsort(done_s[order], kind="stable")], done_s


def _together(
    number: I64, instance: I32, left_s: F64, settings: Settings, failure: Failure | None
) -> tuple[I64, F64]:
    """PROCESS: all replicas apply a tuple at one time, in the order in which all are ready for it."""
    done_s = np.empty(len(instance))
    ready_s = np.full(int(number.max()) + 1, -np.inf)
    np.maximum.at(ready_s, number, left_s)
    free_s: dict[int, float] = {}
    starts = np.searchsorted(number, np.arange(len(ready_s) + 1))
    order = np.argsort(ready_s, kind="stable")
    known_s = math.inf if failure is None else failure.at_s + settings.detect_s
    for tuple_ in order.tolist():
        copies = range(starts[tuple_], starts[tuple_ + 1])
        places = [int(instance[copy]) for copy in copies]
        begin_s = max(float(ready_s[tuple_]), *(free_s.get(place, 0.0) for place in places))
        end_s = begin_s + settings.tuple_s
        dead = failure.instance if failure is not None and end_s > failure.at_s else None
        if dead in places:
            living = [place for place in places if place != dead]
            if living:  # the others waited for it until its failure was known
                begin_s = max(float(ready_s[tuple_]), *(free_s.get(place, 0.0) for place in living))
                end_s = max(begin_s, known_s) + settings.tuple_s
        for copy, place in zip(copies, places, strict=True):
            done_s[copy] = math.inf if place == dead else end_s
            free_s[place] = end_s
    return np.argsort(done_s, kind="stable"), done_s
