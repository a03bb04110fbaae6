"""Routing tables: places against a plain dict, bytes that cannot drift, one clear error for any others."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from ckpt.errors import ConfigError, CorruptRecordError
from ckpt.rebalance.hashing import homes
from ckpt.rebalance.loads import Loads
from ckpt.rebalance.table import NO_BACKUP, RoutingTable, Side, Split

GOLDEN = pathlib.Path(__file__).parent / "golden" / "table.hex"

KEYS = st.integers(0, 30) | st.integers(2**64 - 8, 2**64 - 1)


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    """Any valid table."""
    instances = draw(st.integers(2, 6))
    place = st.integers(0, instances - 1)
    keys = draw(st.lists(KEYS, unique=True, max_size=8))
    divided = draw(st.integers(0, len(keys)))
    splits = []
    for key in keys[:divided]:
        parts = draw(st.lists(place, unique=True, min_size=2))
        shares = tuple([1 / len(parts)] * len(parts))
        splits.append(Split(key, tuple(parts), shares, draw(st.sampled_from(Side))))
    single = keys[divided:]
    holders = [draw(st.lists(place, unique=True, min_size=1, max_size=3)) for _ in single]
    padded = [[*(held[1:]), NO_BACKUP, NO_BACKUP][:2] for held in holders]
    names = draw(st.lists(st.none() | st.text() | st.binary(), min_size=len(single), max_size=len(single)))
    return RoutingTable(
        instances,
        np.array(single, np.uint64),
        np.array([held[0] for held in holders], np.int32),
        np.array(padded, np.int32).reshape(len(single), 2) if draw(st.booleans()) else None,
        tuple(splits),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.integers(0, 2**63 - 1)),
        names if any(name is not None for name in names) else None,
    )


def fields(table: RoutingTable) -> tuple[Any, ...]:
    return (
        table.instances,
        table.keys.tolist(),
        table.active.tolist(),
        table.backup_columns.tolist(),
        table.splits,
        table.version,
        table.effective_from,
        table.names,
    )


@given(tables())
@settings(max_examples=60, deadline=None)
def test_a_table_is_what_its_bytes_say(table: RoutingTable) -> None:
    assert fields(RoutingTable.from_bytes(table.to_bytes())) == fields(table)


@given(tables(), st.lists(KEYS, max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_place_is_the_entry_or_the_home(table: RoutingTable, keys: list[int]) -> None:
    said = dict(zip(table.keys.tolist(), table.active.tolist(), strict=True))
    said |= {split.key: split.instances[0] for split in table.splits}
    asked = np.array(keys, np.uint64)
    home = homes(asked, table.instances).tolist()
    expected = [said.get(key, base) for key, base in zip(keys, home, strict=True)]
    assert table.place(asked).tolist() == expected
    zeros = np.zeros(len(keys), np.int32)
    assert table.place(asked, zeros).tolist() == [said.get(key, 0) for key in keys]
    assert len(table) == len(table.keys) + sum(len(split.instances) for split in table.splits)


@given(tables(), tables(), st.lists(KEYS, unique=True, max_size=20))
@settings(max_examples=50, deadline=None)
def test_the_keys_that_a_version_moves_are_those_of_a_recount(
    old: RoutingTable, new: RoutingTable, keys: list[int]
) -> None:
    def held(table: RoutingTable, key: int) -> Any:
        by_split = {split.key: split for split in table.splits}
        return by_split.get(key, int(table.place(np.array([key], np.uint64))[0]))

    moved = [at for at, key in enumerate(keys) if held(old, key) != held(new, key)]
    assert old.moved(new, np.array(keys, np.uint64)).tolist() == moved


@given(tables(), tables(), st.sets(KEYS, max_size=12))
@settings(max_examples=60, deadline=None)
def test_some_keys_may_follow_a_successor_and_the_others_stay(
    old: RoutingTable, new: RoutingTable, keys: set[int]
) -> None:
    if old.instances != new.instances:
        with pytest.raises(ConfigError, match="different numbers"):
            old.adopting(new, np.array([*keys], np.uint64))
        return

    def said(table: RoutingTable) -> dict[int, Any]:
        names = table.names or [None] * len(table.keys)
        backups = [[b for b in row if b != NO_BACKUP] for row in table.backup_columns.tolist()]
        entries = zip(table.active.tolist(), backups, names, strict=True)
        return dict(zip(table.keys.tolist(), entries, strict=True)) | {s.key: s for s in table.splits}

    adopted = old.adopting(new, np.array([*keys], np.uint64))
    expected = {key: what for key, what in said(old).items() if key not in keys}
    assert said(adopted) == expected | {key: what for key, what in said(new).items() if key in keys}
    assert adopted.version == new.version


def test_the_load_of_a_split_key_is_shared() -> None:
    table = RoutingTable(3, splits=(Split(7, (1, 2), (0.75, 0.25)),))
    loads = Loads([7, 3], [8, 1], [0, 0], [1, 0], rest=[1, 0, 5])
    assert table.instance_loads(loads).tolist() == [2, 6, 7]
    with pytest.raises(ConfigError, match="instance 2; the table has 2"):
        RoutingTable(2).instance_loads(loads)


def test_the_bytes_of_a_table_cannot_drift() -> None:
    """Never change the file: other programs read these bytes."""
    table = RoutingTable(
        8,
        np.array([2718281828, 7, 2**64 - 1], np.uint64),
        np.array([3, 0, 7]),
        np.array([[1, NO_BACKUP], [5, 2], [NO_BACKUP, NO_BACKUP]]),
        (Split(99, (4, 1, 6), (0.5, 0.25, 0.25), Side.LEFT), Split(12, (0, 7), (0.75, 0.25))),
        version=41,
        effective_from=1_000_000_007,
        names=["to be", b"\x00\xff", None],
    )
    data = bytes.fromhex(GOLDEN.read_text())
    assert table.to_bytes() == data
    assert fields(RoutingTable.from_bytes(data)) == fields(table)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_is_an_error(data: st.DataObject) -> None:
    raw = bytearray.fromhex(GOLDEN.read_text())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecordError):
        RoutingTable.from_bytes(raw)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_bytes_with_a_right_checksum_are_a_table_or_one_clear_error(data: st.DataObject) -> None:
    raw = bytearray.fromhex(GOLDEN.read_text())[:-8]
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(6, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(len(raw) - 40, len(raw)))] + data.draw(st.binary(max_size=10))
    sealed = bytes(raw) + xxh3_64_digest(raw)[::-1]
    try:
        table = RoutingTable.from_bytes(sealed)
    except CorruptRecordError:
        return
    assert table.to_bytes() == sealed


@given(st.binary(max_size=100))
@settings(max_examples=50, deadline=None)
def test_garbage_is_no_table(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        RoutingTable.from_bytes(data)


def test_huge_counts_are_refused_before_anything_is_allocated() -> None:
    raw = bytearray.fromhex(GOLDEN.read_text())[:-8]
    raw[26:42] = b"\xff" * 16  # entries, backups, splits, parts
    with pytest.raises(CorruptRecordError, match="not there"):
        RoutingTable.from_bytes(bytes(raw) + xxh3_64_digest(raw)[::-1])


def test_bytes_of_one_table_only_in_one_order_and_without_more() -> None:
    raw = bytearray.fromhex(GOLDEN.read_text())[:-8]
    with pytest.raises(CorruptRecordError, match="1 bytes are left over"):
        RoutingTable.from_bytes(bytes(raw) + b"x" + xxh3_64_digest(bytes(raw) + b"x")[::-1])
    raw[42:58] = raw[50:58] + raw[42:50]  # the first two keys
    with pytest.raises(CorruptRecordError, match="not in order"):
        RoutingTable.from_bytes(bytes(raw) + xxh3_64_digest(raw)[::-1])


def _table(**changed: Any) -> RoutingTable:
    whole: dict[str, Any] = {"instances": 4, "keys": np.array([1, 2], np.uint64), "active": [0, 1]}
    return RoutingTable(**(whole | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"instances": 0}, "1 to"),
        ({"active": [0, 4]}, "active of a table of 4 instances"),
        ({"active": [0, -1]}, "active of a table"),
        ({"active": [0]}, "one row for each of 2 keys"),
        ({"active": [0.5, 1.0]}, "whole numbers"),
        ({"keys": np.array([1, 1], np.uint64)}, "key 1 is in the table twice"),
        ({"splits": (Split(2, (0, 1), (0.5, 0.5)),)}, "key 2 is in the table twice"),
        ({"splits": (Split(3, (0, 4), (0.5, 0.5)),)}, "split of key 3"),
        ({"backups": [[0], [2]]}, "one instance twice"),
        ({"backups": [[2, 2], [NO_BACKUP, NO_BACKUP]]}, "one instance twice"),
        ({"backups": [[9], [2]]}, "backups of a table"),
        ({"names": ["a"]}, "names has 1 entries"),
        ({"version": -1}, "from 0"),
    ],
)
def test_a_table_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    assert len(_table()) == 2
    with pytest.raises(ConfigError, match=message):
        _table(**changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"instances": (0,), "shares": (1.0,)}, "at least two instances"),
        ({"shares": (1.0,)}, "one share for each"),
        ({"shares": (0.5, 0.4)}, "add up to 1"),
        ({"shares": (1.0, 0.0)}, "above 0"),
        ({"shares": (float("nan"), 1.0)}, "above 0"),
        ({"instances": (1, 1)}, "named twice"),
        ({"key": -1}, "identity"),
    ],
)
def test_a_split_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(Split(1, (0, 1), (0.5, 0.5)), **changed)
