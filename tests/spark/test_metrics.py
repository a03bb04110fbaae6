"""What a query reports about its state, and what its sidecar can be asked."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from pyspark.sql import DataFrame


def counts(stream: Any) -> DataFrame:
    rows: DataFrame = stream.stream().groupBy("word").count()
    return rows


def test_a_batch_says_what_its_commits_took(stream_of: Any) -> None:
    stream = stream_of("in", "word string")
    for words in ("be or not to be", "that is the question"):
        stream.feed([{"word": word} for word in words.split()])
    query = stream.run(counts(stream), "update")
    for batch in query.recentProgress[:2]:
        (operator,) = batch.stateOperators
        reported = operator.customMetrics
        assert operator.numStateStoreInstances == reported["ckptCommits"] == reported["ckptRoundTrips"] == 3
        assert 1 <= reported["ckptDurableWrites"] <= 6
        assert reported["ckptCommitBytes"] > 0
        assert operator.numRowsUpdated == 4
    assert reported["ckptOpenedFromMemory"] == 3


def test_a_repeated_request_is_a_round_trip_more(provider_of: Any, sidecars: Any, tmp_path: Path) -> None:
    own = {"address": f"log://{tmp_path}/log"}
    others = set(sidecars())
    provider = provider_of(settings=own)
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    (sidecar,) = set(sidecars()) - others
    os.kill(sidecar, signal.SIGKILL)
    store = provider.open(1, first)
    store.put("a", 1, 2)
    second = store.commit()
    assert store.metric("ckptRoundTrips") == 2
    store = provider.open(2, second)
    store.commit()
    assert store.metric("ckptRoundTrips") == 1
    for mine in set(sidecars()) - others:
        os.kill(mine, signal.SIGKILL)


def test_the_sidecar_of_a_host_can_be_scraped(provider_of: Any, sidecars: Any, tmp_path: Path) -> None:
    others = set(sidecars())
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    store = provider_of(settings={"address": f"log://{tmp_path}/log", "metrics": place}).open(0)
    store.put("a", 1, 1)
    store.commit()
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=30) as page:
        assert "\nckpt_sidecar_commits_total 1\n" in page.read().decode()
    for mine in set(sidecars()) - others:
        os.kill(mine, signal.SIGKILL)
