"""With `recovery=lazy` a store is open at once, and its keys come when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from tests.effort import effort

PREFIX = "spark.sql.streaming.stateStore.ckpt"
KEYS = 40
MOST_FETCHES = 16
"""A store that is so small is loaded after so many."""


@pytest.fixture(autouse=True)
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Lazy recovery for providers that are made from now on; sets others of the provider's settings too."""
    used = {f"{PREFIX}.recovery"}

    def change(name: str, value: str) -> None:
        used.add(f"{PREFIX}.{name}")
        spark.conf.set(f"{PREFIX}.{name}", value)

    change("recovery", "lazy")
    yield change
    for name in used:
        spark.conf.unset(name)


def committed(provider: Any, values: dict[int, int]) -> str:
    """Version 1 with these values."""
    store = provider.open(0)
    for number, value in values.items():
        store.put("k", number, value)
    return str(store.commit())


def fetched(store: Any) -> int:
    """How many keys a store that has committed had fetched one by one."""
    found = store.java.metrics().customMetrics().toSeq()
    pairs = (found.apply(at) for at in range(found.size()))
    return int(next(pair._2() for pair in pairs if pair._1().name() == "ckptFetchedKeys"))


def test_keys_are_fetched_once_and_commits_need_no_others(provider_of: Any) -> None:
    first = committed(provider_of(), {number: number for number in range(KEYS)})
    provider = provider_of()
    store = provider.open(1, first)
    for _ in range(2):
        assert store.get("k", 3) == 3
        assert store.get("k", KEYS) is None
    store.put("k", 5, -5)
    store.remove("k", 6)
    store.put("k", KEYS, KEYS)
    assert store.get("k", 6) is None
    second = store.commit()
    assert fetched(store) == 4
    assert store.java.metrics().numKeys() == KEYS
    store = provider.open(2, second)
    assert store.get("k", 6) is None
    assert store.get("k", 5) == -5
    store.put("k", 5, -6)
    store.abort()
    store = provider.open(1, first)  # the batch before is run again
    assert [store.get("k", number) for number in (5, 6, 7, KEYS)] == [5, 6, 7, None]
    store.remove("k", 7)
    other = store.commit()
    assert store.java.metrics().numKeys() == KEYS - 1
    there = sorted(row[1] for row in provider_of().open(2, other).all())
    assert there == [number for number in range(KEYS) if number != 7]
    assert len(provider_of().open(2, second).all()) == KEYS


def test_whoever_iterates_or_asks_for_many_loads_the_rest(provider_of: Any) -> None:
    expected = {number: number for number in range(KEYS)}
    first = committed(provider_of(), expected)
    store = provider_of().open(1, first)
    store.put("k", 1, -1)
    store.remove("k", 2)
    store.get("k", -1)
    rows = {row[1]: row[2] for row in store.all()}
    assert rows == {**{n: n for n in expected if n != 2}, 1: -1}
    store.commit()
    assert fetched(store) == 3
    assert store.java.metrics().numKeys() == KEYS - 1
    store = provider_of().open(1, first)
    for number in range(KEYS):
        assert store.get("k", number) == number
    store.commit()
    assert fetched(store) == MOST_FETCHES
    assert store.java.metrics().numKeys() == KEYS


def test_families_and_lists_come_when_they_are_asked_for(provider_of: Any) -> None:
    def open_with_families(version: int, commit: str | None) -> Any:
        provider = provider_of(families=True)
        store = provider.open(version, commit)
        store.create("lists", provider.spec("none"), several=True)
        store.create("sorted", provider.range_spec())
        return store

    store = open_with_families(0, None)
    for number in (2, 1):
        store.merge("k", number, number, number + 10, family="lists")
        store.put("k", number, number, family="sorted")
    commit = store.commit()
    store = open_with_families(1, commit)
    assert store.values("k", 1, "lists") == [1, 11]
    store.merge("k", 1, 21, family="lists")
    store.merge("k", 3, 3, family="lists")
    commit = store.commit()
    assert store.java.metrics().numKeys() == 5
    store = open_with_families(2, commit)
    assert store.values("k", 1, "lists") == [1, 11, 21]
    assert store.all("sorted") == [("k", 1, 1), ("k", 2, 2)]
    assert store.values("k", 2, "lists") == [2, 12]
    store.create("new", provider_of(families=True).spec("none"))
    store.put("k", 9, 9, family="new")
    commit = store.commit()
    store = provider_of(families=True).open(3, commit)
    names = store.java.allColumnFamilyNames().toSeq()
    assert {names.apply(at) for at in range(names.size())} == {"default", "lists", "sorted", "new"}


numbers = st.integers(0, KEYS + 5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("get"), numbers),
        st.tuples(st.just("get"), numbers),
        st.tuples(st.just("put"), numbers, st.integers(0, 9)),
        st.tuples(st.just("remove"), numbers),
        st.tuples(st.just("iterate")),
        st.tuples(st.just("commit")),
        st.tuples(st.just("retry")),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


class Run:
    """A store, batch after batch, and what it should hold."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._provider = make()
        self.now = {number: number for number in range(KEYS)}
        self._commits: list[str | None] = [None, committed(self._provider, self.now)]
        self._states: list[dict[int, int]] = [{}, dict(self.now)]
        self.restart()

    def get(self, number: int) -> None:
        assert self._store.get("k", number) == self.now.get(number)

    def put(self, number: int, value: int) -> None:
        self._store.put("k", number, value)
        self.now[number] = value

    def remove(self, number: int) -> None:
        self._store.remove("k", number)
        self.now.pop(number, None)

    def iterate(self) -> None:
        assert {row[1]: row[2] for row in self._store.all()} == self.now

    def commit(self) -> None:
        self._commits.append(self._store.commit())
        assert self._store.java.metrics().numKeys() == len(self.now)
        self._states.append(dict(self.now))
        self._open()

    def retry(self) -> None:
        """The batch, or the one before if it has committed."""
        self._store.abort()
        if len(self._commits) > 2:
            self._commits.pop()
            self._states.pop()
        self._open()

    def restart(self) -> None:
        self._provider.java.close()
        self._provider = self._make()
        self._open()

    def end(self) -> None:
        self.iterate()
        self._store.abort()
        self._provider.java.close()

    def _open(self) -> None:
        self._store = self._provider.open(len(self._commits) - 1, self._commits[-1])
        self.now = dict(self._states[-1])


@pytest.mark.parametrize("memory", ["off", "0"])
@settings(
    max_examples=effort(8, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=steps)
def test_a_lazy_store_is_like_a_dictionary(
    memory: str,
    provider_of: Any,
    setting: Callable[[str, str], None],
    tmp_path: Path,
    script: list[tuple[Any, ...]],
) -> None:
    setting("memory", memory)
    run = Run(lambda: provider_of(root=tmp_path / "state"))
    for action, *arguments in script:
        getattr(run, action)(*arguments)
    run.end()


def test_a_query_goes_on_with_the_keys_that_it_needs(stream_of: Any) -> None:
    stream = stream_of("in", "word string")
    stream.feed([{"word": f"w{n}"} for n in range(200)])
    stream.run(stream.stream().groupBy("word").count(), "update")
    stream.feed([{"word": f"w{n}"} for n in (1, 1, 2, 300)])
    started = stream.run(stream.stream().groupBy("word").count(), "update")
    last = {row["word"]: row["count"] for row in stream.batches[-1]}
    assert last == Counter(w1=3, w2=2, w300=1)
    (operator,) = started.lastProgress["stateOperators"]
    assert operator["numRowsTotal"] == 201
    assert operator["customMetrics"]["ckptFetchedKeys"] == 3


def test_a_word_that_is_none_is_refused(provider_of: Any, setting: Callable[[str, str], None]) -> None:
    setting("recovery", "later")
    with pytest.raises((Py4JJavaError, PySparkException), match="recovery is 'later'; it is either"):
        provider_of()
