"""The results of a phase as one page of charts, with every figure that the command prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ckpt_bench.plot import Event, Operation, run_page
from ckpt_bench.ycsb.histogram import LatencyHistogram
from ckpt_bench.ycsb.session import Results
from ckpt_bench.ycsb.settings import Settings

_CURVE = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100)
_APART = ("RECOVER", "GC", "MIGRATE", "CRASH", "CLEANUP", "VERIFY", "SCAN-LATENCY-PER-RECORD", "DURABLE")
"""What is no operation of a client, so that its number per second says nothing."""


def page_of(results: Results, settings: Settings) -> str:
    """A whole HTML document: latencies, throughput over time with what else happened, every figure."""
    figures = {(metric, measurement): value for metric, measurement, value in results.rows}
    failed: Counter[str] = Counter()
    for metric, measurement, value in results.rows:
        if measurement.startswith("Return=") and measurement != "Return=OK":
            failed[metric] += int(value)
    throughput = figures["OVERALL", "Throughput(ops/sec)"]
    return run_page(
        f"ckpt bench {results.phase}",
        f"{results.phase} on {results.address}: {settings.threadcount} threads, "
        f"{settings.requestdistribution} requests, {settings.recordcount:,} records of "
        f"{settings.fieldcount} fields of {settings.fieldlength} bytes.",
        summary=[
            ("throughput", f"{throughput:,.1f} operations/s"),
            ("time", f"{figures['OVERALL', 'RunTime(ms)'] / 1000:,.1f} s"),
            ("failed operations", f"{failed.total():,}"),
            *((f"{metric}: {what}", f"{value:,}") for metric, what, value in results.counts),
        ],
        operations=[
            _operation(name, histogram, failed[name])
            for name, histogram in results.histograms.items()
            if name != "CLEANUP" and (histogram.total or failed[name])
        ],
        throughput=_throughput(results, figures["OVERALL", "RunTime(ms)"] / 1000),
        events=[Event(event.from_s, event.name, event.to_s) for event in results.events],
        faults=results.faults,
        interrupted=results.reached,
        figures=[[metric, measurement, f"{value:,.6g}"] for metric, measurement, value in results.rows],
    )


def _operation(name: str, histogram: LatencyHistogram, errors: int) -> Operation:
    curve = [(float(p), float(histogram.percentile_us(p))) for p in _CURVE] if histogram.total else []
    return Operation(name, histogram.total, errors, histogram.mean_us, curve)


def _throughput(results: Results, took_s: float) -> dict[str, Sequence[tuple[float, float]]]:
    """Operations that ended in each whole second of the run; of a shorter one, in all of it."""
    seconds = range(max(int(took_s), 1))
    length_s = min(took_s, 1.0) or 1.0
    return {
        name: [(float(second), counts[second] / length_s) for second in seconds]
        for name, counts in results.per_second.items()
        if not name.startswith(_APART) and counts.total()
    }
