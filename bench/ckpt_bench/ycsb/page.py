"""The results of a phase as one page of charts, with every figure that the command prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ckpt_bench.plot import Event, Operation, Point, run_page
from ckpt_bench.ycsb.histogram import LatencyHistogram
from ckpt_bench.ycsb.session import Results
from ckpt_bench.ycsb.settings import Settings

_CURVE = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100)
_APART = ("RECOVER", "GC", "MIGRATE", "CRASH", "CLEANUP", "VERIFY", "SCAN-LATENCY-PER-RECORD", "DURABLE")
"""What is no operation of a client, so that its number per second says nothing."""

_LEAST_S = 0.1
_MOST_PARTS = 20


def page_of(results: Results, settings: Settings) -> str:
    """A whole HTML document: latencies, throughput over time with what else happened, every figure."""
    figures = {(metric, measurement): value for metric, measurement, value in results.rows}
    failed: Counter[str] = Counter()
    for metric, measurement, value in results.rows:
        if measurement.startswith("Return=") and measurement != "Return=OK":
            failed[metric] += int(value)
    throughput = figures["OVERALL", "Throughput(ops/sec)"]
    took_s = figures["OVERALL", "RunTime(ms)"] / 1000
    return run_page(
        f"ckpt bench {results.phase}",
        f"{results.phase} on {results.address}: {settings.threadcount} threads, "
        f"{settings.requestdistribution} requests, {settings.recordcount:,} records of "
        f"{settings.fieldcount} fields of {settings.fieldlength} bytes.",
        summary=[
            ("throughput", f"{throughput:,.1f} operations/s"),
            ("time", f"{took_s:,.1f} s"),
            ("failed operations", f"{failed.total():,}"),
            *((f"{metric}: {what}", f"{value:,}") for metric, what, value in results.counts),
        ],
        operations=[
            _operation(name, histogram, failed[name])
            for name, histogram in results.histograms.items()
            if name != "CLEANUP" and (histogram.total or failed[name])
        ],
        throughput=_throughput(results, took_s),
        against=_against(results, took_s),
        events=[Event(event.from_s, event.name, event.to_s) for event in results.events],
        faults=results.faults,
        interrupted=results.reached,
        figures=[[metric, measurement, f"{value:,.6g}"] for metric, measurement, value in results.rows],
    )


def _operation(name: str, histogram: LatencyHistogram, errors: int) -> Operation:
    curve = [(float(p), float(histogram.percentile_us(p))) for p in _CURVE] if histogram.total else []
    return Operation(name, histogram.total, errors, histogram.mean_us, curve)


def _spans(took_s: float) -> list[tuple[range, float]]:
    """The seconds of a run, each with how long it was; a last one that is too short to say a rate is added to
    the one before it.

    Examples
    --------
    >>> _spans(1.5), _spans(0.04)
    ([(range(0, 1), 1.0), (range(1, 2), 0.5)], [(range(0, 1), 0.04)])
    >>> _spans(2.01)
    [(range(0, 1), 1.0), (range(1, 3), 1.01)]
    """
    whole, rest_s = int(took_s), round(took_s % 1, 3)
    spans = [(range(second, second + 1), 1.0) for second in range(whole)]
    if not spans:
        return [(range(1), rest_s or 1.0)]
    if rest_s >= _LEAST_S:
        return [*spans, (range(whole, whole + 1), rest_s)]
    return [*spans[:-1], (range(whole - 1, whole + 1), 1.0 + rest_s)]


def _throughput(results: Results, took_s: float) -> dict[str, Sequence[tuple[float, float]]]:
    """Operations that ended in each second of the run, or in what there was of it."""
    return {
        name: [
            (float(seconds[0]), sum(counts[second] for second in seconds) / length_s)
            for seconds, length_s in _spans(took_s)
        ]
        for name, counts in results.per_second.items()
        if not name.startswith(_APART) and counts.total()
    }


def _against(results: Results, took_s: float) -> dict[str, Sequence[Point]]:
    """Throughput and mean latency of each operation, in a few equal parts of the run."""
    spans = _spans(took_s)
    size = math.ceil(len(spans) / _MOST_PARTS)
    parts = [spans[at : at + size] for at in range(0, len(spans), size)]
    found: dict[str, Sequence[Point]] = {}
    for name, counts in results.per_second.items():
        if name.startswith(_APART):
            continue
        points = []
        for part in parts:
            seconds = [second for span, _ in part for second in span]
            count = sum(counts[second] for second in seconds)
            if count:
                sum_us = sum(results.per_second_us[name][second] for second in seconds)
                points.append(Point(count / sum(length_s for _, length_s in part), sum_us / count))
        if points:
            found[name] = sorted(points, key=lambda point: point.x)
    return found
