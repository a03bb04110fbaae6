"""The working state of a store against plain dictionaries that are copied for every version."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.effort import effort

pytestmark = pytest.mark.spark_core

FAMILIES = ("default", "sorted")
RETAINED = 2
CATALOGUE = 0xFFFF

keys = st.binary(max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(FAMILIES), keys, st.binary(max_size=4)),
        st.tuples(st.just("remove"), st.sampled_from(FAMILIES), keys),
        st.tuples(st.just("append"), keys, st.binary(min_size=1, max_size=200)),
        st.tuples(st.just("set_list"), keys, st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("remove_list"), keys),
        st.tuples(st.just("commit")),
        st.tuples(st.just("abort")),
        st.tuples(st.just("back"), st.integers(0, RETAINED + 1)),
        st.tuples(st.just("spill")),
        st.tuples(st.just("bring_back")),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


class Pair:
    """A StateMap of the provider, and what it should hold now and in each version before."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._map = jvm.ckpt.spark.state.StateMap()
        self._create()
        self.now: dict[str, dict[bytes, bytes]] = {name: {} for name in (*FAMILIES, "lists")}
        self.versions: list[dict[str, dict[bytes, bytes]]] = [{}]
        self._reachable = 0
        self.commit()

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self._family(family).put(key, value)
        self.now[family][key] = value

    def remove(self, family: str, key: bytes) -> None:
        self._family(family).remove(key)
        self.now[family].pop(key, None)

    def append(self, key: bytes, values: bytes) -> None:
        self._lists().append(key, values)
        self.now["lists"][key] = self.now["lists"].get(key, b"") + values

    def set_list(self, key: bytes, values: bytes) -> None:
        self._lists().put(key, values)
        self.now["lists"][key] = values

    def remove_list(self, key: bytes) -> None:
        self._lists().remove(key)
        self.now["lists"].pop(key, None)

    def commit(self) -> None:
        self.versions.append({name: dict(rows) for name, rows in self.now.items()})
        self._map.seal(self._at(len(self.versions) - 1), RETAINED)
        self._reachable = max(self._reachable, len(self.versions) - 1 - RETAINED)

    def abort(self) -> None:
        self._map.revert()
        self.now = {name: dict(rows) for name, rows in self.versions[-1].items()}

    def back(self, by: int) -> None:
        """As a retry does: nothing is open. Beyond what is retained the answer is no, and nothing changes."""
        self.abort()
        wanted = len(self.versions) - 1 - by
        if wanted < 1:
            return
        assert self._map.rollBackTo(self._at(wanted)) == (wanted >= self._reachable)
        if wanted >= self._reachable:
            del self.versions[wanted + 1 :]
            self.now = {name: dict(rows) for name, rows in self.versions[-1].items()}

    def spill(self) -> None:
        """To disk and back, between transactions: nobody may notice."""
        self.abort()
        self._map.spill(self._jvm.ckpt.spark.spill.Scratch.of(0).space())
        assert self._map.spillableBytes() == 0

    def bring_back(self) -> None:
        self.abort()
        self._map.bringBack()
        assert self._map.spilledBytes() == 0

    def restart(self) -> None:
        """What was committed is all that is left, and comes from the backend."""
        self.abort()
        loaded = self._jvm.ckpt.spark.state.StateMap()
        names = (*FAMILIES, "lists")
        rows = [
            (number, row) for number, name in enumerate(names) for row in self._rows(self._family(name).all())
        ]
        for number, name in enumerate(names):
            row = bytes(self._description(multiple=name == "lists").row(number))
            rows.append((CATALOGUE, (name.encode(), row)))
        for number, (key, value) in rows:
            loaded.load(number, b"..." + key + value, 3, len(key), 3 + len(key), len(value))
        self._reachable = len(self.versions) - 1
        loaded.loaded(self._at(self._reachable))
        self._map = loaded
        self._create()

    def check(self) -> None:
        for name in FAMILIES:
            family, expected = self._family(name), self.now[name]
            rows = list(self._rows(family.all()))
            assert dict(rows) == expected
            assert len(rows) == len(expected) == family.numKeys()
            assert family.numBytes() == sum(len(k) + len(v) for k, v in expected.items())
            if name == "sorted":
                assert rows == sorted(rows)
                some = [row for row in rows if row[0].startswith(b"\x00")]
                assert list(self._rows(family.startingWith(b"\x00"))) == some
                some = [row for row in rows if b"\x01" <= row[0] < b"\xff\x00"]
                assert list(self._rows(family.range(b"\x01", b"\xff\x00"))) == some
        self._check_lists()
        assert self._map.numKeys() == sum(map(len, self.now.values()))

    def check_each(self) -> None:
        """Without iterating, after which it would not be as it was."""
        family, expected = self._family("default"), self.now["default"]
        for key in {*expected, *self.versions[-1].get("default", ()), b"\x07"}:
            found = family.get(key)
            assert (found if found is None else bytes(found)) == expected.get(key)
        assert family.numKeys() == len(expected)

    def _check_lists(self) -> None:
        lists, expected = self._lists(), sorted(self.now["lists"].items())
        assert [(key, self._values(key)) for key, _ in self._rows(lists.all())] == expected
        assert self._family("lists").numKeys() == len(expected)
        for prefix in (b"", b"\x00", b"\x00\x00"):
            found = [key for key, _ in self._rows(lists.startingWith(prefix))]
            assert found == [key for key, _ in expected if key.startswith(prefix)]
            found = [key for key, _ in self._rows(lists.range(prefix, b"\x01\x00"))]
            assert found == [key for key, _ in expected if prefix <= key < b"\x01\x00"]

    def _values(self, key: bytes) -> bytes:
        parts = self._lists().parts(key)
        listed = []
        while parts.hasNext():
            listed.append(bytes(parts.next()))
        lengths = [len(part) for part in listed]
        assert lengths == sorted(lengths, reverse=True)  # so there are few of them
        return b"".join(listed)

    def _lists(self) -> Any:
        return self._jvm.ckpt.spark.state.Lists(self._family("lists"))

    def _create(self) -> None:
        self._map.create("sorted", self._description(multiple=False)).keepOrdered()
        self._map.create("lists", self._description(multiple=True)).keepOrdered()

    def _description(self, *, multiple: bool) -> Any:
        schema = self._jvm.org.apache.spark.sql.types.StructType.fromDDL("word string")
        state = self._jvm.org.apache.spark.sql.execution.streaming.state
        spec = state.NoPrefixKeyStateEncoderSpec(schema)
        return self._jvm.ckpt.spark.state.Description(False, multiple, "unsaferow", schema, schema, spec)

    def _family(self, name: str) -> Any:
        return self._map.find(name).get()

    def _at(self, version: int) -> Any:
        return self._jvm.ckpt.spark.state.CommitRef(
            version, self._jvm.scala.Option.apply(f"commit-{version}")
        )

    def _rows(self, entries: Any) -> Any:
        while entries.hasNext():
            entry = entries.next()
            yield bytes(entry.key()), bytes(entry.value())


@settings(
    max_examples=effort(15, 300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=steps)
def test_a_state_map_is_like_a_copy_for_every_version(
    spark: SparkSession, script: list[tuple[Any, ...]]
) -> None:
    pair = Pair(spark._jvm)
    for action, *arguments in script:
        getattr(pair, action)(*arguments)
        pair.check()


few_keys = st.integers(0, 40).map(lambda number: b"%d" % number)
after_a_restart = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.just("default"), few_keys, st.binary(max_size=4)),
        st.tuples(st.just("remove"), st.just("default"), few_keys),
        st.tuples(st.just("commit")),
        st.tuples(st.just("abort")),
        st.tuples(st.just("back"), st.integers(0, RETAINED)),
    ),
    max_size=40,
)


@settings(
    max_examples=effort(15, 300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=after_a_restart)
def test_what_was_loaded_is_found_changed_and_undone(
    spark: SparkSession, script: list[tuple[Any, ...]]
) -> None:
    pair = Pair(spark._jvm)
    for number in range(30):
        pair.put("default", b"%d" % number, b"x" * (9000 if number == 7 else number))
    pair.commit()
    pair.restart()
    for action, *arguments in script:
        getattr(pair, action)(*arguments)
        pair.check_each()
    pair.check()


def test_what_was_loaded_may_be_long(spark: SparkSession) -> None:
    """So much that it takes several arrays, and rows among it that are too long for any."""
    pair = Pair(spark._jvm)
    for number in range(150):
        pair.put("default", b"%d" % number, bytes([number]) * (number * 61 % 9000))
    pair.commit()
    pair.restart()
    pair.check_each()
    for number in range(0, 150, 3):
        pair.put("default", b"%d" % number, b"new")
        pair.remove("default", b"%d" % (number + 1))
    pair.commit()
    pair.check_each()
    pair.back(1)
    pair.check_each()
    pair.check()


def test_many_keys_come_and_go(spark: SparkSession) -> None:
    """Growing, and reusing what deleted keys have left."""
    pair = Pair(spark._jvm)
    for generation in range(3):
        for number in range(60):
            pair.put("default", b"%d-%d" % (generation, number), b"x")
        for key in list(pair.now["default"]):
            if not key.endswith(b"0"):
                pair.remove("default", key)
        pair.commit()
        pair.check()
    pair.back(2)
    pair.check()


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_load_that_broke_off_is_repeated(spark: SparkSession, on_disk: bool) -> None:
    """Some keys were asked for before, and some rows came: each key counts once, as it is known already."""
    jvm: Any = spark._jvm
    state = jvm.ckpt.spark.state.StateMap()
    family = state.find("default").get()
    family.begin(4, jvm.ckpt.spark.state.RemoteRows(state, None, 4))
    for asked, value in ((b"a", b"1"), (b"b", b"1"), (b"z", None)):
        family.remember(asked, value)
    family.put(b"a", b"2")
    family.remove(b"b")
    for rows in ((b"a1", b"c1"), (b"a1", b"b1", b"c1", b"d1")):
        family.loading()
        for row in rows:
            family.load(row, 0, 1, 1, 1)
        if on_disk:  # there is no room for all rows in memory
            state.spill(jvm.ckpt.spark.spill.Scratch.of(0).space())
    family.loaded()
    found = family.all()
    entries = []
    while found.hasNext():
        entry = found.next()
        entries.append((bytes(entry.key()), bytes(entry.value())))
    assert sorted(entries) == [(b"a", b"2"), (b"c", b"1"), (b"d", b"1")]
    assert (family.numKeys(), family.numRows(), family.numBytes()) == (3, 3, 6)
    state.revert()
    assert [bytes(family.get(key)) for key in (b"a", b"b", b"c", b"d")] == [b"1"] * 4
    assert family.get(b"z") is None
    assert (family.numKeys(), family.numBytes()) == (4, 8)
