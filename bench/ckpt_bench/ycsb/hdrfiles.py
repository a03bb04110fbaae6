"""HdrHistogram's files: interval logs and percentile distributions that its own tools read.

```
interval log (.hdr, as YCSB names it)
  #[…] comments: log format version, start time
  "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
  seconds since start, seconds, greatest value in ms, base64 of the histogram

compressed histogram, numbers big-endian
  0x1c849314   cookie, V2 compressed        4 bytes
  length of the rest                        4
  zlib of:
    0x1c849313 cookie, V2                   4
    length of the counts                    4
    0          index offset                 4
    3          significant digits           4
    1          least value told from 0      8
    HIGHEST    greatest value               8
    1.0        ratio of whole to real       8
    counts     from slot 0 to the last one used: ZigZag LEB128; a negative number is a run of zeroes
```
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from ckpt_bench.ycsb.histogram import BUCKETS, DIGITS, HIGHEST_US, LatencyHistogram, slot_bounds_us

_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")
_TICKS_PER_HALF = 5


def compressed(histogram: LatencyHistogram) -> str:
    """The histogram as one word of an interval log."""
    counts = _counts(histogram)
    header = _HEADER.pack(_COOKIE, len(counts), 0, DIGITS, 1, HIGHEST_US, 1.0)
    packed = zlib.compress(header + counts)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed).decode()


def _counts(histogram: LatencyHistogram) -> bytes:
    out = bytearray()
    before = 0
    for slot in histogram.used.tolist():
        if slot > before:
            _put(out, before - slot)
        _put(out, int(histogram.counts[slot]))
        before = slot + 1
    return bytes(out)


def _put(out: bytearray, number: int) -> None:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    for _ in range(8):
        if left < 0x80:
            break
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)  # the ninth octet is a whole one


class Writable(Protocol):
    """Where text goes."""

    def write(self, text: str, /) -> object: ...


class IntervalLog:
    """One operation's interval log, written as the run goes on."""

    def __init__(self, file: Writable, name: str, started_s: float) -> None:
        self._file = file
        self._started_s = started_s
        day = datetime.fromtimestamp(started_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
        file.write(
            f"#[Logging for: {name}]\n#[Histogram log format version 1.2]\n"
            f"#[StartTime: {started_s:.3f} (seconds since epoch), {day}]\n"
            f"#[BaseTime: {started_s:.3f} (seconds since epoch)]\n"
            '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        )

    def write(self, interval: LatencyHistogram, from_s: float, to_s: float) -> None:
        """Add what happened between these times, in seconds since the epoch."""
        self._file.write(
            f"{from_s - self._started_s:.3f},{to_s - from_s:.3f},{interval.max_us / 1000:.3f},"
            f"{compressed(interval)}\n"
        )


def distribution(histogram: LatencyHistogram) -> Iterable[str]:
    """The lines of a percentile distribution (.hgrm) in microseconds, finer towards the end."""
    yield f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}"
    yield ""
    seen = 0
    threshold = 0.0
    used = histogram.used.tolist()
    for slot in used:
        seen += int(histogram.counts[slot])
        share = seen / histogram.total
        if share < threshold and slot != used[-1]:
            continue
        value = slot_bounds_us(slot)[1]
        if share < 1:
            yield f"{value:12.3f} {share:2.12f} {seen:10d} {1 / (1 - share):14.2f}"
        else:
            yield f"{value:12.3f} {1:2.12f} {seen:10d}"
        while threshold <= share < 1:
            halvings = int(-math.log2(1 - threshold)) + 1
            threshold += 1 / (_TICKS_PER_HALF * (1 << halvings))
    yield f"#[Mean    = {histogram.mean_us:12.3f}, StdDeviation   = {histogram.deviation_us:12.3f}]"
    yield f"#[Max     = {histogram.max_us:12.3f}, Total count    = {histogram.total:12d}]"
    yield f"#[Buckets = {BUCKETS:12d}, SubBuckets     = {2048:12d}]"
