"""Runs a join over a stream of rows, and counts what each instance receives, stores, compares and sends.

Rows come in intervals. Within one the routing is fixed: each row is stored where the scheme's router says,
and on the instances that it probes compared with every earlier row of the other side that is stored there
and still in the window. Instances keep no index, as in mnrt-2017 §5.1.2, so that any predicate can be joined:
a probe costs one comparison for each of those rows, whatever their keys. Between intervals the scheme may
change its routing; then stored rows move, and the join is paused meanwhile.

Time is continuous and follows from the counts. The source gives rows as fast as the slowest instance takes
them (`makespan_s`), or at the times of the rows (`latency_s`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64
from ckpt.rebalance.simulate.joins.rows import I64, Rows
from ckpt.rebalance.simulate.joins.scheme import Scheme, Stored, row_of
from ckpt.rebalance.splitting import Predicate
from ckpt.rebalance.table import Side


@dataclass(frozen=True, slots=True)
class Costs:
    """What work takes on one instance."""

    receive_s: float = 10e-6
    """A row is taken from the network, and stored or made ready to be compared."""
    compare_s: float = 50e-9
    """A row is compared with one stored row."""
    row_bytes: int = 128
    link_bytes_per_s: float = 125e6
    """Of each instance, in each direction; moving rows take turns on it."""


@dataclass(frozen=True, eq=False)
class Step:
    """What one interval came to; arrays have one entry per instance in use."""

    rows: int
    interval_s: float
    received: I64
    """Rows that each instance was sent; a row that it stores and compares counts once."""
    stored: I64
    """Copies that each instance holds at the end, before anything moves."""
    compared: I64
    busy_s: F64
    matches: int
    moved: int
    """Copies that travelled afterwards, because the routing changed."""
    plan_s: float
    """How long that took to plan, by the clock of this machine: the only figure that is not exact."""
    transfer_s: float
    """How long the copies took to travel: the time of the instance that sends or receives the most."""

    @property
    def instances(self) -> int:
        """How many were in use."""
        return len(self.received)


@dataclass(frozen=True, eq=False)
class JoinRun:
    """The steps of a run, and what they come to."""

    steps: list[Step]
    pairs: npt.NDArray[np.int64] | None
    """The numbers of the rows that met, left and right, in the order in which they were found, if wanted."""

    @property
    def matches(self) -> int:
        """How many pairs met."""
        return sum(step.matches for step in self.steps)

    @property
    def makespan_s(self) -> float:
        """How long it takes if rows come as fast as the slowest instance takes them, moves included."""
        return float(sum(step.busy_s.max() + step.transfer_s for step in self.steps))

    @property
    def throughput(self) -> float:
        """Rows per second if they come as fast as the slowest instance takes them."""
        return sum(step.rows for step in self.steps) / self.makespan_s

    @property
    def latency_s(self) -> list[float]:
        """The work that waits at the slowest instance at the end of each interval, rows at their times."""
        waiting, found = np.zeros(0), []
        for step in self.steps:
            waiting = np.pad(waiting, (0, step.instances - len(waiting)))
            waiting = np.maximum(waiting + step.busy_s + step.transfer_s - step.interval_s, 0.0)
            found.append(float(waiting.max()))
        return found


def run_join(
    rows: Rows,
    scheme: Scheme,
    predicate: Predicate,
    *,
    interval_rows: int,
    window_s: float | None = None,
    costs: Costs | None = None,
    collect: bool = False,
) -> JoinRun:
    """Every row in intervals of `interval_rows`; the scheme adapts after each of them.

    Parameters
    ----------
    window_s
        Rows meet if their times differ by this much at most; None: all rows of the stream meet.
    collect
        Whether to return the pairs, of which there may be many.
    """
    if not len(rows):
        raise ConfigError("there are no rows to join")
    if interval_rows < 1:
        raise ConfigError(f"an interval has at least one row, not {interval_rows}")
    if window_s is not None and not window_s >= 0:
        raise ConfigError(f"a window is a number of seconds from 0, not {window_s}")
    join = _Join(rows, scheme, predicate, window_s, Costs() if costs is None else costs, collect)
    starts = range(0, len(rows), interval_rows)
    steps = [join.step(start, min(start + interval_rows, len(rows))) for start in starts]
    found = np.concatenate([np.empty((0, 2), np.int64), *join.pairs]) if collect else None
    return JoinRun(steps, found)


class _Join:
    def __init__(
        self,
        rows: Rows,
        scheme: Scheme,
        predicate: Predicate,
        window_s: float | None,
        costs: Costs,
        collect: bool,
    ) -> None:
        self._rows, self._scheme, self._predicate, self._costs = rows, scheme, predicate, costs
        self._collect = collect
        self.pairs: list[I64] = []
        none = np.empty(0, np.int64)
        self._stored = self._copies(none, none)
        if window_s is None:
            self._first_met = np.zeros(len(rows), np.int64)
        else:
            self._first_met = np.searchsorted(rows.time_s, rows.time_s - window_s)
        self._known, self._rank = np.unique(predicate.identities(rows.value), return_inverse=True)

    def step(self, start: int, end: int) -> Step:
        """The rows from `start` to before `end`."""
        alive = np.flatnonzero(self._stored.row >= self._first_met[start])
        stores, probes = self._routed(start, end)
        self._stored = Stored.joined(self._stored.take(alive), stores)
        used = self._scheme.instances
        cells = np.unique(
            np.concatenate([stores.row * used + stores.instance, probes.row * used + probes.instance])
        )
        received = np.bincount(cells % used, minlength=used)
        compared = self._compared(probes, used)
        matches = self._matched(probes)
        stored = np.bincount(self._stored.instance, minlength=used)
        busy_s = received * self._costs.receive_s + compared * self._costs.compare_s
        change = self._scheme.adapt(self._stored)
        moved, most = (0, 0) if change is None else self._move(change.stored)
        plan_s = 0.0 if change is None else change.plan_s
        transfer_s = most * self._costs.row_bytes / self._costs.link_bytes_per_s
        interval_s = float(self._rows.time_s[min(end, len(self._rows) - 1)] - self._rows.time_s[start])
        return Step(
            end - start, interval_s, received, stored, compared, busy_s, matches, moved, plan_s, transfer_s
        )

    def _routed(self, start: int, end: int) -> tuple[Stored, Stored]:
        stores: list[Stored] = []
        probes: list[Stored] = []
        for side in (Side.LEFT, Side.RIGHT):
            mine = start + np.flatnonzero(self._rows.side[start:end] == side)
            value, salt = self._rows.value[mine], self._rows.salt[mine]
            for found, targets in (
                (stores, self._scheme.router.store(side, value, salt)),
                (probes, self._scheme.router.probe(side, value, salt)),
            ):
                found.append(self._copies(mine[row_of(targets)], targets.instances))
        return Stored.joined(*stores), Stored.joined(*probes)

    def _copies(self, row: I64, instance: npt.NDArray[np.integer]) -> Stored:
        rows = self._rows
        return Stored(row, instance.astype(np.int32), rows.side[row], rows.value[row], rows.salt[row])

    def _compared(self, probes: Stored, used: int) -> I64:
        """Per instance, comparisons with earlier rows of the other side that are in the window."""
        count = len(self._rows)
        held = np.sort(self._cell(self._stored.instance, self._stored.side) * count + self._stored.row)
        asked = self._cell(probes.instance, _other(probes.side)) * count
        ends = np.searchsorted(held, asked + probes.row)
        starts = np.searchsorted(held, asked + self._first_met[probes.row])
        weights = (ends - starts).astype(np.float64)
        return np.bincount(probes.instance, weights=weights, minlength=used).astype(np.int64)

    def _matched(self, probes: Stored) -> int:
        """How many of these comparisons find a pair; the pairs are kept if they are wanted."""
        count, keys = len(self._rows), len(self._known)
        cells = self._cell(self._stored.instance, self._stored.side) * keys + self._rank[self._stored.row]
        order = np.argsort(cells * count + self._stored.row)
        held = (cells * count + self._stored.row)[order]
        found = 0
        for partner in self._predicate.partners(probes.value).T:
            rank = np.minimum(np.searchsorted(self._known, partner), keys - 1)
            at = np.flatnonzero(self._known[rank] == partner)
            row = probes.row[at]
            asked = (self._cell(probes.instance[at], _other(probes.side[at])) * keys + rank[at]) * count
            ends = np.searchsorted(held, asked + row)
            starts = np.searchsorted(held, asked + self._first_met[row])
            found += int((ends - starts).sum())
            if self._collect:
                lengths = ends - starts
                later = np.repeat(row, lengths)
                inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
                earlier = self._stored.row[order[np.repeat(starts, lengths) + inside]]
                left = self._rows.side[later] == Side.LEFT
                pair = np.where(left[:, None], np.stack([later, earlier], 1), np.stack([earlier, later], 1))
                self.pairs.append(pair)
        return found

    def _move(self, placed: Stored) -> tuple[int, int]:
        """How many copies travel, and how many the busiest instance sends or receives; they are there then.

        A row with several copies is sent by the instance that holds the first of them.
        """
        used = self._scheme.instances
        here = self._stored.row * used + self._stored.instance
        there = placed.row * used + placed.instance
        new = np.flatnonzero(~np.isin(there, here))
        rows, first = np.unique(self._stored.row, return_index=True)
        source = self._stored.instance[first[np.searchsorted(rows, placed.row[new])]]
        sent = np.bincount(source, minlength=used)
        taken = np.bincount(placed.instance[new], minlength=used)
        self._stored = placed
        return len(new), int(max(sent.max(), taken.max()))

    @staticmethod
    def _cell(instance: npt.NDArray[np.integer], side: npt.NDArray[np.int8]) -> I64:
        return np.asarray(2 * instance.astype(np.int64) + (side == Side.RIGHT), np.int64)


def _other(side: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    return np.asarray(np.where(side == Side.LEFT, Side.RIGHT, Side.LEFT), np.int8)
