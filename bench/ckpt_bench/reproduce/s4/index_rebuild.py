"""Figure 4.2: how long the log needs until it can find every state again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ckpt.contract.addresses import parse_address
from ckpt.contract.registry import open_backend
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_most, between
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.s4.crashes import crashed
from ckpt_bench.reproduce.s4.default_fs import import_scheme
from ckpt_bench.reproduce.s4.operators import word
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

_NAMESPACE = "words"
_READS = 300
_LEAST_MS = 0.1
"""Less than that above an empty log is noise."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What rounds took with one number of states."""

    states: int
    open_ms: list[float]
    """Opening after `kill -9`: what came after the index was last stored, if ever, is read again."""
    rebuild_ms: list[float]
    """Opening when there is no index at all: everything is read again."""
    clean_ms: list[float]
    """Opening after the log was closed, which stores the whole index."""
    read_us: list[float]
    """Reading one state afterwards, on average."""


@dataclass(frozen=True, slots=True)
class Rebuilds:
    """From few states to many."""

    rounds: int
    empty: Rebuild
    """A log of one state: what opening costs in any case."""
    points: Sequence[Rebuild]

    def growth(self, what: str) -> Spread:
        """How much that time grows with the last step of states, over how much their number does.

        Only what is above the time for one state counts: with few states that is nearly all of it.
        """

        def above(point: Rebuild) -> Rounds:
            pairs = zip(getattr(point, what), getattr(self.empty, what), strict=True)
            return [max(took_ms - least_ms, _LEAST_MS) for took_ms, least_ms in pairs]

        before, last = self.points[-2:]
        return spread([each / (last.states / before.states) for each in ratios(above(last), above(before))])


def measure(lab: Lab) -> Rebuilds:
    """Fill a log, kill who did it, open it with and without its index."""
    rounds = lab.pick(quick=1, small=5, full=10)
    sizes = lab.pick(
        quick=(100, 1000),
        small=(10_000, 100_000, 300_000),
        full=(10_000, 30_000, 100_000, 300_000, 1_000_000),
    )
    points = [Rebuild(states, [], [], [], []) for states in (1, *sizes)]
    for turn in range(rounds):
        for point in points:
            lab.say(f"a log of {point.states:,} states, round {turn + 1} of {rounds}")
            _crash_and_open(lab, point)
    return Rebuilds(rounds, points[0], points[1:])


def _crash_and_open(lab: Lab, point: Rebuild) -> None:
    """One round; each has its own crash, for it is chance how much of an index that one leaves."""
    address = lab.shared.address("log")
    folder = parse_address(address).path
    crashed("fill", address, namespace=_NAMESPACE, words=point.states)
    import_scheme(address)
    lab.settle()
    point.open_ms.append(_open_ms(folder)[0])
    shutil.rmtree(os.path.join(folder, "index"))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, "MANIFEST"))
    took_ms, read_us = _open_ms(folder, reads_of=point.states)
    point.rebuild_ms.append(took_ms)
    point.read_us.append(read_us)
    point.clean_ms.append(_open_ms(folder)[0])
    shutil.rmtree(os.path.dirname(folder))


def _open_ms(folder: str, reads_of: int = 0) -> tuple[float, float]:
    """How long opening takes, and then one read on average."""
    choose = random.Random(reads_of)
    keys = [word(choose.randrange(reads_of)).encode() for _ in range(_READS)] if reads_of else []
    started_s = time.perf_counter()
    with open_backend("log://" + folder) as backend:
        opened_s = time.perf_counter()
        for key in keys:
            backend.get_many(_NAMESPACE, (key,))
        read_s = time.perf_counter()
    return (opened_s - started_s) * 1000, (read_s - opened_s) * 1e6 / max(len(keys), 1)


def rebuilds(lab: Lab) -> Rebuilds:
    """Figure 4.2's."""
    return lab.once("rebuilds", lambda: measure(lab))


def _check(found: Rebuilds) -> list[Claim]:
    first, last = found.points[0], found.points[-1]
    step = f"from {found.points[-2].states:,} to {last.states:,} states"
    after_kill = found.growth("open_ms")
    return [
        between(
            "the more states, the longer the reconstruction, in proportion",
            f"after kill -9, {step}: growth of the time above that for one state / growth of the states",
            after_kill,
            0.5,
            1.5,
            "only what came after the index was last stored is read again, and the log stores it as it grows"
            if after_kill.median < 1
            else "how much came after the index was last stored depends on when that was, and it was more",
        ),
        between(
            "the same, where there is nothing but the append-only files",
            f"without an index, {step}: growth of the time above that for one state / growth of the states",
            found.growth("rebuild_ms"),
            0.5,
            1.5,
            "a log of another size is read in another number of segments and pieces of memory",
        ),
        at_most(
            "once that is done, reading a state takes no longer than with few states",
            f"time of a read, {last.states:,} states / {first.states:,} states",
            spread(ratios(last.read_us, first.read_us)),
            1.5,
            "reads from a larger log miss the processor's caches more often",
        ),
    ]


def _show(found: Rebuilds) -> Shown:
    series = {
        "after kill -9": [(point.states, spread(point.open_ms).median) for point in found.points],
        "without an index": [(point.states, spread(point.rebuild_ms).median) for point in found.points],
        "after it was closed": [(point.states, spread(point.clean_ms).median) for point in found.points],
    }
    rows = [
        [f"{p.states:,}", *(spread(x).text(".1f") for x in (p.open_ms, p.rebuild_ms, p.clean_ms, p.read_us))]
        for p in (found.empty, *found.points)
    ]
    return Shown(
        lines("Time to open the log by number of states", "states", "ms", series),
        ["states", "open after kill -9, ms", "without an index, ms", "after it was closed, ms", "a read, us"],
        rows,
        [
            f"Keys and states of about 70 bytes together; {of_rounds(found.rounds)}. "
            f"After kill -9 the log also searches the unused rest of its last segment, which a log of one "
            f"state shows alone. It stores its index when some hundred thousand states are new: below that a "
            f"crash leaves none."
        ],
    )


FIG_4_2 = Experiment(
    "fig-4.2",
    "Time to find every state again after a crash",
    "Reading the index file and the rest of the append-only file grew in proportion to the number of states, "
    "and stayed below 250 ms for a million.",
    "Opening after kill -9 as it is, with the whole index deleted, and after the log was closed.",
    rebuilds,
    _check,
    _show,
)
