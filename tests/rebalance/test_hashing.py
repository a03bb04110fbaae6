"""The base hash: golden values of Spark 4.3; `tests/spark/test_base_hash.py` asks the Spark at hand."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt.errors import ConfigError
from ckpt.rebalance.hashing import SEED, hash_bytes, hash_ints, hash_longs, homes, identities
from ckpt.rebalance.sparkhash import Array, Struct, Type, spark_hash

MAX_DECIMAL = Decimal("99999999999999999999999999999.99")
GOLDEN: list[tuple[list[tuple[Type, Any]], int]] = [
    ([("string", "Spark")], 228093765),
    ([("string", "Spark"), ("int", 1)], 205329825),
    ([("string", None), ("int", 2)], 1765031574),
    ([("string", None)], SEED),
    ([("string", "")], 142593372),
    ([("string", "äöü€𝄞")], 43314438),
    ([("binary", b"\xff\x80\x00\x7f\x01")], 72352366),
    ([("boolean", True)], -559580957),
    ([("byte", -1)], -1604776387),
    ([("short", -1)], -1604776387),
    ([("date", dt.date(1969, 12, 31))], -1604776387),
    ([("long", 2**63 - 1)], -1604625029),
    ([("float", 1.5)], -221251528),
    ([("double", -0.0)], -1670924195),
    ([("double", 0.0)], -1670924195),
    ([("double", float("nan"))], -1281358385),
    ([("timestamp", dt.datetime(2024, 2, 29, 12, 34, 56, 789012, dt.UTC))], -1367554535),
    ([("timestamp_ntz", dt.datetime(1900, 1, 1, 0, 0, 0, 1))], -201624734),
    ([("decimal(10,2)", Decimal("-12.34"))], 180183791),
    ([("decimal(30,2)", Decimal("-12.34"))], -378694793),
    ([("decimal(38,2)", MAX_DECIMAL)], -1842187052),
    ([("decimal(20,0)", Decimal(-128))], 775851899),
    ([("decimal(20,0)", Decimal(128))], -544401882),
    ([(Struct(("int", "int", "string")), (1, None, "x"))], -1305545736),
    ([(Array("int"), [1, None, 3])], 1066699649),
    ([(Array("int"), [])], SEED),
    ([(Struct((Array("string"),)), (["x", "yz"],))], 1959149491),
]


@pytest.mark.parametrize(("columns", "expected"), GOLDEN)
def test_the_hash_is_that_of_spark(columns: list[tuple[Type, Any]], expected: int) -> None:
    assert spark_hash([(kind, [value]) for kind, value in columns]).view(np.int32).tolist() == [expected]


def test_the_home_is_the_partition_of_spark() -> None:
    """`spark.range(10).repartition(7, "id")`."""
    hashes = hash_longs(np.arange(10)).astype(np.uint64)
    assert homes(hashes, 7).tolist() == [4, 5, 5, 5, 4, 4, 6, 0, 5, 1]


def murmur3(words: list[int], seed: int, length: int) -> int:
    """Murmur3_x86_32 word by word, as its author wrote it down."""
    mask = 0xFFFFFFFF
    h = seed
    for word in words:
        k = word * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) & mask
        h ^= k * 0x1B873593 & mask
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    h ^= length
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


SEEDS = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(st.binary(max_size=20), SEEDS), max_size=20))
@settings(max_examples=100, deadline=None)
def test_columns_of_bytes_are_hashed_one_by_one(rows: list[tuple[bytes, int]]) -> None:
    def reference(data: bytes, seed: int) -> int:
        whole = len(data) // 4 * 4
        words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
        tail = [byte if byte < 128 else byte + 0xFFFFFF00 for byte in data[whole:]]
        return murmur3(words + tail, seed, len(data))

    seeds = np.array([seed for _, seed in rows], np.uint32)
    assert hash_bytes([data for data, _ in rows], seeds).tolist() == [reference(*row) for row in rows]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), SEEDS)
@settings(max_examples=100, deadline=None)
def test_columns_of_numbers_are_hashed_one_by_one(values: list[int], seed: int) -> None:
    words = [[value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF] for value in values]
    longs = np.array(values, np.int64)
    assert hash_longs(longs, seed).tolist() == [murmur3(both, seed, 8) for both in words]
    assert hash_ints(longs.astype(np.int32), seed).tolist() == [murmur3(both[:1], seed, 4) for both in words]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(1, 1000))
@settings(max_examples=50, deadline=None)
def test_homes_are_remainders_of_the_signed_low_half(keys: list[int], instances: int) -> None:
    signed = [(key & 0xFFFFFFFF) - (key >> 31 & 1) * 2**32 for key in keys]
    assert homes(np.array(keys, np.uint64), instances).tolist() == [hash_ % instances for hash_ in signed]


def test_names_that_collide_in_sparks_hash_are_different_keys_with_one_home() -> None:
    low = identities([f"key {at}" for at in range(200_000)]) & np.uint64(0xFFFFFFFF)
    _, first, count = np.unique(low, return_index=True, return_counts=True)
    assert (count > 1).any(), "among so many there are collisions in 32 bits"
    at = int(first[count > 1][0])
    pair = np.flatnonzero(low == low[at])
    keys = identities([f"key {number}" for number in pair.tolist()])
    assert len(set(keys.tolist())) == len(pair)
    assert len(set(homes(keys, 997).tolist())) == 1


def test_the_identity_of_a_name_cannot_drift() -> None:
    """Stored tables have it; the low half is Spark's hash of the text."""
    assert [hex(key) for key in identities(["Spark", b"\x00\xff"]).tolist()] == [
        "0x11fc29e0d986f45",
        "0xa99b043a4a477cc1",
    ]


def test_what_has_no_known_hash_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'strin'.*'string'"):
        spark_hash([("strin", ["a"])])
    with pytest.raises(ConfigError, match="at least one column"):
        spark_hash([])
    with pytest.raises(ConfigError, match="one length"):
        spark_hash([("int", [1]), ("int", [1, 2])])
