"""Metrics tell what happened, in a dictionary and in valid Prometheus text."""

from __future__ import annotations

import re
from typing import Any

import pytest

import ckpt
from ckpt.keeper.metrics import BucketHistogram

SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?P<labels>\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})?'
    r" (?P<value>\S+)$"
)


def parse(text: str) -> dict[tuple[str, str], float]:
    """Every sample of an exposition, after checking its grammar."""
    assert text.endswith("\n")
    samples: dict[tuple[str, str], float] = {}
    typed: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed
            assert kind in ("counter", "gauge", "histogram")
            typed[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match["name"])
            assert match["name"] in typed or typed.get(family) == "histogram", line
            key = (match["name"], match["labels"] or "")
            assert key not in samples
            samples[key] = float(match["value"])
    return samples


def test_the_dictionary_tells_what_happened(open_keeper: Any) -> None:
    keeper = open_keeper()
    words = keeper.namespace("words")
    for n in range(10):
        words.save(f"{n}", n)
    keeper.flush()
    words.update("live", 1)
    words.load("live")
    words.load("3")
    words.load("missing")
    metrics = keeper.metrics()
    assert metrics["namespaces"]["words"] == {
        "submitted": 10,
        "coalesced": 0,
        "dropped": 0,
        "failed": 0,
        "durable": 10,
        "pending": 0,
        "live_states": 1,
        "dirty_states": 1,
    }
    assert metrics["loads"] == {
        "live": 1,
        "queue": 0,
        "backend": 1,
        "missing": 1,
        "unavailable": 0,
        "unreadable": 0,
    }
    assert metrics["writes"]["batch_records"]["sum"] == 10
    assert metrics["writes"]["latency_s"]["count"] == 10
    assert metrics["writes"]["bytes"] > 100
    assert metrics["queue"] == {"depth": 0, "limit": 10_000, "stretch": 1.0, "deferred": 0}


def test_prometheus_text_is_valid_and_agrees(open_keeper: Any) -> None:
    keeper = open_keeper()
    hostile = 'a"b\\c\nd'
    keeper.namespace(hostile).save("k", 1)
    keeper.namespace("words").save("k", object())
    with pytest.raises(ckpt.SerializationError):
        keeper.flush()
    samples = parse(keeper.prometheus())
    assert samples["ckpt_saves_total", '{namespace="a\\"b\\\\c\\nd",outcome="durable"}'] == 1
    assert samples["ckpt_saves_total", '{namespace="words",outcome="failed"}'] == 1
    assert samples["ckpt_saves_submitted_total", '{namespace="words"}'] == 1
    assert samples["ckpt_breaker_state", '{state="closed"}'] == 1
    assert samples["ckpt_breaker_state", '{state="open"}'] == 0
    buckets = [v for (name, _), v in samples.items() if name == "ckpt_save_latency_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert (
        samples["ckpt_save_latency_seconds_bucket", '{le="+Inf"}']
        == samples["ckpt_save_latency_seconds_count", ""]
        == 1
    )


def test_an_idle_keeper_has_a_valid_page(open_keeper: Any) -> None:
    assert parse(open_keeper().prometheus())["ckpt_queue_depth", ""] == 0


def test_a_value_on_the_bound_belongs_to_the_bucket() -> None:
    histogram = BucketHistogram([1, 2])
    histogram.observe_many([1, 2, 3])
    assert histogram.read() == {"buckets": {1: 1, 2: 2}, "count": 3, "sum": 6.0}
