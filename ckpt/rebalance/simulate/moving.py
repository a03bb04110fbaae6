"""Protocols by which state changes its instance while the stream runs: who waits for what, and how long.

A protocol gets a migration and answers with a schedule: until when the tuples of each key are held, and which
instances stop in the meantime. Held tuples go to the key's new instance when the key resumes. A protocol
promises that no key resumes before its old instance has done the tuples that it was sent before.

A protocol of your own is a function with this signature; it may look at anything in the migration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, I32, U64, sums
from ckpt.rebalance.simulate.cluster import Network
from ckpt.rebalance.simulate.engine import Halt
from ckpt.rebalance.table import I64


@dataclass(frozen=True, eq=False)
class Migration:
    """What moves: one row for each move; a split key may have several."""

    at_s: float
    keys: U64
    source: I32
    target: I32
    state_bytes: F64
    """0 where roles are switched."""
    backlog_s: F64
    """For each instance, how long it takes to do what it was sent before."""
    network: Network

    @property
    def drained_s(self) -> F64:
        """For each instance, when it has done what it was sent before."""
        return self.at_s + self.backlog_s

    def by_source(self) -> F64:
        """The bytes that leave each instance."""
        return sums(self.source, self.state_bytes, len(self.backlog_s))

    def by_target(self) -> F64:
        """The bytes that come to each instance."""
        return sums(self.target, self.state_bytes, len(self.backlog_s))


@dataclass(frozen=True, eq=False)
class Schedule:
    """Until when the key of each move is held, and which instances stop."""

    resume_s: F64
    halts: tuple[Halt, ...] = ()


Protocol = Callable[[Migration], Schedule]


def pause_and_resume(migration: Migration) -> Schedule:
    """Moved keys wait until all of them have moved; keys that stay never wait (mixed-2017 §IV, Fig. 5).

    The controller tells all upstream instances to hold the tuples of the keys that move. Each old instance
    does what is in its queue, sends the state, and each new one acknowledges all that it gets. When the last
    acknowledgement has come, the controller tells everyone upstream to resume.
    """
    received_s = _received_s(migration)
    last_s = float(received_s[migration.target].max(initial=migration.at_s))
    return Schedule(np.full(len(migration.keys), last_s + 2 * migration.network.latency_s))


def reload_tasks(migration: Migration) -> Schedule:
    """Whole tasks stop while state is copied, so that keys that stay on them wait as well (ftlb-2019 §5).

    An instance that gives a key away does what is in its queue and stops until its state is sent. One that
    gets a key does so too, and stops from when state begins to come until all of it is there.
    """
    received_s, latency_s = _received_s(migration), migration.network.latency_s
    drained_s, sent_s = migration.drained_s + latency_s, _sent_s(migration)
    first_s = np.maximum(_least(migration.target, drained_s[migration.source], len(sent_s)), drained_s)
    halts = [Halt(d, float(drained_s[d]), float(sent_s[d])) for d in np.unique(migration.source).tolist()]
    halts += [Halt(d, float(first_s[d]), float(received_s[d])) for d in np.unique(migration.target).tolist()]
    return Schedule(received_s[migration.target] + latency_s, tuple(halts))


@dataclass(frozen=True, slots=True)
class Splitter:
    """State is read from a store where every tuple was put when it came (dlb-cep-2016 §3.3).

    The old instance only forgets a moved key. The new one reads the key's state from the store, several keys
    with one request, all new instances at once; it holds tuples of a key until the key's state is there.
    """

    read_bytes_s: float = 100e6
    """How fast each instance reads from the store."""
    keys_at_once: int = 100
    """With one request; these keys resume together."""

    def __post_init__(self) -> None:
        if not self.read_bytes_s > 0 or self.keys_at_once < 1:
            raise ConfigError("read_bytes_s must be above 0, and keys_at_once at least 1")

    def __call__(self, migration: Migration) -> Schedule:
        """Instances read in the order of the moves; a key resumes when it was read and is not worked at."""
        resume_s = np.zeros(len(migration.keys))
        latency_s = migration.network.latency_s
        for d in np.unique(migration.target).tolist():
            mine = np.flatnonzero(migration.target == d)
            read_s = migration.at_s + np.cumsum(migration.state_bytes[mine]) / self.read_bytes_s
            request = np.arange(len(mine)) // self.keys_at_once
            ends = np.minimum((request + 1) * self.keys_at_once, len(mine)) - 1
            resume_s[mine] = read_s[ends] + 2 * latency_s * (request + 1)
            forgotten_s = np.zeros(request[-1] + 1)
            np.maximum.at(forgotten_s, request, migration.drained_s[migration.source[mine]] + latency_s)
            resume_s[mine] = np.maximum(resume_s[mine], forgotten_s[request])
        return Schedule(resume_s)


def _sent_s(migration: Migration) -> F64:
    """For each instance, when it has sent all that leaves it."""
    told_s = migration.drained_s + migration.network.latency_s
    return np.asarray(told_s + migration.by_source() / migration.network.bandwidth_bytes_s)


def _received_s(migration: Migration) -> F64:
    """For each instance, when all that comes to it is there: sources send, and targets receive, at once."""
    count, network = len(migration.backlog_s), migration.network
    told_s = migration.drained_s + network.latency_s
    latest = np.zeros(count)
    np.maximum.at(latest, migration.target, _sent_s(migration)[migration.source])
    first_s = _least(migration.target, told_s[migration.source], count)
    return np.maximum(latest, first_s + migration.by_target() / network.bandwidth_bytes_s) + network.latency_s


def _least(group: I32 | I64, values: F64, count: int) -> F64:
    least = np.full(count, np.inf)
    np.minimum.at(least, group, values)
    return least


PROTOCOLS: dict[str, Protocol] = {
    "pause": pause_and_resume,
    "splitter": Splitter(),
    "reload": reload_tasks,
}
"""By the name that the command line has for each."""
