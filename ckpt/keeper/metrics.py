"""Numbers about a keeper: one consistent reading as a dictionary, or in Prometheus' text format.

The text follows the exposition format 0.0.4: HELP and TYPE once per metric, escaped label values, cumulative
histogram buckets with `+Inf`, `_sum` and `_count`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LATENCY_BUCKETS_S = (5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

OUTCOMES = ("coalesced", "dropped", "failed", "durable")


class BucketHistogram:
    """Counts of observations by bucket; observed by one thread, read by any."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = np.zeros(len(self.bounds) + 1, np.int64)
        self._sum = 0.0

    def observe_many(self, values: Iterable[float]) -> None:
        """Count every value."""
        array = np.fromiter(values, np.float64)
        self._counts += np.bincount(np.searchsorted(self.bounds, array), minlength=len(self._counts))
        self._sum += float(array.sum())

    def read(self) -> dict[str, Any]:
        """Cumulative counts by upper bound, their number and their sum.

        Examples
        --------
        >>> histogram = BucketHistogram([1, 10])
        >>> histogram.observe_many([0.5, 5, 50])
        >>> histogram.read()
        {'buckets': {1: 1, 10: 2}, 'count': 3, 'sum': 55.5}
        """
        cumulative = self._counts.cumsum().tolist()
        return {
            "buckets": dict(zip(self.bounds, cumulative, strict=False)),
            "count": cumulative[-1],
            "sum": self._sum,
        }


def prometheus_text(metrics: Mapping[str, Any]) -> str:
    """What `SafeKeeper.metrics()` returns, in Prometheus' text format."""
    page = Page()
    spaces: Mapping[str, Mapping[str, Any]] = metrics["namespaces"]
    queue, writes, loads = metrics["queue"], metrics["writes"], metrics["loads"]
    page.add(
        "ckpt_saves_submitted_total", "counter", "Saves and deletes that were asked for.",
        [({"namespace": n}, m["submitted"]) for n, m in spaces.items()],
    )  # fmt: skip
    page.add(
        "ckpt_saves_total", "counter", "Saves and deletes by how they ended.",
        [({"namespace": n, "outcome": o}, m[o]) for n, m in spaces.items() for o in OUTCOMES],
    )  # fmt: skip
    for field, about in (
        ("pending", "Saves that are queued or being written."),
        ("live_states", "States in memory."),
        ("dirty_states", "States in memory that differ from their checkpoint."),
    ):
        name = "ckpt_saves_pending" if field == "pending" else f"ckpt_{field}"
        page.add(name, "gauge", about, [({"namespace": n}, m[field]) for n, m in spaces.items()])
    for name, kind, about, value in (
        ("ckpt_queue_depth", "gauge", "Saves in the queue.", queue["depth"]),
        ("ckpt_queue_limit", "gauge", "Saves that fit into the queue.", queue["limit"]),
        ("ckpt_trigger_stretch", "gauge", "Factor by which triggers are slowed down.", queue["stretch"]),
        ("ckpt_triggers_deferred_total", "counter", "Triggered saves that were put off.", queue["deferred"]),
        ("ckpt_write_bytes_total", "counter", "Bytes of durable checkpoints.", writes["bytes"]),
        ("ckpt_write_retries_total", "counter", "Writes that were tried again.", writes["retries"]),
        ("ckpt_callback_errors_total", "counter", "Exceptions in callbacks.", metrics["callback_errors"]),
    ):
        page.add(name, kind, about, [({}, value)])
    page.histogram("ckpt_batch_records", "Saves written as one batch.", writes["batch_records"])
    page.histogram("ckpt_save_latency_seconds", "From save to durable.", writes["latency_s"])
    page.add(
        "ckpt_loads_total", "counter", "Loads by where the answer came from.",
        [({"source": source}, count) for source, count in loads.items()],
    )  # fmt: skip
    state = metrics["breaker"]["state"]
    page.add(
        "ckpt_breaker_state", "gauge", "1 for the state that the circuit breaker is in.",
        [({"state": s}, int(s == state)) for s in ("closed", "open", "half-open")],
    )  # fmt: skip
    page.add("ckpt_breaker_opened_total", "counter", "Times it opened.", [({}, metrics["breaker"]["opened"])])
    return page.text()


class Page:
    """A page of Prometheus' text format: each metric with its head, once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(
        self, name: str, kind: str, about: str, samples: Iterable[tuple[Mapping[str, str], int | float]]
    ) -> None:
        """One counter or gauge, a sample for each set of labels."""
        self._head(name, kind, about)
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]

    def histogram(self, name: str, about: str, reading: Mapping[str, Any]) -> None:
        """What `BucketHistogram.read` returned."""
        self._head(name, "histogram", about)
        buckets = {**reading["buckets"], float("inf"): reading["count"]}
        self._lines += [f'{name}_bucket{{le="{_number(bound)}"}} {count}' for bound, count in buckets.items()]
        self._lines += [f"{name}_sum {_number(reading['sum'])}", f"{name}_count {reading['count']}"]

    def _head(self, name: str, kind: str, about: str) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    if value == float("inf"):
        return "+Inf"
    return repr(float(value)) if isinstance(value, float) and not value.is_integer() else str(int(value))
