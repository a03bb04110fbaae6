"""Gives turns: in each round every store does the same work, in an order that chance decides.

Whatever else the machine does hits all alike, and a store is compared only with what the baseline took for
the same work, at about the same time. A store that is much slower than others sits rounds out, evenly
spread over the case, so that a comparison ends; it keeps enough of them for its quartiles. A quick one also
ends when the time of its case is over, with as many rounds as there were.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ckpt_bench.compare.cases import Case
from ckpt_bench.compare.turns import Job, Sizes, Turn
from ckpt_bench.compare.worker import Worker
from ckpt_bench.failing import StoreError
from ckpt_bench.interleaved import Share, measured, paired
from ckpt_bench.interrupts import Interrupts


@dataclass(frozen=True, slots=True)
class Budget:
    """What a case may take."""

    store_s: float
    """How long the turns of a store may take together, before it sits rounds out."""
    case_s: float
    """No round begins so long after the first one, in which everybody takes part."""
    least_rounds: int
    """How many rounds every store takes part in, however slow it is."""


FULL = Budget(store_s=15.0, case_s=math.inf, least_rounds=5)
QUICK = Budget(store_s=0.5, case_s=2.0, least_rounds=1)
"""All cases in a minute: what they have in common is time and not rounds, since machines differ."""


@dataclass
class Standing:
    """What one store has done in one case."""

    store: str
    turns: dict[int, Turn] = field(default_factory=dict)
    """By the number of the round."""

    def seconds(self) -> dict[int, float]:
        return {number: turn.seconds for number, turn in self.turns.items()}

    def ops_per_s(self) -> float:
        """The median of its rounds that count."""
        turns = [self.turns[number] for number in measured(sorted(self.turns))]
        return statistics.median(turn.operations / turn.seconds for turn in turns)

    def written(self) -> float | None:
        """How many records became durable in a round, the median; None where the case says it."""
        turns = [self.turns[number] for number in measured(sorted(self.turns))]
        counts = [turn.written for turn in turns if turn.written is not None]
        return statistics.median(counts) if counts else None

    def slow_s(self) -> float:
        """What a turn took in the slowest tenth of its rounds that count; of few, in the slowest."""
        took_s = sorted(self.turns[number].seconds for number in measured(sorted(self.turns)))
        return took_s[math.ceil(len(took_s) * 0.9) - 1]


@dataclass
class Outcome:
    """What a case has found so far."""

    case: Case
    baseline: str
    sizes: Sizes
    standings: dict[str, Standing]
    errors: dict[str, str] = field(default_factory=dict)
    """Store → why it could not go on."""

    @property
    def at_full_size(self) -> bool:
        """Whether the work was as large as the bars of the case are for; rounds only make a figure surer."""
        return replace(self.sizes, rounds=self.case.sizes.rounds) == self.case.sizes

    def ratio(self, store: str) -> Share | None:
        """The baseline's throughput over the store's; None if there is no round that both were in."""
        base = self.standings.get(self.baseline)
        own = self.standings.get(store)
        if base is None or own is None or not base.turns.keys() & own.turns.keys():
            return None
        return paired(base.seconds(), own.seconds())

    def finished(self) -> Iterator[Standing]:
        """Those that have a figure to show."""
        return (standing for standing in self.standings.values() if standing.turns)


@dataclass(frozen=True)
class Match:
    """One case that is to be carried out."""

    case: Case
    baseline: str
    stores: Sequence[str]
    sizes: Sizes
    addresses: Mapping[str, str]


class Referee:
    """Runs matches; keeps one process for each store, from its first case to the end."""

    def __init__(
        self,
        folder: str,
        seed: int,
        budget: Budget,
        step: Callable[[str, str, int, int], object],
        interrupts: Interrupts,
    ) -> None:
        self._folder, self._seed, self._budget, self._step = folder, seed, budget, step
        self._interrupts = interrupts
        self._workers: dict[str, Worker] = {}
        self._order = random.Random(seed)

    def play(self, match: Match, outcome: Outcome) -> None:
        """Add to the outcome, round by round, so that what was found is there if this is interrupted."""
        playing = list(match.stores)
        total = match.sizes.rounds
        self._step(match.case.name, "loading", 0, total)
        jobs = {name: self._job(match, name) for name in playing}
        for name in playing:
            self._worker(name).begin(jobs[name])
        for name in list(playing):
            self._try(name, outcome, playing, self._workers[name].ready)
        every: dict[str, int] = dict.fromkeys(playing, 1)
        ends_s = math.inf
        for number in range(total):
            if number >= self._budget.least_rounds and time.monotonic() > ends_s:
                break
            turns = [name for name in playing if number % every[name] == 0]
            self._order.shuffle(turns)
            for name in turns:
                self._step(match.case.name, name, number, total)
                self._take_turn(name, number, outcome, playing)
            if number == 0:
                ends_s = time.monotonic() + self._budget.case_s
                every |= dict.fromkeys(self._too_slow(outcome, playing), total)
            if number == 1:
                # The first round of a store is not like the others.
                every |= {name: self._stride(outcome, name, total) for name in turns if name in playing}
        self._step(match.case.name, "closing", total, total)
        for name in list(playing):
            self._try(name, outcome, playing, self._workers[name].end)

    def close(self) -> None:
        """End every process; Ctrl-C ends the wait for one of them, and leaves none."""
        for worker in self._workers.values():
            with contextlib.suppress(KeyboardInterrupt):
                worker.stop()
        self._workers.clear()

    def _take_turn(self, name: str, number: int, outcome: Outcome, playing: list[str]) -> None:
        def turn() -> None:
            outcome.standings[name].turns[number] = self._workers[name].turn(number)

        self._try(name, outcome, playing, turn)

    def _try(self, name: str, outcome: Outcome, playing: list[str], what: Callable[[], object]) -> None:
        """A store that fails is out of this case, and its process starts afresh."""
        try:
            what()
        except StoreError as error:
            outcome.errors[name] = str(error)
            playing.remove(name)
            self._workers.pop(name).stop()

    def _too_slow(self, outcome: Outcome, playing: Sequence[str]) -> list[str]:
        """Those who have used up their time with their first turn, if that may be their only one."""
        if self._budget.least_rounds > 1:
            return []
        others = (name for name in playing if name != outcome.baseline)
        return [name for name in others if outcome.standings[name].turns[0].seconds > self._budget.store_s]

    def _stride(self, outcome: Outcome, name: str, total: int) -> int:
        """Every how many rounds the store takes part."""
        expected_s = outcome.standings[name].turns[1].seconds * total
        # It was in the first two rounds, and the multiples of the stride begin with the first one.
        most = math.ceil(total / max(self._budget.least_rounds - 1, 1))
        wanted = max(math.ceil(expected_s / self._budget.store_s), 1)
        return 1 if name == outcome.baseline else min(wanted, most)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            self._workers[name] = Worker(self._interrupts)
        return self._workers[name]

    def _job(self, match: Match, name: str) -> Job:
        folder = os.path.join(self._folder, f"{match.case.name}-{name}")
        address = match.addresses.get(name)
        return Job(match.case.name, name, folder, match.case.durable, match.sizes, self._seed, address)


def sized(case: Case, *, quick: bool, keys: int | None, rounds: int | None) -> Sizes:
    """The sizes of a case, with what a user asked for instead."""
    sizes = case.quick if quick else case.sizes
    return replace(sizes, keys=keys or sizes.keys, rounds=rounds or sizes.rounds)
