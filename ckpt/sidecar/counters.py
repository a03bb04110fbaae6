"""What a sidecar has done since it started, as numbers that never run backwards."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

from ckpt.keeper.metrics import Page

_ABOUT = {
    "commits": "Commits that were answered as durable.",
    "commits_repeated": "Of these, repeated requests whose commit was there already.",
    "commit_rows": "Rows put and keys deleted by commits.",
    "commit_bytes": "Bytes of keys and values in commits.",
    "commit_seconds": "Seconds that commits took in the backend, summed over connections.",
    "loads": "Namespaces that were loaded to their end.",
    "load_rows": "Rows sent by loads.",
    "load_bytes": "Bytes of keys and values sent by loads.",
    "load_seconds": "Seconds that loads took, sending included.",
    "gets": "Requests for single keys.",
    "get_rows": "Rows sent for single keys.",
    "truncates": "Truncations.",
    "drops": "Dropped namespaces.",
    "errors": "Requests that ended with an error.",
    "connections": "Connections that said hello and were let in.",
    "refused": "Connections that were not let in, or were cut for breaking the protocol.",
    "slow": "Connections that were cut because their peer was stuck inside a frame.",
}
_GAUGES = {
    "connections_open": "Connections right now.",
    "lifelines": "Connections that keep this sidecar alive.",
    "uptime_seconds": "Seconds since it started.",
    "group_size": "Commits for each time that the backend made something durable.",
}


class Counters:
    """Counts of one sidecar; any thread may add and read.

    Examples
    --------
    >>> counters = Counters()
    >>> counters.add(commits=1, commit_rows=500)
    >>> counters.add(commits=1, commit_rows=300)
    >>> counters.read()["commits"], counters.read()["commit_rows"]
    (2.0, 800.0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, float] = defaultdict(float, dict.fromkeys(_ABOUT, 0.0))
        self._started = time.monotonic()

    def add(self, **counts: float) -> None:
        """Count some more, all at one instant."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def read(self) -> dict[str, float]:
        """All counts of one instant, and for how long they were counted."""
        with self._lock:
            return {**self._counts, "uptime_seconds": time.monotonic() - self._started}


def prometheus_text(stats: Mapping[str, float]) -> str:
    """What STATS answers, in Prometheus' text format.

    Examples
    --------
    >>> print(prometheus_text({"commits": 3.0, "lifelines": 1.0}), end="")
    # HELP ckpt_sidecar_commits_total Commits that were answered as durable.
    # TYPE ckpt_sidecar_commits_total counter
    ckpt_sidecar_commits_total 3
    # HELP ckpt_sidecar_lifelines Connections that keep this sidecar alive.
    # TYPE ckpt_sidecar_lifelines gauge
    ckpt_sidecar_lifelines 1
    """
    page = Page()
    for name, value in stats.items():
        if name in _GAUGES:
            page.add(f"ckpt_sidecar_{name}", "gauge", _GAUGES[name], [({}, value)])
        else:
            about = _ABOUT.get(name, "A count of the backend.")
            page.add(f"ckpt_sidecar_{name}_total", "counter", about, [({}, value)])
    return page.text()
