"""State is stored as docs/spark.md says: lists by their tails, and a catalogue to read everything by."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pyspark

import ckpt

pytestmark = pytest.mark.spark_core

CATALOGUE = b"\xff\xff"
LIST = "list"


def with_list(provider: Any, store: Any) -> Any:
    """The store, and in it a family with several values for each key."""
    store.create(LIST, provider.spec("none"), several=True)
    return store


def rows_of(address: str, namespace: str) -> dict[bytes, bytes]:
    with ckpt.open_backend(address, mode="read") as backend:
        return dict(backend.scan(namespace))


def test_a_merge_commits_the_tail_of_a_list(provider_of: Any, address: str) -> None:
    provider = provider_of(families=True)
    store = with_list(provider, provider.open(0))
    store.merge("a", 1, *range(1000), family=LIST)
    commit_id = store.commit()
    whole_bytes = store.metric("ckptCommitBytes")
    committed = []
    for version in range(1, 41):
        store = with_list(provider, provider.open(version, commit_id))
        store.merge("a", 1, 999 + version, family=LIST)
        commit_id = store.commit()
        committed.append(store.metric("ckptCommitBytes"))
    assert max(committed) < whole_bytes / 10
    rows = rows_of(address, provider.namespace)
    assert 2 <= sum(key.startswith(b"\x00\x01") for key in rows) <= 8
    restarted = provider_of(families=True)
    store = with_list(restarted, restarted.open(41, commit_id))
    assert store.values("a", 1, LIST) == list(range(1040))
    assert store.java.metrics().numKeys() == 0  # nothing is known before the commit
    store.commit()
    assert store.java.metrics().numKeys() == 1  # one key, however many rows


def test_merges_are_undone_by_abort_and_by_a_retry(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = with_list(provider, provider.open(0))
    store.merge("a", 1, *range(200), family=LIST)
    store.merge("b", 1, 7, family=LIST)
    first = store.commit()
    store = with_list(provider, provider.open(1, first))
    store.merge("a", 1, *range(1000), family=LIST)
    store.remove("b", 1, LIST)
    store.abort()
    store = with_list(provider, provider.open(1, first))
    assert store.values("a", 1, LIST) == list(range(200))
    store.put_list("a", 1, 5, 6, family=LIST)
    store.merge("b", 1, 8, family=LIST)
    lost = store.commit()
    retry = with_list(provider, provider.open(1, first))
    assert (retry.values("a", 1, LIST), retry.values("b", 1, LIST)) == (list(range(200)), [7])
    retry.merge("a", 1, 200, family=LIST)
    kept = retry.commit()
    for executor in (provider, provider_of(families=True)):
        store = with_list(executor, executor.open(2, kept))
        assert (store.values("a", 1, LIST), store.values("b", 1, LIST)) == (list(range(201)), [7])
        store.abort()
        store = with_list(executor, executor.open(2, lost))
        assert (store.values("a", 1, LIST), store.values("b", 1, LIST)) == ([5, 6], [7, 8])
        store.abort()


def test_two_attempts_that_merge_both_stay(provider_of: Any) -> None:
    """Speculation: each goes on from the same list, and Spark says later which one counts."""
    provider = provider_of(families=True)
    store = with_list(provider, provider.open(0))
    store.merge("a", 1, *range(100), family=LIST)
    first = store.commit()
    attempts = {}
    for mark in (1, 2):
        executor = provider_of(families=True)
        store = with_list(executor, executor.open(1, first))
        store.merge("a", 1, *[mark] * (mark * 100), family=LIST)
        attempts[mark] = store.commit()
    for mark, commit_id in attempts.items():
        executor = provider_of(families=True)
        store = with_list(executor, executor.open(2, commit_id))
        assert store.values("a", 1, LIST) == [*range(100), *[mark] * (mark * 100)]


def test_the_first_of_several_values_is_the_value(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = with_list(provider, provider.open(0))
    store.put("a", 1, 3, LIST)
    store.merge("a", 1, *range(300), family=LIST)
    assert store.get("a", 1, LIST) == 3
    assert store.all(LIST) == [("a", 1, 3)]
    pairs = store.read(store.java.iteratorWithMultiValues(LIST))
    assert [value for _, _, value in pairs] == [3, *range(300)]
    store.put_list("a", 1, family=LIST)
    assert store.values("a", 1, LIST) == []
    assert store.all(LIST) == []


def test_the_catalogue_describes_every_family(provider_of: Any, address: str, tmp_path: Path) -> None:
    provider = provider_of(families=True, spec="prefix")
    store = with_list(provider, provider.open(0))
    store.create("$timers", provider.range_spec(), internal=True)
    store.merge("a", 1, *range(500), family=LIST)
    store.merge("b", 1, 1, family=LIST)
    store.put("a", 1, 1)
    store.commit()
    rows = {
        key.removeprefix(CATALOGUE): value
        for key, value in rows_of(address, provider.namespace).items()
        if key.startswith(CATALOGUE)
    }
    counts = rows.pop(b"\x01")
    (number,) = struct.unpack_from(">H", counts)
    assert list(struct.iter_unpack(">HQ", counts[2:])) == [(0, 1), (1, 2), (2, 0)]
    assert number == 3
    assert json.loads(rows.pop(b"\x00")) == {
        "format": 1,
        "spark": pyspark.__version__,
        "checkpoint": str(tmp_path / "state"),
        "query": "",
    }
    described = {name.decode(): json.loads(row) for name, row in rows.items()}
    assert {name: (row["id"], row["internal"], row["multiple"]) for name, row in described.items()} == {
        "default": (0, False, False),
        LIST: (1, False, True),
        "$timers": (2, True, False),
    }
    assert described["default"]["keyEncoder"] == {"type": "prefix", "columns": 1}
    assert described["$timers"]["keyEncoder"] == {"type": "range", "ordinals": [1]}
    assert described[LIST]["keyEncoder"] == {"type": "noPrefix"}
    for row in described.values():
        assert (row["format"], row["encoding"]) == (1, "unsaferow")
        assert [field["name"] for field in row["keySchema"]["fields"]] == ["word", "number"]
        assert [field["type"] for field in row["valueSchema"]["fields"]] == ["integer"]


def test_what_did_not_change_is_not_committed_again(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    assert store.metric("ckptCommitBytes") > 8
    store = provider.open(1, first)
    store.commit()
    assert store.metric("ckptCommitBytes") == 8  # the numbers of puts and of deletes, and nothing else
