"""State that does not fit into memory is on local disk, and only the metrics tell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

MEMORY = "spark.sql.streaming.stateStore.ckpt.memory"


@pytest.fixture
def allow(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets how much memory stores may hold that are made from now on."""
    yield lambda amount: spark.conf.set(MEMORY, amount)
    spark.conf.unset(MEMORY)


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def metric(store: Any, name: str) -> int:
    """What a store that has committed reports."""
    found = store.java.metrics().customMetrics().toSeq()
    pairs = (found.apply(at) for at in range(found.size()))
    return int(next(pair._2() for pair in pairs if pair._1().name() == name))


@pytest.fixture
def scratch(spark: SparkSession, jvm: Any) -> Callable[[], Path]:
    """Says where this process spills to."""

    def find() -> Path:
        jvm.ckpt.spark.spill.Scratch.of(0)
        (root,) = Path(str(spark.conf.get("spark.local.dir"))).glob("ckpt-spill-*")
        (folder,) = (path for path in root.iterdir() if path.is_dir())
        return folder

    return find


def test_versions_on_disk_are_those_in_memory(provider_of: Any, allow: Callable[[str], None]) -> None:
    allow("0")
    provider = provider_of(spec="prefix")
    store = provider.open(0)
    for number in range(40):
        store.put("ab"[number % 2], number, number)
    first = store.commit()
    assert metric(store, "ckptSpilledKeys") == 0  # it was made in memory, and is moved now
    store = provider.open(1, first)
    assert store.starting_with("b") == [("b", number, number) for number in range(1, 40, 2)]
    store.remove("b", 1)
    store.put("b", 3, -3)
    store.put("b", 100, 100)
    assert [row[1] for row in store.starting_with("b")] == [*range(3, 40, 2), 100]
    lost = store.commit()
    assert metric(store, "ckptSpilledKeys") == 40
    store = provider.open(1, first)  # the batch is run again
    assert len(store.all()) == 40
    assert store.get("b", 1) == 1
    store.put("a", 0, -1)
    store.abort()
    second = provider.open(1, first)
    assert second.get("a", 0) == 0
    second.commit()
    allow("off")
    there = provider_of(spec="prefix").open(2, lost)
    assert there.starting_with("b")[0] == ("b", 3, -3)


@pytest.fixture
def held_bytes(jvm: Any, provider_of: Any, tmp_path: Path, allow: Callable[[str], None]) -> int:
    """What stores of other tests hold, after all of them that can be are moved to disk."""
    allow("0")
    provider_of(root=tmp_path / "any").open(0).commit()
    return int(jvm.ckpt.spark.spill.Budget.heldBytes())


def test_the_least_recently_used_store_makes_room(
    held_bytes: int, provider_of: Any, allow: Callable[[str], None], tmp_path: Path
) -> None:
    allow(f"{held_bytes + 36_000}b")

    def batch(provider: Any, version: int, commit: str | None) -> tuple[str, int]:
        store = provider.open(version, commit)
        for number in range(100):
            store.put("k", number, version)
        return store.commit(), metric(store, "ckptSpilledKeys")

    one, other = provider_of(root=tmp_path / "one"), provider_of(root=tmp_path / "other")
    first, _ = batch(one, 0, None)
    second, _ = batch(other, 0, None)
    assert batch(other, 1, second)[1] == 0
    assert batch(one, 1, first)[1] == 100


def test_state_that_fits_again_comes_back(
    held_bytes: int, provider_of: Any, allow: Callable[[str], None]
) -> None:
    allow(f"{held_bytes + 16_000}b")
    provider = provider_of()
    store = provider.open(0)
    for number in range(200):
        store.put("k", number, number)
    commit = store.commit()
    store = provider.open(1, commit)
    for number in range(195):
        store.remove("k", number)
    commit = store.commit()
    assert metric(store, "ckptSpilledKeys") == 5
    for version in (2, 3, 4):  # what undoes the removal is forgotten with its version
        store = provider.open(version, commit)
        commit = store.commit()
    assert metric(store, "ckptSpilledKeys") == 0
    assert sorted(row[1] for row in provider.open(5, commit).all()) == [*range(195, 200)]


def loaded_keys(state: Any, count: int) -> tuple[Any, list[bytes]]:
    """The default family, with that many keys as they come from the backend."""
    family = state.find("default").get()
    keys = [b"%04d" % number for number in range(count)]
    for key in keys:
        family.load(key + b"v", 0, len(key), len(key), 1)
    family.loaded()
    return family, keys


def test_an_iterator_over_what_was_loaded_tolerates_changes(jvm: Any) -> None:
    """What was there is seen once, as it is then, also what was changed before or is changed meanwhile."""
    family, keys = loaded_keys(jvm.ckpt.spark.state.StateMap(), 200)
    for key in keys[:20]:
        family.put(key, b"before")
    seen: dict[bytes, bytes] = {}
    ahead: set[bytes] = set()
    entries = family.all()
    family.put(b"new", b"before")  # Spark's suites ask that an iterator meets it
    while entries.hasNext():
        entry = entries.next()
        key = bytes(entry.key())
        assert key not in seen
        seen[key] = bytes(entry.value())
        if len(seen) % 3 == 0:  # another one, which may come, or has come
            other = keys[len(seen) % len(keys)]
            family.put(other, b"meanwhile")
            if other not in seen:
                ahead.add(other)
        elif key in keys[100:]:
            family.put(key, b"itself")
    assert set(seen) == {*keys, b"new"}
    for key, value in seen.items():
        expected = b"before" if key in (*keys[:20], b"new") else b"v"
        assert value == (b"meanwhile" if key in ahead else expected)


def test_an_iterator_tolerates_changes(jvm: Any) -> None:
    """Over several pieces: what was there is seen once, what is removed ahead of it is not."""
    state = jvm.ckpt.spark.state.StateMap()
    family, keys = loaded_keys(state, 400)
    state.spill(jvm.ckpt.spark.spill.Scratch.of(0).space())
    seen = []
    entries = family.all()
    while entries.hasNext():
        key = bytes(entries.next().key())
        seen.append(key)
        number = int(key)
        family.remove(key)
        family.put(key, b"again")
        if number % 10 == 0:
            family.remove(b"%04d" % (number + 5))
    assert seen == [key for key in keys if int(key) % 10 != 5]
    assert family.numKeys() == len(seen)
    state.revert()
    assert family.numKeys() == len(keys)
    with pytest.raises((Py4JJavaError, PySparkException), match="ends with the transaction"):
        _use_after(family, state)


def _use_after(family: Any, state: Any) -> None:
    entries = family.all()
    family.put(b"x", b"x")
    state.revert()
    entries.next()
    entries.next()


def test_a_disk_that_fails_loses_nothing(
    jvm: Any, scratch: Callable[[], Path], provider_of: Any, allow: Callable[[str], None]
) -> None:
    allow("0")
    provider = provider_of()
    store = provider.open(0)
    store.put("a", 1, 10)
    first = store.commit()
    state = jvm.ckpt.spark.state.StateMap()
    state.spill(jvm.ckpt.spark.spill.Scratch.of(0).space())
    shutil.rmtree(scratch())
    with pytest.raises((Py4JJavaError, PySparkException), match=r"cannot write .* free space there"):
        _write_on(jvm, state)
    assert state.isLost()
    store = provider.open(1, first)
    assert store.all() == [("a", 1, 10)]
    store.put("a", 1, 11)
    second = store.commit()
    assert provider.open(2, second).get("a", 1) == 11
    assert scratch().exists()


def _write_on(jvm: Any, state: Any) -> None:
    """Until buffers have to be written."""
    for version in range(1, 200):
        state.find("default").get().put(b"%d" % version, bytes(100_000))
        state.seal(jvm.ckpt.spark.state.CommitRef(version, jvm.scala.Option.empty()), 1)


def test_what_a_killed_process_left_behind_is_removed(jvm: Any, scratch: Callable[[], Path]) -> None:
    own = scratch()
    left = own.with_name("7d3f0c12-0000-4000-8000-000000000000")
    left.mkdir()
    (left / "000008.sst").write_bytes(b"rows")
    (left / "alive").touch()
    jvm.ckpt.spark.spill.ScratchFolder.removeStale()
    assert not left.exists()
    assert own.exists()
    assert own.stat().st_mode & 0o077 == 0
    assert own.parent.stat().st_mode & 0o077 == 0


@pytest.fixture
def spill_root(spark: SparkSession, jvm: Any, tmp_path: Path) -> Iterator[Path]:
    """Where this process would spill to if its local disk were this one; nothing is there yet."""
    conf, name = spark._jsc.sc().conf(), "spark.local.dir"
    before = conf.get(name)
    conf.set(name, str(tmp_path))
    yield tmp_path / f"ckpt-spill-{jvm.java.lang.System.getProperty('user.name')}"
    conf.set(name, before)


def test_a_spill_folder_that_others_may_write_to_becomes_private(jvm: Any, spill_root: Path) -> None:
    spill_root.mkdir()
    spill_root.chmod(0o777)
    made = jvm.ckpt.spark.spill.ScratchFolder.create()
    assert spill_root.stat().st_mode & 0o777 == 0o700
    made.delete()


@pytest.mark.parametrize("kind", ["link", "file", *(["of another user"] if os.geteuid() == 0 else [])])
def test_a_spill_folder_that_is_not_this_users_is_not_used(
    jvm: Any, spill_root: Path, tmp_path: Path, kind: str
) -> None:
    """Its owner could swap what is read, or hold its lock for ever."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        spill_root.symlink_to(elsewhere)
    elif kind == "file":
        spill_root.touch()
    else:
        spill_root.mkdir()
        spill_root.chmod(0o777)
        os.chown(spill_root, 65534, 65534)
        elsewhere = spill_root
    with pytest.raises(Py4JJavaError, match=r"is not a folder of this user.*spark\.local\.dir"):
        jvm.ckpt.spark.spill.ScratchFolder.create()
    jvm.ckpt.spark.spill.ScratchFolder.removeStale()
    assert list(elsewhere.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_amount_that_is_none_is_refused(provider_of: Any, allow: Callable[[str], None]) -> None:
    allow("much")
    with pytest.raises((Py4JJavaError, PySparkException), match=r"memory is 'much'.*512m or 4g, or off"):
        provider_of()


SCHEMA = "word string, id long, at timestamp"


def rows_of(file: int) -> list[dict[str, Any]]:
    return [
        {"word": f"w{n * n % 13}", "id": n + 10 * file, "at": f"2030-01-01T00:{file * 10 + n // 6:02}:00"}
        for n in range(60)
    ]


def sessions(rows: DataFrame) -> DataFrame:
    gap = fn.session_window("at", "30 seconds")
    return rows.withWatermark("at", "5 minutes").groupBy(gap, "word").count()


def pairs(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("at", "5 minutes")
    right = left.select(fn.col("id").alias("other"), fn.col("at").alias("then"))
    return left.join(right, fn.expr("id = other AND then BETWEEN at AND at + INTERVAL 10 MINUTES"))


@pytest.mark.parametrize("query", [sessions, pairs])
def test_a_query_on_disk_puts_out_what_one_in_memory_does(
    query: Callable[[DataFrame], DataFrame], stream_of: Any, allow: Callable[[str], None]
) -> None:
    """Started anew for the second file."""
    put_out = []
    for amount in ("off", "0"):
        allow(amount)
        stream = stream_of(f"in-{amount}", SCHEMA)
        stream.feed(rows_of(0))
        stream.run(query(stream.stream()), "append")
        stream.feed(rows_of(1))
        started = stream.run(query(stream.stream()), "append")
        put_out.append(sorted(row for batch in stream.batches for row in batch))
        operators = started.lastProgress["stateOperators"]
        spilled = sum(operator["customMetrics"]["ckptSpilledKeys"] for operator in operators)
        assert (spilled > 0) == (amount == "0")
    assert put_out[0] == put_out[1] != []
