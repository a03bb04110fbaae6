"""Latencies in HdrHistogram's buckets: three significant digits, from 1 µs to 38 hours.

Bucket b holds values from 2^(b+10) to 2^(b+11), the first also all below, each in 1,024 equal slots. So a
value is off by less than a thousandth, and two histograms are added slot by slot. Recording takes a whole
array at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

DIGITS = 3
HIGHEST_US = (1 << 37) - 1
BUCKETS = 27
_HALF_BITS = 10
_HALF = 1 << _HALF_BITS
_SLOTS = (37 - _HALF_BITS + 1) << _HALF_BITS


def _slots_of(values_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bits = np.frexp(values_us.astype(np.float64))[1].astype(np.int64)
    bucket = np.maximum(bits - _HALF_BITS - 1, 0)
    return (bucket << _HALF_BITS) + (values_us >> bucket)


def slot_bounds_us(slot: int) -> tuple[int, int]:
    """The least and the greatest value of a slot.

    Examples
    --------
    >>> slot_bounds_us(5), slot_bounds_us(2048 + 1), slot_bounds_us(2048 + 1024)
    ((5, 5), (2050, 2051), (4096, 4099))
    """
    bucket = max((slot >> _HALF_BITS) - 1, 0)
    least = slot - (bucket << _HALF_BITS) << bucket
    return least, least + (1 << bucket) - 1


class LatencyHistogram:
    """How often each latency occurred; percentiles are those that HdrHistogram reports for the same values.

    Examples
    --------
    >>> histogram = LatencyHistogram()
    >>> histogram.record(np.array([10, 20, 30, 5000]))
    >>> histogram.total, histogram.min_us, histogram.max_us, histogram.percentile_us(50)
    (4, 10, 5003, 20)
    """

    def __init__(self) -> None:
        self.counts = np.zeros(_SLOTS, np.int64)
        self.total = 0

    def record(self, values_us: npt.NDArray[np.int64]) -> None:
        """Count each of the values once."""
        if len(values_us):
            slots = _slots_of(np.clip(values_us, 0, HIGHEST_US))
            most = int(slots.max()) + 1
            self.counts[:most] += np.bincount(slots, minlength=most)
            self.total += len(values_us)

    def add(self, other: LatencyHistogram) -> None:
        """Count everything that the other one has counted too."""
        self.counts += other.counts
        self.total += other.total

    def percentile_us(self, percentile: float) -> int:
        """So many per cent of the values are this or less; 0 if there is none."""
        if not self.total:
            return 0
        # a hair less, so that 99.9 % of 1,000 is 999 whatever the product is in binary
        rank = max(math.ceil(math.nextafter(percentile, 0) / 100 * self.total), 1)
        slot = int(np.searchsorted(np.cumsum(self.counts), rank))
        return slot_bounds_us(slot)[1]

    @property
    def used(self) -> npt.NDArray[np.int64]:
        """The slots that counted something, in order."""
        return np.flatnonzero(self.counts)

    @property
    def min_us(self) -> int:
        """The least value, 0 if there is none."""
        return slot_bounds_us(int(self.used[0]))[0] if self.total else 0

    @property
    def max_us(self) -> int:
        """The greatest value, 0 if there is none."""
        return slot_bounds_us(int(self.used[-1]))[1] if self.total else 0

    @property
    def mean_us(self) -> float:
        """The mean, as exact as slots are."""
        if not self.total:
            return 0.0
        used = self.used
        return float(_middles_us(used) @ self.counts[used]) / self.total

    @property
    def deviation_us(self) -> float:
        """The standard deviation, as exact as slots are."""
        if not self.total:
            return 0.0
        used = self.used
        return math.sqrt(float(((_middles_us(used) - self.mean_us) ** 2) @ self.counts[used]) / self.total)


def _middles_us(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """What HdrHistogram takes the values of each slot for in a mean."""
    return np.array([(low + high + 1) // 2 for low, high in map(slot_bounds_us, slots.tolist())], np.float64)
