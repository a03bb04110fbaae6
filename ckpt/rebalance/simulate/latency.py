"""How long tuples took, from the source to the end of their processing: exact means and percentiles.

Within one phase of the engine everything is linear, so the tuples that a queue completes in it took times
that are spread evenly between two values. All latencies of an interval are a mixture of such uniform spans.
"""

from __future__ import annotations

import numpy as np

from ckpt.rebalance.loads import F64, sums


class Latencies:
    """Spans of evenly spread times, each with the number of its tuples and the instance that they were on."""

    def __init__(self) -> None:
        self._instance: list[int] = []
        self._spans: list[tuple[float, float, float]] = []

    def add(self, instance: int, tuples: float, first_s: float, last_s: float) -> None:
        """So many tuples took from `first_s` to `last_s`."""
        self._instance.append(instance)
        self._spans.append((tuples, first_s, last_s))

    def tuples(self, instances: int) -> F64:
        """How many tuples each instance has completed."""
        return sums(np.array(self._instance, np.int64), self._columns()[0], instances)

    def means_s(self, instances: int) -> F64:
        """The mean of each instance; 0 where it completed nothing."""
        count, first, last = self._columns()
        total = sums(np.array(self._instance, np.int64), count * (first + last) / 2, instances)
        done = self.tuples(instances)
        return np.divide(total, done, out=np.zeros(instances), where=done > 0)

    def mean_s(self) -> float:
        """The mean of all tuples; 0 if there are none."""
        count, first, last = self._columns()
        done = float(count.sum())
        return float((count * (first + last)).sum()) / 2 / done if done > 0 else 0.0

    def quantile_s(self, fraction: float) -> float:
        """The time that this fraction of the tuples did not exceed; 0 if there are none.

        Examples
        --------
        >>> latencies = Latencies()
        >>> latencies.add(0, tuples=3, first_s=0.0, last_s=1.0)
        >>> latencies.add(1, tuples=1, first_s=4.0, last_s=4.0)
        >>> latencies.quantile_s(0.375), latencies.quantile_s(0.99)
        (0.5, 4.0)
        """
        count, first, last = self._columns()
        if not count.sum() > 0:
            return 0.0
        low, high = np.minimum(first, last), np.maximum(first, last)
        points = np.unique(np.concatenate([low, high]))
        from_, to = np.searchsorted(points, low), np.searchsorted(points, high)
        single = from_ == to
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.where(single, 0.0, count / (high - low))
        rate = np.cumsum(sums(from_, density, len(points)) - sums(to, density, len(points)))
        jumps = sums(from_[single], count[single], len(points))
        grown = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(points))])
        at_most = grown + np.cumsum(jumps)
        wanted = fraction * float(count.sum())
        at = min(int(np.searchsorted(at_most, wanted * (1 - 1e-12))), len(points) - 1)
        missing = at_most[at] - jumps[at] - wanted
        if at == 0 or missing <= 0:
            return float(points[at])
        return float(points[at] - missing / rate[at - 1])

    def _columns(self) -> tuple[F64, F64, F64]:
        count, first, last = np.array(self._spans, np.float64).reshape(-1, 3).T
        return count, first, last
