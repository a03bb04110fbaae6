"""The stream in continuous time: a source, queues, holds and halts, from one event to the next.

Tuples are a fluid: those of an interval come evenly, each key in its proportion, and a queue serves first in,
first out. Between two events all rates are constant, so the engine computes when the next event is and what
has flowed until then; nothing is sampled, and no step is too small or too large. Events are: a queue's block
is done, the limit of pending tuples is reached, a key resumes, a halt begins or ends, the interval is over.

What a single tuple would see beyond that, such as a short queue by chance, is not in the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ckpt.errors import ConfigError
from ckpt.rebalance.loads import F64, U64, sums
from ckpt.rebalance.simulate.cluster import Cluster
from ckpt.rebalance.simulate.flow import Flow, Hold
from ckpt.rebalance.simulate.interval import Interval
from ckpt.rebalance.simulate.latency import Latencies
from ckpt.rebalance.simulate.queues import Block, Queue
from ckpt.rebalance.simulate.routes import Parts, Route

_CLOSE = 1e-12
"""Amounts that differ by this fraction are taken for equal, since they are sums of floats."""


@dataclass(frozen=True, slots=True)
class Halt:
    """An instance processes nothing from one time until another; its tuples wait."""

    instance: int
    from_s: float
    until_s: float


@dataclass(frozen=True, eq=False)
class Passed:
    """What happened while the source sent an interval."""

    start_s: float
    end_s: float
    sent: float
    """Tuples that the source sent, copies included."""
    received: F64
    """Tuples that came into the queue of each instance."""
    loads: F64
    """The work of the whole interval for each instance, by the route that is in force at the end."""
    latencies: Latencies
    """Of the tuples that were completed."""


Watch = Callable[[int, U64, float, float], object]
"""Told of what is processed: the instance, the keys, from when, and until when."""


class Engine:
    """A source, instances with queues, and the time; tuples that were sent are queued, held or processed.

    Examples
    --------
    >>> from ckpt.rebalance import RoutingTable
    >>> from ckpt.rebalance.simulate.routes import ByTable
    >>> engine = Engine(Cluster(2, interval_s=1.0), ByTable(RoutingTable(2)))
    >>> passed = engine.send(Interval.of([0, 1], tuples=[10, 30], cost=[0.1, 0.3], state=[0, 0]))
    >>> passed.end_s, passed.latencies.tuples(2).tolist(), engine.pending
    (1.0, [10.0, 30.0], 0.0)
    """

    def __init__(self, cluster: Cluster, route: Route, watch: Watch | None = None) -> None:
        self.cluster = cluster
        self.now_s = 0.0
        self._route = route
        self._watch = watch
        self._queues = [Queue() for _ in range(cluster.instances)]
        self._holds: list[Hold] = []
        self._halts: list[Halt] = []
        self._interval: Interval | None = None
        self._left = 0.0
        """The fraction of the interval that the source has not sent yet."""
        self._parts: Parts | None = None
        """What the route makes of the interval; None: it has to be asked again."""
        self._flow: Flow | None = None
        """None: it has to be computed anew."""
        self._started_s = self._sent = 0.0
        self._received = np.zeros(cluster.instances)
        self._latencies = Latencies()

    @property
    def pending(self) -> float:
        """Tuples that were sent and are not completed."""
        return sum(queue.tuples for queue in self._queues) + self.held

    @property
    def held(self) -> float:
        """Tuples that wait for their keys to resume."""
        return sum(hold.tuples for hold in self._holds)

    @property
    def settled(self) -> bool:
        """True if no key waits to resume, and no instance has halted or will."""
        return not self._holds and not self._halts

    def backlog_s(self) -> F64:
        """For each instance, how long it takes to do what is in its queue now, halts included."""
        backlog = np.array([queue.work for queue in self._queues], np.float64)
        for halt in self._halts:
            backlog[halt.instance] += max(0.0, halt.until_s - max(halt.from_s, self.now_s))
        return backlog

    def reroute(self, route: Route, holds: Iterable[Hold] = (), halts: Iterable[Halt] = ()) -> None:
        """From now on tuples go by another route, those of some keys after they have waited.

        A key that waits already waits until both times are over.
        """
        self._route, self._parts, self._flow = route, None, None
        for hold in holds:
            shared = [each for each in self._holds if np.isin(hold.keys, each.keys, assume_unique=True).any()]
            self._holds.append(hold)
            last_s = max(each.until_s for each in (*shared, hold))
            for each in (*shared, hold):
                each.until_s = last_s
        self.halt(halts)

    def halt(self, halts: Iterable[Halt]) -> None:
        """Some instances stop for a time."""
        self._halts += [halt for halt in halts if halt.until_s > max(halt.from_s, self.now_s)]

    def delay(self, by_s: float) -> None:
        """Every key that waits, and every instance that has halted or will, does so for longer."""
        for hold in self._holds:
            hold.until_s += by_s
        self._halts = [
            Halt(halt.instance, halt.from_s + by_s * (halt.from_s > self.now_s), halt.until_s + by_s)
            for halt in self._halts
        ]

    def send(self, interval: Interval) -> Passed:
        """Time goes on until the source has sent the whole interval."""
        self.begin(interval)
        self.advance()
        return self.passed()

    def begin(self, interval: Interval) -> None:
        """The source has this interval to send next; `advance` lets time go on, `passed` reports."""
        self._interval, self._left, self._parts, self._flow = interval, 1.0, None, None
        self._started_s, self._sent = self.now_s, 0.0
        self._received, self._latencies = np.zeros(self.cluster.instances), Latencies()

    def advance(self, until_s: float = math.inf) -> None:
        """Time goes on until the source has sent all of the interval, or until a time before that."""
        while not self.done and self.now_s < until_s:
            self._release()
            flow, before = self._current_flow(), self._left
            self._phase(flow, min(until_s, self._next_timer()))
            self._sent += (before - self._left) * flow.all_tuples
        self._release()

    @property
    def done(self) -> bool:
        """True if the source has sent all of the interval."""
        return self._left <= 0

    def passed(self) -> Passed:
        """What happened since the source began with the interval."""
        parts = self._current_flow().parts
        loads = sums(parts.instance, parts.work, self.cluster.instances)
        return Passed(self._started_s, self.now_s, self._sent, self._received, loads, self._latencies)

    def resend(self, instance: int) -> None:
        """What waits for an instance, in its queue or held, is sent again, by the route that is in force now.

        Tuples keep the times at which they came first.
        """
        waiting = [*self._queues[instance].emptied()]
        waiting += [cell for hold in self._holds for cell in hold.emptied(instance)]
        for block, arrivals in waiting:
            again = block.flow.again(block, instance)
            flow = Flow(again, self._route(again), tuple(self._holds), self.cluster.instances)
            for d, share in enumerate(flow.tuples):
                if share > 0 or flow.work[d] > 0:
                    self._queues[d].deliver(Block(flow, None, share, flow.work[d]), arrivals)
                    self._received[d] += share
            for hold, d, tuples, work in flow.held:
                hold.deliver(Block(flow, hold, tuples, work), d, arrivals)

    def _current_flow(self) -> Flow:
        assert self._interval is not None  # set by send
        if self._parts is None:
            self._parts = self._route(self._interval)
        if self._flow is None:
            self._flow = Flow(self._interval, self._parts, tuple(self._holds), self.cluster.instances)
        return self._flow

    def _next_timer(self) -> float:
        times = [hold.until_s for hold in self._holds]
        times += [halt.from_s if halt.from_s > self.now_s else halt.until_s for halt in self._halts]
        return min(times, default=math.inf)

    def _release(self) -> None:
        """Keys whose time has come resume: what has waited goes ahead of what comes from now on."""
        due = [hold for hold in self._holds if hold.until_s <= self.now_s]
        for hold in due:
            for (_, instance), (block, arrivals) in hold.waiting.items():
                self._queues[instance].deliver(block, arrivals)
                self._received[instance] += block.tuples
        if due:
            self._holds = [hold for hold in self._holds if hold.until_s > self.now_s]
            self._flow = None
        self._halts = [halt for halt in self._halts if halt.until_s > self.now_s]

    def _phase(self, flow: Flow, until_s: float) -> None:
        """Up to the next event; all rates are constant until then."""
        stopped = {halt.instance for halt in self._halts if halt.from_s <= self.now_s}
        runs = [d not in stopped for d in range(len(self._queues))]
        for d, queue in enumerate(self._queues):
            while runs[d] and queue.blocks and queue.blocks[0].work <= 0:
                self._complete(d, self.now_s, self.now_s, whole=True)
        # Tuples wait where there is a queue or nothing is done; elsewhere they pass, unless too many come.
        waits = [bool(queue.blocks) or not running for queue, running in zip(self._queues, runs, strict=True)]
        drained = sum(queue.rate for queue, running in zip(self._queues, runs, strict=True) if running)
        room = self.cluster.max_pending - self.pending
        full = room <= 1e3 * _CLOSE * self.cluster.max_pending
        rate = 1 / self.cluster.interval_s
        if full:
            rate = min(rate, _bearable(flow, waits, drained))
        # How long each of these rates stays as it is: the phase ends with the first that changes.
        times_s = [until_s - self.now_s, self._left / rate if rate > 0 else math.inf]
        growth = rate * flow.all_tuples - drained
        for d, queue in enumerate(self._queues):
            fed = rate * flow.work[d]
            if not waits[d]:
                growth -= flow.tuples[d] * (rate if fed <= 1 else 1 / flow.work[d])
            if (waits[d] or fed > 1) and (flow.tuples[d] > 0 or flow.work[d] > 0):
                queue.open_block(flow, d)
            if waits[d] and runs[d]:
                head = queue.blocks[0]  # if it is the last one too, what comes is added to it
                shrinks = 1 - (fed if head is queue.blocks[-1] else 0.0)
                times_s.append(head.work / shrinks if shrinks > 0 else math.inf)
        if growth > 0 and not full:
            times_s.append(room / growth)
        lasts_s = min(times_s)
        if not lasts_s < math.inf:
            raise ConfigError("the stream stands still for good: an instance that has tuples never goes on")
        end_s = until_s if lasts_s == times_s[0] else self.now_s + lasts_s
        self._pass(flow, rate, end_s, runs)

    def _pass(self, flow: Flow, rate: float, end_s: float, runs: list[bool]) -> None:
        """What flows until the end of a phase."""
        start_s, lasts_s = self.now_s, end_s - self.now_s
        part = min(rate * lasts_s, self._left)
        if self._left - part <= _CLOSE:
            part = self._left
        for d, queue in enumerate(self._queues):
            tuples, work = part * flow.tuples[d], part * flow.work[d]
            self._received[d] += tuples
            if queue.blocks:
                if tuples > 0 or work > 0:
                    queue.add(tuples, work, start_s, end_s)
                if runs[d]:
                    rest = queue.blocks[0].work - lasts_s
                    whole = rest <= _CLOSE * queue.blocks[0].work or end_s + rest == end_s
                    self._complete(d, start_s, end_s, whole=whole)
            elif tuples > 0:
                self._latencies.add(d, tuples, work / tuples, work / tuples)
                if self._watch is not None:
                    self._watch(d, flow.sent_to(d, None).keys, start_s, end_s)
        for hold, d, held_tuples, held_work in flow.held:
            tuples, work = part * held_tuples, part * held_work
            hold.deliver(Block(flow, hold, tuples, work), d, [(tuples, start_s, end_s)])
        self._left -= part
        self.now_s = end_s

    def _complete(self, d: int, start_s: float, end_s: float, *, whole: bool) -> None:
        """The first block of a queue was worked at, and may be done."""
        queue = self._queues[d]
        head = queue.blocks[0]
        own_s = 1 / head.rate if head.rate > 0 else 0.0
        done = head.tuples if whole else min((end_s - start_s) * head.rate, head.tuples)
        if whole:
            queue.blocks.popleft()
        else:
            head.tuples, head.work = head.tuples - done, head.work - (end_s - start_s)
        for tuples, first_s, last_s in queue.leave(done, start_s, end_s):
            self._latencies.add(d, tuples, first_s + own_s, last_s + own_s)
        if self._watch is not None:
            self._watch(d, head.flow.sent_to(d, head.hold).keys, start_s, end_s)


def _bearable(flow: Flow, waits: list[bool], drained: float) -> float:
    """The highest rate, in intervals per second, at which no more tuples come than are completed.

    Instances with a queue complete `drained` tuples per second in all. One without completes what comes, up
    to the rate at which it is busy all the time; above that its tuples wait as well.
    """
    level, slope = drained, flow.held_tuples
    limits = []
    for tuples, work, waiting in zip(flow.tuples, flow.work, waits, strict=True):
        if waiting:
            slope += tuples
        elif work > 0:
            limits.append((1 / work, tuples))
    for busy_from, tuples in sorted(limits):
        if slope > 0 and level / slope <= busy_from:
            break
        level, slope = level + tuples * busy_from, slope + tuples
    return level / slope if slope > 0 else math.inf
