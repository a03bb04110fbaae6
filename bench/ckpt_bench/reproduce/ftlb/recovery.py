"""Figures 10b and 11: what a failure costs, with replicas of keys and with a copy of the whole task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt.rebalance import Importance, Router, RoutingTable
from ckpt.rebalance.hashing import mixed
from ckpt.rebalance.simulate import Failure
from ckpt.rebalance.simulate.generators import zipf
from ckpt.rebalance.simulate.replicas import (
    Copies,
    KeysRecovered,
    Settings,
    Synchronisation,
    Tuples,
    recover,
    reload_task,
    replicate,
)
from ckpt_bench.plot import lines
from ckpt_bench.reproduce.claims import Claim, at_least, at_most
from ckpt_bench.reproduce.experiments import Experiment, Lab, Shown
from ckpt_bench.reproduce.spread import Rounds, Spread, of_rounds, ratios, spread

FTLB, TASKB, NONE = "FTLB", "TaskB", "no replicas"
WAYS = (FTLB, TASKB, NONE)
INSTANCES, KEYS, EXPONENT = 8, 200, 0.85
RATE = 2000.0
"""Tuples per second; an instance applies a thousand."""
AFTER_S = 4.0
"""So long after the failure throughput is measured."""
CHECKPOINT_S = 2.0
TUPLE_BYTES = 64 * 1024
"""As few tuples as here stand for more: the state of a window is what a link needs a while for."""


@dataclass(frozen=True, slots=True)
class Failed:
    """One way with one window, one figure for each seed."""

    recovery_s: Rounds
    """Mean of the keys that were active on the failed instance."""
    throughput: Rounds
    """Results per second for these keys that reached downstream after the failure."""
    loaded_mb: Rounds
    """Read from the store or sent downstream."""
    wrong: Rounds
    """Tuples lost or applied twice."""


@dataclass(frozen=True, slots=True)
class Failures:
    """All of it."""

    tuples: int
    seeds: int
    windows_s: Sequence[float]
    found: Mapping[str, Sequence[Failed]]
    """Way → one for each window."""
    calm: Mapping[str, Rounds]
    """Tuples per second that the fullest instance allows without a failure, with and without replicas."""
    wait_ms: Mapping[str, Rounds]
    """Way of synchronising → mean time until a result, without a failure."""


def measure(lab: Lab) -> Failures:
    """One instance dies towards the end of the stream; the same tuples in every way."""
    seconds = lab.pick(quick=8.0, small=30.0, full=120.0)
    windows = lab.pick(quick=(2.0, 3.0), small=(2.0, 5.0, 10.0, 20.0), full=(2.0, 10.0, 30.0, 60.0, 100.0))
    seeds = lab.pick(quick=2, small=10, full=20)
    failed_s = seconds - AFTER_S - CHECKPOINT_S / 4  # well after a checkpoint
    each: dict[str, list[list[tuple[float, float, float, float]]]] = {name: [] for name in WAYS}
    calm: dict[str, list[float]] = {FTLB: [], NONE: []}
    wait_ms: dict[str, list[float]] = {mode.value: [] for mode in Synchronisation}
    count = 0
    for window_s in windows:
        rounds: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in WAYS}
        for seed in range(seeds):
            lab.say(f"window of {window_s:g} s, seed {seed + 1} of {seeds}")
            tuples = _tuples(seconds, seed)
            count = len(tuples)
            options = Settings(
                window_s=window_s, tuple_bytes=TUPLE_BYTES, checkpoint_s=CHECKPOINT_S, seed=seed
            )
            failure = Failure(failed_s, seed % INSTANCES)
            with_one, without = (
                replicate(tuples, _router(replicas), Synchronisation.ORDER, options, failure)
                for replicas in (1, 0)
            )
            ways = {FTLB: recover(with_one), TASKB: reload_task(without), NONE: recover(without)}
            for name, found in ways.items():
                rounds[name].append(_figures(found, failed_s))
            if window_s == windows[0]:
                for mode in Synchronisation:
                    quiet = replicate(tuples, _router(1), mode, options)
                    wait_ms[mode.value].append(1000 * float(quiet.latency_s.mean()))
                    if mode is Synchronisation.ORDER:
                        calm[FTLB].append(_allowed(quiet))
                calm[NONE].append(_allowed(replicate(tuples, _router(0), Synchronisation.ORDER, options)))
        for name in WAYS:
            each[name].append(rounds[name])
    found_ = {
        name: [Failed(*(list(column) for column in zip(*one, strict=True))) for one in by_window]
        for name, by_window in each.items()
    }
    return Failures(count, seeds, windows, found_, calm, wait_ms)


def _tuples(seconds: float, seed: int) -> Tuples:
    draw = np.random.default_rng([seed, 11])
    count = round(seconds * RATE)
    keys = mixed(np.arange(1, KEYS + 1, dtype=np.uint64))
    chosen = keys[draw.choice(KEYS, count, p=draw.permutation(zipf(KEYS, EXPONENT)))]
    return Tuples.of(chosen, np.cumsum(draw.exponential(1 / RATE, count) + 1e-9) * seconds * RATE / count)


def _router(replicas: int) -> Router:
    return Router(RoutingTable(INSTANCES), Importance(default=replicas))


def _figures(found: KeysRecovered, failed_s: float) -> tuple[float, float, float, float]:
    return (
        found.mean_s(),
        found.throughput(failed_s, failed_s + AFTER_S),
        float(found.loaded_bytes.sum()) / 1e6,
        float(found.lost + found.repeated),
    )


def _allowed(copies: Copies) -> float:
    """Tuples per second at which the fullest instance is just busy all the time."""
    return RATE / float(copies.busy.max())


def failures(lab: Lab) -> Failures:
    """Figures 10b and 11 are two views of one run."""
    return lab.once("failures of instances", lambda: measure(lab))


def _ratio(
    found: Failures, value: str, over: str, under: str, of_windows: Callable[[Iterable[float]], float]
) -> Spread:
    each = [
        ratios(getattr(one, value), getattr(other, value))
        for one, other in zip(found.found[over], found.found[under], strict=True)
    ]
    return spread([of_windows(values) for values in zip(*each, strict=True)])


def _check_throughput(found: Failures) -> list[Claim]:
    order, process = (found.wait_ms[mode.value] for mode in (Synchronisation.ORDER, Synchronisation.PROCESS))
    return [
        at_least(
            "keeping replicas together tuple by tuple costs too much",
            "time until a result without a failure, process synchronisation / order alone",
            spread(ratios(process, order)),
            2.0,
            "instances have so little to do that replicas rarely wait for each other",
        ),
        at_most(
            "without a failure replicas cost some throughput",
            "tuples per second that the fullest instance allows, with one replica / without",
            spread(ratios(found.calm[FTLB], found.calm[NONE])),
            1.0,
            "replicas also even out the loads",
        ),
        at_least(
            "slightly",
            "the same",
            spread(ratios(found.calm[FTLB], found.calm[NONE])),
            0.8,
            "a backup applies every tuple as the active instance does, so that all instances together have "
            "twice the work",
        ),
        at_most(
            "when a task fails, replicas give the best throughput",
            "results per second after the failure, no replicas / FTLB, most of all windows",
            _ratio(found, "throughput", NONE, FTLB, max),
            1.0,
            "the state of a short window is loaded soon, and later tuples wait longer at instances that also "
            "apply those of backups",
        ),
    ]


def _check_recovery(found: Failures) -> list[Claim]:
    shortest, longest = (f"{found.windows_s[at]:g} s" for at in (0, -1))
    growths = {
        name: ratios(found.found[name][-1].recovery_s, found.found[name][0].recovery_s) for name in WAYS
    }
    return [
        at_least(
            "a whole task takes longer to recover than single keys, at any size of the state",
            "recovery time, TaskB / FTLB, least of all windows",
            _ratio(found, "recovery_s", TASKB, FTLB, min),
            1.0,
            "detecting the failure takes most of the time of both",
        ),
        at_least(
            "the more so the larger the window",
            f"growth of the recovery time from a window of {shortest} to {longest}, TaskB / FTLB",
            spread(ratios(growths[TASKB], growths[FTLB])),
            1.0,
            "detecting the failure takes most of the time of both",
        ),
        at_least(
            "single keys recover less data",
            "data loaded or sent, TaskB / FTLB, least of all windows",
            _ratio(found, "loaded_mb", TASKB, FTLB, min),
            1.0,
            "backups go on while the failure is detected, so that nearly all are ahead and send their state, "
            "window and all; TaskB loads what was in the window at the last checkpoint",
        ),
        at_most(
            "and keep more throughput",
            "results per second after the failure, TaskB / FTLB, most of all windows",
            _ratio(found, "throughput", TASKB, FTLB, max),
            1.0,
            "the state of a short window is loaded soon, and later tuples wait longer at instances that also "
            "apply those of backups",
        ),
        at_most(
            "nothing is lost or applied twice",
            "tuples lost or repeated by FTLB",
            spread([sum(values) for values in zip(*(one.wrong for one in found.found[FTLB]), strict=True)]),
            0.0,
            "a tuple came later than the sorting buffer can put right",
        ),
    ]


def _show_throughput(found: Failures) -> Shown:
    header = ["results/s after the failure", *(f"window {window_s:g} s" for window_s in found.windows_s)]
    rows = [[name, *(spread(one.throughput).text(".4g") for one in found.found[name])] for name in WAYS]
    waits = ", ".join(f"{name} {spread(rounds).text('.3g')} ms" for name, rounds in found.wait_ms.items())
    notes = [
        f"Results for keys of the failed instance, in the first {AFTER_S:g} s; {found.tuples:,} tuples at "
        f"{RATE:g}/s on {INSTANCES} instances, {of_rounds(found.seeds)}.",
        f"Without a failure the fullest instance allows {spread(found.calm[FTLB]).text('.4g')} tuples/s with "
        f"one replica of each key and {spread(found.calm[NONE]).text('.4g')} without.",
        f"A result takes by the way in which replicas are synchronised: {waits}.",
    ]
    series = {
        name: [
            (window_s, spread(one.throughput).median)
            for window_s, one in zip(found.windows_s, found.found[name], strict=True)
        ]
        for name in WAYS
    }
    return Shown(lines("Results per second after a failure", "window s", "1/s", series), header, rows, notes)


def _show_recovery(found: Failures) -> Shown:
    header = ["recovery s; MB", *(f"window {window_s:g} s" for window_s in found.windows_s)]
    rows = [
        [
            name,
            *(
                f"{spread(one.recovery_s).text('.3g')}; {spread(one.loaded_mb).median:.3g}"
                for one in found.found[name]
            ),
        ]
        for name in WAYS
    ]
    series = {
        name: [
            (window_s, spread(one.recovery_s).median)
            for window_s, one in zip(found.windows_s, found.found[name], strict=True)
        ]
        for name in WAYS
    }
    notes = [
        f"Mean of the keys of the failed instance, {of_rounds(found.seeds)}, 0.5 s of it to detect the "
        "failure. Data: the median of what is read from the store or sent downstream."
    ]
    return Shown(lines("Recovery time by window", "window s", "s", series), header, rows, notes)


_HERE = (
    "The simulator's replicas, tuple by tuple; one of eight instances dies. Each tuple adds 64 KiB of state, "
    "so that a window of seconds stands for the paper's of half a minute to an hour. Keys without replicas, "
    f"and TaskB's task, come back from a checkpoint of every {CHECKPOINT_S:g} s and the tuples since."
)

FIG_10 = Experiment(
    "fig-10",
    "Throughput without and with a failure",
    "Replicas cost slightly throughput as long as nothing fails; when a task fails they keep the most of it.",
    f"{_HERE} The failure of 10b; how load fluctuates (f) is left out.",
    failures,
    _check_throughput,
    _show_throughput,
)
FIG_11 = Experiment(
    "fig-11",
    "Recovery of single keys and of a whole task",
    "Recovery takes TaskB longer than FTLB at any size of the state, and costs it more throughput.",
    _HERE,
    failures,
    _check_recovery,
    _show_recovery,
)
