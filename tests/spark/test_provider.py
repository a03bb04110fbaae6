"""What Spark asks of a state store: versions, retries, branches, scans, families; called as operators do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark_core


def refused(call: Any, *arguments: Any) -> str:
    """What the exception says that a call ends with; some of Java's become Python's own on the way."""
    with pytest.raises((Py4JJavaError, PySparkException)) as caught:
        call(*arguments)
    return f"{type(caught.value).__name__} {caught.value}"


def test_what_was_committed_is_there_for_another_executor(provider_of: Any) -> None:
    store = provider_of().open(0)
    assert store.get("a", 1) is None
    store.put("a", 1, 10)
    store.put("b", 2, 20)
    store.put("b", 2, 21)
    store.remove("a", 1)
    first = store.commit()
    second = provider_of().open(1, first)
    assert second.all() == [("b", 2, 21)]
    second.put("c", 3, 30)
    last = second.commit()
    assert sorted(provider_of().open(2, last).all()) == [("b", 2, 21), ("c", 3, 30)]


def test_an_aborted_batch_leaves_nothing(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 10)
    first = store.commit()
    store = provider.open(1, first)
    store.put("a", 1, 11)
    store.put("b", 1, 12)
    store.remove("a", 1)
    store.abort()
    assert provider.open(1, first).all() == [("a", 1, 10)]


def test_a_retry_after_a_commit_starts_from_the_version_before(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 10)
    store.put("gone", 1, 1)
    first = store.commit()
    store = provider.open(1, first)
    store.put("a", 1, 11)
    store.remove("gone", 1)
    store.put("new", 1, 1)
    lost = store.commit()
    retry = provider.open(1, first)
    assert sorted(retry.all()) == [("a", 1, 10), ("gone", 1, 1)]
    retry.put("a", 1, 12)
    kept = retry.commit()
    for executor in (provider, provider_of()):
        store = executor.open(2, kept)
        assert sorted(store.all()) == [("a", 1, 12), ("gone", 1, 1)]
        store.abort()
        store = executor.open(2, lost)
        assert sorted(store.all()) == [("a", 1, 11), ("new", 1, 1)]
        store.abort()


def test_two_attempts_at_the_first_batch_both_stay(provider_of: Any) -> None:
    """Speculation: Spark decides later which of the two counts."""
    one, other = provider_of().open(0), provider_of().open(0)
    one.put("a", 1, 1)
    other.put("a", 1, 2)
    other.put("b", 1, 2)
    first, second = one.commit(), other.commit()
    assert provider_of().open(1, first).all() == [("a", 1, 1)]
    assert sorted(provider_of().open(1, second).all()) == [("a", 1, 2), ("b", 1, 2)]


def test_a_store_is_open_once_and_free_after_release(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    reader = provider.read(1, first)
    assert reader.get("a", 1) == 1
    reader.java.release()
    reader.java.release()
    writer = provider.open(1, first)
    writer.put("a", 1, 2)
    assert writer.commit() != first


def test_a_store_that_was_read_can_be_written(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    reader = provider.read(1, first)
    assert "reading" in refused(reader.put, "a", 1, 2)
    option = provider.jvm.scala.Option.apply(first)
    written = provider.java.upgradeReadStoreToWriteStore(reader.java, 1, option, False)
    assert written.equals(reader.java)
    reader.put("a", 1, reader.get("a", 1) + 1)
    second = reader.commit()
    assert provider.open(2, second).get("a", 1) == 2


def test_nothing_is_done_after_the_end(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    store.commit()
    assert "committed" in refused(store.put, "a", 1, 2)
    assert "committed" in refused(store.commit)
    assert store.java.metrics().numKeys() == 1
    store.abort()
    assert store.java.hasCommitted()


def test_versions_that_do_not_exist_are_spark_errors(provider_of: Any) -> None:
    provider = provider_of()
    missing = refused(provider.open, 1)
    assert "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE]" in missing
    assert "version 1 of namespace spark/" in missing
    assert "answered, so this is no outage" in missing
    assert "[CANNOT_LOAD_STATE_STORE.UNEXPECTED_VERSION]" in refused(provider.open, -1)
    provider.open(0).abort()


def test_null_is_no_value_and_no_key(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    key, value = provider.rows.key("a", 1), provider.rows.value(1)
    assert "IllegalArgumentException" in refused(store.java.put, key, None, "default")
    assert "Key cannot be null" in refused(store.java.put, None, value, "default")
    assert "Key cannot be null" in refused(store.java.get, None, "default")


def test_an_empty_store_can_be_asked_for(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    store.commit()
    assert provider.open(1, empty=True).all() == []


def test_what_is_committed_on_an_empty_store_has_no_past(provider_of: Any) -> None:
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 1)
    first = store.commit()
    provider.open(1, empty=True).abort()
    store = provider.open(1, first)
    assert store.all() == [("a", 1, 1)]
    store.abort()
    store = provider.open(1, empty=True)
    store.put("b", 1, 2)
    second = store.commit()
    for executor in (provider, provider_of()):
        assert executor.open(2, second).all() == [("b", 1, 2)]


def test_removing_while_iterating(provider_of: Any) -> None:
    store = provider_of().open(0)
    for number in range(100):
        store.put("k", number, number)
    seen = []
    pairs = store.java.iterator("default")
    while pairs.hasNext():
        key = pairs.next().key()
        word, number = key.getUTF8String(0).toString(), key.getInt(1)
        if word == "k":
            seen.append(number)
            store.remove("k", number)
            store.put("later", number, number)
    assert sorted(seen) == list(range(100))
    assert sorted(store.all()) == [("later", number, number) for number in range(100)]


def test_prefix_scans_see_what_was_just_put(provider_of: Any) -> None:
    provider = provider_of(spec="prefix")
    store = provider.open(0)
    for word in ("a", "ab", "b"):
        for number in (3, 1, 2):
            store.put(word, number, number)
    assert sorted(store.starting_with("a")) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    first = store.commit()
    store = provider_of(spec="prefix").open(1, first)
    store.put("b", 9, 9)
    store.remove("b", 1)
    assert sorted(store.starting_with("b")) == [("b", 2, 2), ("b", 3, 3), ("b", 9, 9)]
    assert store.starting_with("c") == []


def test_families_are_apart_and_survive(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = provider.open(0)
    store.create("words", provider.spec("none"))
    store.create("$timers", provider.range_spec(), internal=True)
    store.put("a", 1, 1)
    store.put("a", 1, 2, "words")
    for number in (5, -3, 40, 0):
        store.put("t", number, number, "$timers")
    first = store.commit()
    assert store.java.metrics().numKeys() == 2  # without Spark's own
    provider = provider_of(families=True)
    store = provider.open(1, first)
    assert "words" in refused(store.get, "a", 1, "words")
    store.create("words", provider.spec("none"))
    store.create("$timers", provider.range_spec(), internal=True)
    assert (store.get("a", 1), store.get("a", 1, "words")) == (1, 2)
    assert [number for _, number, _ in store.all("$timers")] == [-3, 0, 5, 40]
    assert store.java.removeColFamilyIfExists("words")
    assert not store.java.removeColFamilyIfExists("words")
    second = store.commit()
    store = provider_of(families=True).open(2, second)
    names = store.java.allColumnFamilyNames()
    assert names.contains("$timers")
    assert not names.contains("words")


def test_a_family_whose_removal_is_aborted_is_still_there(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = provider.open(0)
    store.create("words", provider.spec("none"))
    store.put("a", 1, 2, "words")
    first = store.commit()
    store = provider.open(1, first)
    store.java.removeColFamilyIfExists("words")
    store.abort()
    store = provider.open(1, first)
    store.create("words", provider.spec("none"))
    assert store.all("words") == [("a", 1, 2)]


def test_ranges_are_scanned_and_deleted_in_order(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = provider.open(0)
    store.create("times", provider.range_spec())
    for number in range(-5, 6):
        store.put("t", number, number, "times")
    some = provider.jvm.scala.Option.apply
    low, high = provider.rows.key("", -2), provider.rows.key("", 3)
    assert [n for _, n, _ in store.read(store.java.rangeScan(some(low), some(high), "times"))] == [
        -2,
        -1,
        0,
        1,
        2,
    ]
    store.java.deleteRange(low, high, "times")
    first = store.commit()
    store = provider_of(families=True).open(1, first)
    store.create("times", provider.range_spec())
    assert [n for _, n, _ in store.all("times")] == [-5, -4, -3, 3, 4, 5]


def test_several_values_of_a_key_are_kept_in_order(provider_of: Any) -> None:
    provider = provider_of(families=True)
    store = provider.open(0)
    store.create("list", provider.spec("none"), several=True)
    assert store.values("a", 1, "list") == []
    store.merge("a", 1, 1, 2, family="list")
    store.merge("a", 1, 3, family="list")
    first = store.commit()
    store = provider.open(1, first)
    store.merge("a", 1, 4, family="list")
    assert store.values("a", 1, "list") == [1, 2, 3, 4]
    store.abort()
    store = provider_of(families=True).open(1, first)
    store.create("list", provider.spec("none"), several=True)
    assert store.values("a", 1, "list") == [1, 2, 3]
    assert "several values" in refused(store.values, "a", 1, "default")


class TestFormat1:
    """Spark names versions only: of two attempts at one the last wins, and what builds on it stays."""

    @pytest.fixture(autouse=True)
    def _format_1(self, spark: SparkSession) -> Iterator[None]:
        setting = "spark.sql.streaming.stateStore.checkpointFormatVersion"
        before = spark.conf.get(setting)
        spark.conf.set(setting, "1")
        yield
        spark.conf.set(setting, str(before))

    def test_the_last_attempt_at_a_version_wins(self, provider_of: Any) -> None:
        one, other = provider_of(), provider_of()
        store = one.open(0)
        store.put("a", 1, 1)
        store.java.commit()
        for executor, value in ((one, 2), (other, 3)):
            store = executor.open(1)
            store.put("a", 2, value)
            store.java.commit()
        # What the first has in memory as version 2 counts no more.
        for executor in (one, other, provider_of()):
            store = executor.open(2)
            assert sorted(store.all()) == [("a", 1, 1), ("a", 2, 3)]
            store.abort()

    def test_an_attempt_that_is_late_replaces_nothing(self, provider_of: Any) -> None:
        executor = provider_of()
        store = executor.open(0)
        store.put("a", 1, 1)
        store.java.commit()
        late = provider_of().open(1)
        late.put("a", 2, 2)
        for number in (2, 3):
            store = executor.open(number - 1)
            store.put("a", number, number)
            store.java.commit()
        assert "this attempt is late" in refused(late.java.commit)
        late.abort()
        store = executor.open(3)
        store.put("a", 4, 4)
        store.java.commit()
        assert sorted(provider_of().open(4).all()) == [("a", number, number) for number in range(1, 5)]

    def test_one_can_go_back(self, provider_of: Any) -> None:
        executor = provider_of()
        for number in range(4):
            store = executor.open(number)
            store.put("a", number, number)
            store.java.commit()
        for number in (1, 2):
            store = provider_of().open(number)
            store.put("b", number, number)
            store.java.commit()
        assert sorted(provider_of().open(3).all()) == [("a", 0, 0), ("b", 1, 1), ("b", 2, 2)]
        assert "does not hold version 4" in refused(provider_of().open, 4)
