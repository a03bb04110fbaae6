"""Figure 4.5: how long a save takes until it is durable, and a recovering read after a crash."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt.keeper.safekeeper import SafeKeeper
from ckpt_bench.plot import Bar, bars
from ckpt_bench.reproduce.claims import Claim, at_least, not_checked
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.medium import Medium
from ckpt_bench.reproduce.s4.crashes import OperatorError, crashed
from ckpt_bench.reproduce.s4.default_fs import import_scheme, open_store
from ckpt_bench.reproduce.s4.operators import word
from ckpt_bench.reproduce.s4.saturation import DEFAULT, INDEXED, SCHEMES
from ckpt_bench.reproduce.spread import Rounds, of_rounds, ratios, spread

RATE_PER_S = 400.0
"""Events per second in the thesis: as many as one file per state took there without losing any."""
_MOST_BEHIND_MS = 20 / RATE_PER_S * 1000
"""A backlog of 20 events is a stall; a larger one in most rounds is a store that cannot keep up."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Averages over all operations of a round."""

    write_ms: Rounds
    """From the save to its acknowledgement."""
    behind_ms: Rounds
    """How much further behind the rate the last acknowledgement was than the first."""
    read_ms: Rounds
    """Loading one state after the crash, once the store is open."""
    open_ms: Rounds
    """Opening the store after the crash."""
    durability: str

    @property
    def kept_up(self) -> bool:
        """Whether the time of a save is that of the store, and not of a backlog that grows with the run."""
        return spread(self.behind_ms).median <= _MOST_BEHIND_MS

    @property
    def backlog(self) -> str:
        """What there is to say instead of the time of a save."""
        behind_ms = spread(self.behind_ms).median
        return f"could not keep up with {RATE_PER_S:g}/s ({behind_ms:,.0f} ms behind)"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Every backend at the same rate."""

    events: int
    states: int
    rounds: int
    floor_ms: Rounds
    """From a save to its acknowledgement by a backend that does nothing: the SafeKeeper's threads alone."""
    stores: Mapping[str, Mapping[str, Latency]]
    """Medium → backend → latency."""


def sizes(lab: Lab) -> tuple[int, int, int]:
    """Events, states, rounds."""
    return (
        lab.pick(quick=20, small=160, full=10_000),
        lab.pick(quick=10, small=80, full=1000),
        lab.pick(quick=1, small=5, full=10),
    )


def measure(lab: Lab) -> Latencies:
    """Both file backends on both media, in turn."""
    events, states, rounds = sizes(lab)
    media: Sequence[Medium] = (lab.shared, lab.local)
    each = [(medium, name) for medium in media for name in SCHEMES]
    found: dict[tuple[str, str], list[Latency]] = {}
    floors_ms: list[float] = []
    for turn in range(rounds):
        lab.say(f"nothing but the SafeKeeper, {RATE_PER_S:g} events/s, round {turn + 1} of {rounds}")
        floors_ms.append(_counted("memory://", events, states, turn)[0])
        for medium, name in each if turn % 2 == 0 else reversed(each):
            lab.say(f"{name} on {medium.name}, {RATE_PER_S:g} events/s, round {turn + 1} of {rounds}")
            durability = "fsync" if medium.durable else "os"
            lab.settle()
            one = recovered(medium.address(SCHEMES[name]), events, states, turn, durability)
            found.setdefault((medium.name, name), []).append(one)
    stores = {medium.name: {name: joined(found[medium.name, name]) for name in SCHEMES} for medium in media}
    return Latencies(events, states, rounds, floors_ms, stores)


def _counted(address: str, events: int, states: int, seed: int) -> tuple[float, float]:
    """An operator counts words and is killed when everything is durable; the time of a save, the backlog."""
    settings = {"namespace": _namespace(seed), "events": events, "words": states, "seed": seed}
    told = crashed("count_words", address, rate=RATE_PER_S, **settings)
    return statistics.fmean(told["write_ms"]), told["behind_ms"]


def _namespace(seed: int) -> str:
    return f"words-{seed}"


def recovered(address: str, events: int, states: int, seed: int, durability: str) -> Latency:
    """One round: an operator counts words and is killed; then another one reads every state, one by one."""
    namespace = _namespace(seed)
    write_ms, behind_ms = _counted(address, events, states, seed)
    wanted = [word(number) for number in range(states)]
    random.Random(seed).shuffle(wanted)
    import_scheme(address)
    started_s = time.perf_counter()
    with open_store(address) as backend, SafeKeeper(backend, fetch_timeout_s=None) as keeper:
        loads = keeper.namespace(namespace)
        opened_s = time.perf_counter()
        counts = sum(loads.load(each, default={"count": 0})["count"] for each in wanted)
        read_s = time.perf_counter()
    if counts != events:
        raise OperatorError(
            f"{events} events were durable in {address}, and {counts} came back after a crash"
        )
    if not address.startswith(("s4:", "log:")):
        with open_store(address) as backend:
            backend.drop(namespace)
    read_ms, open_ms = (read_s - opened_s) * 1000 / states, (opened_s - started_s) * 1000
    return Latency([write_ms], [behind_ms], [read_ms], [open_ms], durability)


def joined(rounds: Sequence[Latency]) -> Latency:
    """What several rounds have measured."""
    return Latency(
        [ms for each in rounds for ms in each.write_ms],
        [ms for each in rounds for ms in each.behind_ms],
        [ms for each in rounds for ms in each.read_ms],
        [ms for each in rounds for ms in each.open_ms],
        rounds[0].durability,
    )


def file_latencies(lab: Lab) -> Latencies:
    """Figure 4.5's."""
    return lab.once("latencies of files", lambda: measure(lab))


def backlogs(stores: Mapping[str, Latency]) -> str:
    """Why times of saves of these stores cannot be compared; nothing if they can."""
    late = [f"{name} {latency.backlog}" for name, latency in stores.items() if not latency.kept_up]
    return f"{'; '.join(late)}: saves waited for others" if late else ""


def _check(found: Latencies) -> list[Claim]:
    claims = []
    for medium, stores in found.stores.items():
        default, indexed = stores[DEFAULT], stores[INDEXED]
        says = "a save with the indexed backend takes 4.85 times less"
        what = f"{medium}: time of a save, Default FS / Indexed FS"
        if late := backlogs(stores):
            claims.append(not_checked(says, what, late))
        else:
            faster = spread(ratios(default.write_ms, indexed.write_ms))
            claims.append(at_least(says, what, faster, 4.85, _why_saves(found, stores)))
        claims.append(
            at_least(
                "and a recovering read 3 times less",
                f"{medium}: time of a read, Default FS / Indexed FS",
                spread(ratios(default.read_ms, indexed.read_ms)),
                3.0,
                "opening a file asks the system's caches here, and most of a read is what both share",
            )
        )
    return claims


def _why_saves(found: Latencies, stores: Mapping[str, Latency]) -> str:
    floor = spread(found.floor_ms)
    rest = []
    for name, latency in stores.items():
        above_ms = spread(latency.write_ms).median - floor.median
        # What is no more than the scatter of the floor itself could as well be nothing, or less.
        told = above_ms > floor.q3 - floor.q1 and above_ms > 0
        rest.append(f"{above_ms:.2g} ms of {name}" if told else f"nothing measurable of {name}")
    return (
        f"the SafeKeeper's own threads take {floor.median:.2g} ms of both, which leaves {' and '.join(rest)}"
    )


def _show(found: Latencies) -> Shown:
    each = {
        f"{name}, {medium}": latency
        for medium, stores in found.stores.items()
        for name, latency in stores.items()
    }
    return shown(each, found)


def shown(each: Mapping[str, Latency], measured: Latencies, left_out: Sequence[str] = ()) -> Shown:
    """Saves and reads of these stores, beside what `measured` says about all of them."""
    marks, rows = [], []
    for name, one in each.items():
        save, read = spread(one.write_ms), spread(one.read_ms)
        for what, value in (("save", save), ("read", read)):
            if what == "read" or one.kept_up:
                text = f"{value.median:,.3g} ms"
                marks.append(Bar(f"{name}: {what}", value.median, text, value.q1, value.q3))
        saves = save.text() if one.kept_up else one.backlog
        rows.append([name, saves, read.text(), spread(one.open_ms).text(), one.durability])
    notes = [
        f"{measured.events:,} events on {measured.states:,} words at {RATE_PER_S:g}/s, each checkpointed; "
        f"{of_rounds(measured.rounds)}. {spread(measured.floor_ms)} ms of each save are the SafeKeeper's own "
        f"threads: so long it takes with a backend that does nothing. A store whose last acknowledgement "
        f"came {_MOST_BEHIND_MS:g} ms later than the rate asks for could not keep up.",
        *left_out,
    ]
    header = ["backend", "save, ms", "read after kill -9, ms", "open, ms", "durability"]
    chart = bars("Latency of a save and of a recovering read, in ms", marks)
    return Shown(chart, header, rows, notes)


FIG_4_5 = Experiment(
    "fig-4.5",
    "Latency of saves and recovering reads, file backends",
    "A word count on three nodes, 400 events/s, each checkpointed: the indexed backend was 4.85 times faster "
    "in writes and 3 times in reads.",
    "One operator in a process of its own saves through a SafeKeeper and is killed with kill -9; each medium "
    "is measured, the page cache (or NFS) as in figure 4.1 and the disk as in figure 5.1.",
    file_latencies,
    _check,
    _show,
)
