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
from contextlib import closing
from typing import TextIO

import numpy as np

from ckpt_bench.ycsb.extrafiles import ExtraFiles
from ckpt_bench.ycsb.histogram import LatencyHistogram
from ckpt_bench.ycsb.keeping import BucketMeasure, HdrMeasure, Measure, RawMeasure, SeriesMeasure, Times
from ckpt_bench.ycsb.settings import Interval, Kind, Settings

Row = tuple[str, str, int | float]
"""Metric, measurement and value, as exporters write them."""
_RETURNING = (
    "READ", "UPDATE", "INSERT", "SCAN", "VERIFY", "SAVE", "DURABLE", "RECOVER", "GC", "MIGRATE", "CRASH"
)  # fmt: skip
"""Operations that have results to count, in the order of the report; others are parts or sums of them."""
_NEVER_INTENDED = (
    "VERIFY", "SCAN-LATENCY-PER-RECORD", "RECOVER", "GC", "MIGRATE", "CRASH", "CLEANUP"
)  # fmt: skip
"""How the names begin of what is due at no certain time."""


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


class Measurements:
    """All operations of a run: what its threads recorded, by operation."""

    def __init__(self, settings: Settings, raw_to: TextIO) -> None:
        self._settings = settings
        self._raw_to = raw_to
        self._lock = threading.Lock()
        self._recorders: list[Recorder] = []
        self._measures: dict[str, list[tuple[str, Measure]]] = {}
        self._files = ExtraFiles()
        self.begun_ns, self._begun_s = time.perf_counter_ns(), time.time()
        self.per_second: dict[str, Counter[int]] = {}
        """Operation → second of the run → how many ended in it."""
        self.per_second_us: dict[str, Counter[int]] = {}
        """The same for the sum of their latencies, from when they began."""

    def begin(self) -> int:
        """The phase begins now: from here on seconds and intervals are counted; the clock's reading."""
        self.begun_ns, self._begun_s = time.perf_counter_ns(), time.time()
        return self.begun_ns

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
        seconds, where, counts = np.unique(
            (ended - self.begun_ns) // 1_000_000_000, return_inverse=True, return_counts=True
        )
        sums_us = np.bincount(where, weights=(ended - taken[:, -2]) / 1000)
        per_second = self.per_second.setdefault(name, Counter())
        per_second_us = self.per_second_us.setdefault(name, Counter())
        for second, count, sum_us in zip(seconds.tolist(), counts.tolist(), sums_us.tolist(), strict=True):
            per_second[second] += count
            per_second_us[second] += round(sum_us)
        never = name.startswith(_NEVER_INTENDED)
        if self._settings.measurement_interval is not Interval.INTENDED or never:
            self._take(name, (ended - taken[:, -2]) // 1000, ended)
        if intended and not never:
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
            yield shown, HdrMeasure(shown, self._settings, self._begun_s, self._files)
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
        return self._files.open(self._settings.raw_file, "a").write

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
        with self._lock, closing(self._files):
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

    def unwritten(self) -> list[str]:
        """Files that are not whole, in words; known once there are `rows`."""
        return self._files.refusals()

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
