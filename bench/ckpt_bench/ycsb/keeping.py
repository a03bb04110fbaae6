"""The ways to keep the latencies of one operation, and what each reports: YCSB's `measurementtype`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ckpt_bench.ycsb.extrafiles import ExtraFile, ExtraFiles
from ckpt_bench.ycsb.hdrfiles import IntervalLog, distribution
from ckpt_bench.ycsb.histogram import LatencyHistogram, slot_bounds_us
from ckpt_bench.ycsb.settings import Settings

Times = npt.NDArray[np.int64]


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

    def __init__(self, name: str, settings: Settings, begun_s: float, files: ExtraFiles) -> None:
        self._settings = settings
        self.total = LatencyHistogram()
        self._interval = LatencyHistogram()
        self._from_s = begun_s
        self._log: IntervalLog | None = None
        self._distribution: ExtraFile | None = None
        if settings.hdr_files:
            place = f"{settings.hdr_path}{name}"
            self._log = IntervalLog(files.open(f"{place}.hdr"), name, self._from_s)
            self._distribution = files.open(f"{place}.hgrm")

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
            for line in distribution(total):
                self._distribution.write(f"{line}\n")
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

    def end(self) -> tuple[int, float]:
        """How many there were, and their average; what comes now is for the next summary."""
        count, sum_us = self._count, self._sum_us
        self._count = self._sum_us = 0
        return count, sum_us / max(count, 1)

    def summary(self, name: str) -> str:
        count, mean_us = self.end()
        return f"[{name} AverageLatency(us)={_short(mean_us)}]" if count else ""


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
        count, mean_us = self._window.end()
        return f"{name} count: {count}, average latency(us): {mean_us:.2f}" if count else ""


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
