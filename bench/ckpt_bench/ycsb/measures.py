"""How long operations took: recorded by each thread for itself, collected now and then, shown as YCSB does.

A thread appends two or three clock readings to an array and does nothing else. Somebody else takes them from
there, so that percentiles cost the operations nothing.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np
import numpy.typing as npt

from ckpt_bench.ycsb.hdrfiles import IntervalLog, distribution
from ckpt_bench.ycsb.histogram import LatencyHistogram, slot_bounds_us
from ckpt_bench.ycsb.settings import Interval, Kind, Settings

Row = tuple[str, str, int | float]
"""Metric, measurement and value, as exporters write them."""
Times = npt.NDArray[np.int64]

_RETURNING = (
    "READ", "UPDATE", "INSERT", "SCAN", "VERIFY", "SAVE", "DURABLE", "RECOVER", "GC", "MIGRATE", "CRASH"
)  # fmt: skip
"""Operations that have results to count, in the order of the report; others are parts or sums of them."""
_NEVER_INTENDED = frozenset({"VERIFY", "SCAN-LATENCY-PER-RECORD", "CLEANUP"})


class Recorder:
    """What one thread saw. Only that thread appends."""

    def __init__(self) -> None:
        self.times: dict[str, array[int]] = {}
        """Operation → readings in ns, one after the other: (intended start,) start, end."""
        self.statuses: Counter[tuple[str, str]] = Counter()
        """How often an operation ended so, if it did not end OK."""

    def of(self, name: str) -> array[int]:
        """Where the readings of this operation go."""
        return self.times.setdefault(name, array("q"))


class Measure(Protocol):
    """One way to keep the latencies of one operation."""

    def take(self, latencies_us: Times, ended_ns: Times) -> None:
        """Count these, too."""

    def rows(self) -> Iterator[tuple[str, int | float]]:
        """What is reported in the end."""

    def rows_behind(self) -> Iterator[tuple[str, int | float]]:
        """What is reported behind the counts of results."""

    def summary(self, name: str) -> str:
        """What came since the last summary, in a few words."""


class HdrMeasure:
    """Percentiles; with `hdrhistogram.fileoutput` also as files."""

    def __init__(self, name: str, settings: Settings, files: ExitStack) -> None:
        self._settings = settings
        self.total = LatencyHistogram()
        self._interval = LatencyHistogram()
        self._from_s = time.time()
        self._log: IntervalLog | None = None
        self._distribution: TextIO | None = None
        if settings.hdr_files:
            path = Path(f"{settings.hdr_path}{name}.hdr")
            log = files.enter_context(path.open("w", encoding="utf-8"))
            self._log = IntervalLog(log, name, self._from_s)
            self._distribution = files.enter_context(path.with_suffix(".hgrm").open("w", encoding="utf-8"))

    def take(self, latencies_us: Times, ended_ns: Times) -> None:
        del ended_ns
        self._interval.record(latencies_us)

    def _end_interval(self) -> LatencyHistogram:
        ended, now_s = self._interval, time.time()
        self.total.add(ended)
        if self._log is not None:
            self._log.write(ended, self._from_s, now_s)
        self._interval, self._from_s = LatencyHistogram(), now_s
        return ended

    def rows(self) -> Iterator[tuple[str, int | float]]:
        self._end_interval()
        total = self.total
        if self._distribution is not None:
            self._distribution.writelines(f"{line}\n" for line in distribution(total))
        yield "Operations", total.total
        yield "AverageLatency(us)", total.mean_us
        yield "MinLatency(us)", total.min_us
        yield "MaxLatency(us)", total.max_us
        for percentile in self._settings.percentiles:
            yield f"{ordinal(percentile)}PercentileLatency(us)", total.percentile_us(percentile)

    def rows_behind(self) -> Iterator[tuple[str, int | float]]:
        if self._settings.histogram_verbose:
            for slot in self.total.used.tolist():
                yield str(slot_bounds_us(slot)[1]), int(self.total.counts[slot])

    def summary(self, name: str) -> str:
        seen = self._end_interval()
        percentiles = ", ".join(f"{p:g}={seen.percentile_us(p)}" for p in (50, 90, 99, 99.9, 99.99))
        return (
            f"[{name}: Count={seen.total}, Max={seen.max_us}, Min={seen.min_us}, "
            f"Avg={_short(seen.mean_us)}, {percentiles}]"
        )


class _Window:
    """Count and average since the last summary, which is all that the simpler measures say."""

    def __init__(self) -> None:
        self._count, self._sum_us = 0, 0

    def take(self, latencies_us: Times) -> None:
        self._count += len(latencies_us)
        self._sum_us += int(latencies_us.sum())

    def summary(self, name: str) -> str:
        count, sum_us = self._count, self._sum_us
        self._count = self._sum_us = 0
        return f"[{name} AverageLatency(us)={_short(sum_us / count)}]" if count else ""


class BucketMeasure:
    """Buckets of one millisecond each."""

    def __init__(self, settings: Settings) -> None:
        self._window = _Window()
        self._buckets = settings.histogram_buckets
        self._verbose = settings.histogram_verbose
        self._counts = np.zeros(self._buckets + 1, np.int64)
        self._sum_us, self._squares, self._least, self._most = 0, 0.0, -1, -1

    def take(self, latencies_us: Times, ended_ns: Times) -> None:
        del ended_ns
        self._window.take(latencies_us)
        slots = np.minimum(latencies_us // 1000, self._buckets)
        self._counts += np.bincount(slots, minlength=self._buckets + 1)
        self._sum_us += int(latencies_us.sum())
        self._squares += float((latencies_us.astype(np.float64) ** 2).sum())
        least, most = int(latencies_us.min()), int(latencies_us.max())
        self._least = least if self._least < 0 else min(self._least, least)
        self._most = max(self._most, most)

    def rows(self) -> Iterator[tuple[str, int | float]]:
        total = int(self._counts.sum())
        mean = self._sum_us / total if total else 0.0
        yield "Operations", total
        yield "AverageLatency(us)", mean
        yield "LatencyVariance(us)", self._squares / total - mean * mean if total else 0.0
        yield "MinLatency(us)", self._least
        yield "MaxLatency(us)", self._most
        reached = np.cumsum(self._counts[:-1]) / max(total, 1)
        for percentile in (95, 99):
            bucket = int(np.searchsorted(reached, percentile / 100))
            if bucket < self._buckets:
                yield f"{percentile}thPercentileLatency(us)", bucket * 1000

    def rows_behind(self) -> Iterator[tuple[str, int | float]]:
        if self._verbose:
            for bucket, count in enumerate(self._counts[:-1].tolist()):
                yield str(bucket), count
            yield f">{self._buckets}", int(self._counts[-1])

    def summary(self, name: str) -> str:
        return self._window.summary(name)


class SeriesMeasure:
    """The average of each span of `timeseries.granularity` milliseconds."""

    def __init__(self, settings: Settings) -> None:
        self._window = _Window()
        self._span_ms = settings.timeseries_granularity
        self._first_ns = -1
        self._counts: Counter[int] = Counter()
        self._sums_us: Counter[int] = Counter()
        self._least, self._most = -1, -1

    def take(self, latencies_us: Times, ended_ns: Times) -> None:
        self._window.take(latencies_us)
        if self._first_ns < 0:
            self._first_ns = int(ended_ns.min())
        spans = np.maximum(ended_ns - self._first_ns, 0) // (self._span_ms * 1_000_000)
        for span in np.unique(spans).tolist():
            inside = latencies_us[spans == span]
            self._counts[span] += len(inside)
            self._sums_us[span] += int(inside.sum())
        least, most = int(latencies_us.min()), int(latencies_us.max())
        self._least = least if self._least < 0 else min(self._least, least)
        self._most = max(self._most, most)

    def rows(self) -> Iterator[tuple[str, int | float]]:
        total = self._counts.total()
        yield "Operations", total
        yield "AverageLatency(us)", self._sums_us.total() / total if total else 0.0
        yield "MinLatency(us)", self._least
        yield "MaxLatency(us)", self._most

    def rows_behind(self) -> Iterator[tuple[str, int | float]]:
        for span in sorted(self._counts):
            yield str(span * self._span_ms), self._sums_us[span] / self._counts[span]

    def summary(self, name: str) -> str:
        return self._window.summary(name)


class RawMeasure:
    """Every single latency, kept in memory and written out in the end."""

    def __init__(self, name: str, settings: Settings, write: Callable[[str], object]) -> None:
        self._window = _Window()
        self._name, self._write = name, write
        self._no_summary = settings.raw_no_summary
        self._latencies: list[Times] = []
        self._ended: list[Times] = []
        self._epoch_ms = time.time_ns() // 1_000_000 - time.perf_counter_ns() // 1_000_000

    def take(self, latencies_us: Times, ended_ns: Times) -> None:
        self._window.take(latencies_us)
        self._latencies.append(latencies_us)
        self._ended.append(ended_ns // 1_000_000 + self._epoch_ms)

    def rows(self) -> Iterator[tuple[str, int | float]]:
        latencies = np.concatenate([*self._latencies, np.zeros(0, np.int64)])
        ended_ms = np.concatenate([*self._ended, np.zeros(0, np.int64)])
        self._write(f"{self._name} latency raw data: op, timestamp(ms), latency(us)\n")
        for at_ms, latency_us in zip(ended_ms.tolist(), latencies.tolist(), strict=True):
            self._write(f"{self._name},{at_ms},{latency_us}\n")
        yield "Total Operations", len(latencies)
        if len(latencies) and not self._no_summary:
            latencies.sort()
            yield "Below is a summary of latency in microseconds:", -1
            yield "Average", float(latencies.mean())
            yield "Min", int(latencies[0])
            yield "Max", int(latencies[-1])
            for percentile in (1, 5, 50, 90, 95, 99, 99.9, 99.99):
                yield f"p{percentile:g}", int(latencies[int(len(latencies) * percentile / 100)])

    def rows_behind(self) -> Iterator[tuple[str, int | float]]:
        yield from ()

    def summary(self, name: str) -> str:
        return self._window.summary(name)


class Measurements:
    """All operations of a run: what its threads recorded, by operation."""

    def __init__(self, settings: Settings, raw_to: TextIO) -> None:
        self._settings = settings
        self._raw_to = raw_to
        self._lock = threading.Lock()
        self._recorders: list[Recorder] = []
        self._measures: dict[str, list[tuple[str, Measure]]] = {}
        self._files = ExitStack()
        self.begun_ns = time.perf_counter_ns()
        self.per_second: dict[str, Counter[int]] = {}
        """Operation → second of the run → how many ended in it."""

    def recorder(self) -> Recorder:
        """A place for one thread to record in."""
        made = Recorder()
        with self._lock:
            self._recorders.append(made)
        return made

    def collect(self) -> None:
        """Take over what the threads have recorded so far."""
        intended = self._settings.measurement_interval is not Interval.OP
        width = 3 if intended else 2
        with self._lock:
            for recorder in self._recorders:
                for name, times in list(recorder.times.items()):
                    # a copy, and then without what was copied: appends in between stay
                    whole = len(times) // width * width
                    taken = np.array(times[:whole], np.int64).reshape(-1, width)
                    del times[:whole]
                    if len(taken):
                        self._count(name, taken, intended)

    def _count(self, name: str, taken: Times, intended: bool) -> None:
        ended = taken[:, -1]
        seconds = (ended - self.begun_ns) // 1_000_000_000
        for second, count in zip(
            *(each.tolist() for each in np.unique(seconds, return_counts=True)), strict=True
        ):
            self.per_second.setdefault(name, Counter())[second] += count
        if self._settings.measurement_interval is not Interval.INTENDED or name in _NEVER_INTENDED:
            self._take(name, (ended - taken[:, -2]) // 1000, ended)
        if intended and name not in _NEVER_INTENDED:
            prefix = "Intended-" if self._settings.measurement_interval is Interval.BOTH else ""
            self._take(f"{prefix}{name}", (ended - taken[:, 0]) // 1000, ended)

    def _take(self, name: str, latencies_us: Times, ended: Times) -> None:
        for _, measure in self._of(name):
            measure.take(latencies_us, ended)

    def _of(self, name: str) -> list[tuple[str, Measure]]:
        found = self._measures.get(name)
        if found is None:
            found = self._measures[name] = list(self._made(name))
        return found

    def _made(self, name: str) -> Iterator[tuple[str, Measure]]:
        kind = self._settings.measurementtype
        both = kind in (Kind.HDR_AND_HISTOGRAM, Kind.HDR_AND_RAW)
        if kind is Kind.HDR or both:
            shown = f"Hdr{name}" if both else name
            yield shown, HdrMeasure(shown, self._settings, self._files)
        if kind in (Kind.HISTOGRAM, Kind.HDR_AND_HISTOGRAM):
            yield f"Bucket{name}" if both else name, BucketMeasure(self._settings)
        if kind in (Kind.RAW, Kind.HDR_AND_RAW):
            shown = f"Raw{name}" if both else name
            yield shown, RawMeasure(shown, self._settings, self._raw())
        if kind is Kind.TIMESERIES:
            yield name, SeriesMeasure(self._settings)

    def _raw(self) -> Callable[[str], object]:
        if not self._settings.raw_file:
            return self._raw_to.write
        return self._files.enter_context(open(self._settings.raw_file, "a", encoding="utf-8")).write

    def summaries(self) -> str:
        """What came since the last time, for a line of status."""
        self.collect()
        with self._lock:
            parts = [measure.summary(shown) for each in self._measures.values() for shown, measure in each]
        return " ".join(part for part in parts if part)

    def histogram(self, name: str) -> LatencyHistogram | None:
        """All latencies of an operation, if its measure keeps them as a histogram."""
        for _, measure in self._measures.get(name, []):
            if isinstance(measure, HdrMeasure):
                return measure.total
        return None

    def statuses(self) -> Counter[tuple[str, str]]:
        """How often an operation ended in another way than OK."""
        found: Counter[tuple[str, str]] = Counter()
        with self._lock:
            for recorder in self._recorders:
                found.update(recorder.statuses)
        return found

    def rows(self) -> list[Row]:
        """What is reported in the end; afterwards nothing more is taken."""
        self.collect()
        failed = self.statuses()
        found: list[Row] = []
        with self._lock, self._files:
            names = {*self._measures, *(name for name, _ in failed)}
            for name in sorted(names, key=_place):
                for number, (shown, measure) in enumerate(self._of(name)):
                    rows = list(measure.rows())
                    found += [(shown, what, value) for what, value in rows]
                    if number == 0:
                        found += [
                            (shown, f"Return={status}", n) for status, n in self._returns(name, rows, failed)
                        ]
                    found += [(shown, what, value) for what, value in measure.rows_behind()]
        return found

    @staticmethod
    def _returns(
        name: str, rows: list[tuple[str, int | float]], failed: Counter[tuple[str, str]]
    ) -> Iterator[tuple[str, int]]:
        fine = int(rows[0][1])
        if fine and name in _RETURNING:
            yield "OK", fine
        yield from ((status, count) for (of, status), count in sorted(failed.items()) if of == name)


def _place(name: str) -> tuple[bool, int, str]:
    """Where an operation stands in the report: what failed, and parts, behind what they belong to."""
    first = next(
        (number for number, known in enumerate(_RETURNING) if name.startswith(known)), len(_RETURNING)
    )
    return name.startswith("Intended-"), first, name


def ordinal(percentile: float) -> str:
    """A percentile as YCSB writes it.

    Examples
    --------
    >>> [ordinal(percentile) for percentile in (50, 91, 92, 93, 11, 99.9)]
    ['50th', '91st', '92nd', '93rd', '11th', '99.9']
    """
    if percentile % 1:
        return repr(percentile)
    whole = int(percentile)
    if whole % 100 in (11, 12, 13):
        return f"{whole}th"
    return f"{whole}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(whole % 10, 'th') }"


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
