"""Rows that Spark encoded are decoded without Spark to the same values: every type, every key encoder."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ckpt.cli.show import jsonable
from ckpt.errors import SerializationError
from ckpt.spark.catalogue import Family
from ckpt.spark.columns import schema_columns
from ckpt.spark.encodings import FamilyDecoder
from ckpt.spark.keys import stored_key
from ckpt.types import Block

ROWS = 300
FAMILY_ID = b"\x00\x07"
SIMPLE = {
    "boolean": "id % 2 = 0",
    "byte": "cast(id % 256 - 128 as byte)",
    "short": "cast(id * -7 as short)",
    "int": "cast(hash(id) as int)",
    "long": "xxhash64(id)",
    "float": "cast(rand(1) - 0.5 as float)",
    "double": "randn(2)",
    "string": "repeat('nä', cast(id % 40 as int))",
    "binary": "cast(repeat('x', cast(id % 9 as int)) as binary)",
    "date": "date_add(date'1970-01-01', cast(id * 97 - 9999 as int))",
    "timestamp": "timestamp_micros(xxhash64(id) div 100000)",
    "ntz": "cast(timestamp_micros(xxhash64(id) div 100000) as timestamp_ntz)",
    "small": "cast((id - 99) / 7 as decimal(12, 4))",
    "large": "cast(xxhash64(id) as decimal(38, 6)) / 7 * 1000000",
    "huge": "cast(pow(-10, id % 19) as decimal(38, 0)) * 1000000000000000",
    "interval": "make_dt_interval(id, id % 24, 1, 0.5)",
    "nothing": "null",
}
"""Types by name; each as an SQL expression of `id`."""
NESTED = {
    "numbers": "sequence(0, id % 70)",
    "bytes_": "transform(sequence(1, id % 9 + 1), x -> cast(x as byte))",
    "gaps": "transform(sequence(1, id % 150 + 1), x -> if(x % 3 = 0, null, cast(x as int)))",
    "words": "transform(sequence(1, id % 5 + 1), x -> if(x % 4 = 0, null, repeat('w', cast(x as int))))",
    "empty": "filter(array(id), x -> x < 0)",
    "pair": "named_struct('a', if(id % 2 = 0, null, id), 'b', named_struct('c', string(id)))",
    "none": "if(id % 2 = 0, null, named_struct('a', id, 'b', array(id)))",
    "counts": "map_from_arrays(transform(sequence(1, id % 6 + 1), x -> string(x)), sequence(1, id % 6 + 1))",
    "deep": "array(map(id, array(named_struct('d', cast(id as decimal(30, 2)))), id + 1, null))",
}


def rows_of(spark: SparkSession, columns: dict[str, str], *, nulls: bool = True) -> DataFrame:
    """Rows of these expressions; with every column now and then null."""
    made = [
        f"if(id % {5 + at} = 0, null, {text}) as {name}" if nulls else f"{text} as {name}"
        for at, (name, text) in enumerate(columns.items())
    ]
    return spark.range(ROWS).selectExpr(*made).cache()


def encoded(frame: DataFrame) -> list[bytes]:
    """The rows as Spark's encoder stores them."""
    return [
        b"\x00" + bytes(row.getBytes()) for row in frame._jdf.queryExecution().executedPlan().executeCollect()
    ]


def family(
    key: str, value: str, encoder: str = "noPrefix", ordinals: Iterable[int] = (), **more: Any
) -> Family:
    """A family of these schemas."""
    return Family(
        "made",
        7,
        internal=False,
        multiple=more.get("multiple", False),
        encoding=more.get("encoding", "unsaferow"),
        key_schema=json.loads(key),
        value_schema=json.loads(value),
        key_encoder=encoder,
        ordinals=tuple(ordinals),
    )


def as_rows(frame: DataFrame) -> list[Any]:
    # Not by toArrow, which refuses a null in a struct that is null itself.
    return [row for batch in frame._collect_as_arrow() for row in batch.to_pylist()]


@pytest.mark.parametrize("columns", [SIMPLE, NESTED], ids=["simple", "nested"])
@pytest.mark.parametrize("nulls", [False, True])
def test_every_type(spark: SparkSession, columns: dict[str, str], nulls: bool) -> None:
    frame = rows_of(spark, columns, nulls=nulls)
    rows = encoded(frame)
    schema = frame.schema.json()
    keys, values = FamilyDecoder(family(schema, schema)).decode(
        Block.of((FAMILY_ID + row, row) for row in rows)
    )
    assert values.to_pylist() == as_rows(frame)
    assert keys.equals(values)
    keys.validate(full=True)


def test_many_fields_have_several_words_of_null_bits(spark: SparkSession) -> None:
    frame = rows_of(spark, {f"f{n}": f"id + {n}" for n in range(70)})
    schema = frame.schema.json()
    rows = encoded(frame)
    _, values = FamilyDecoder(family(schema, schema)).decode(Block.of((FAMILY_ID + row, row) for row in rows))
    assert values.to_pylist() == as_rows(frame)


def test_fields_of_the_same_name_are_numbered(spark: SparkSession) -> None:
    frame = spark.sql("select 1 as count, 2 as sum, 3 as count, 4 as count_2, 5 as count")
    schema = frame.schema.json()
    rows = encoded(frame)
    _, values = FamilyDecoder(family(schema, schema)).decode(Block.of((FAMILY_ID + row, row) for row in rows))
    assert values.to_pylist() == [{"count": 1, "sum": 2, "count_3": 3, "count_2": 4, "count_4": 5}]


def test_what_arrow_cannot_carry_to_spark_is_shown_in_parts(spark: SparkSession) -> None:
    frame = spark.range(2).selectExpr(
        "if(id = 0, null, make_interval(1, 2, 0, 3, 4, 5, 6.5)) as calendar",
        "make_ym_interval(1, 2) as months",
        "if(id = 0, null, parse_json('{\"a\": 1}')) as variant",
    )
    schema = frame._jdf.schema().json()
    rows = encoded(frame)
    _, values = FamilyDecoder(family(schema, schema)).decode(Block.of((FAMILY_ID + row, row) for row in rows))
    first, second = values.to_pylist()
    assert first == {"calendar": None, "months": 14, "variant": None}
    microseconds = (4 * 3600 + 5 * 60 + 6) * 1_000_000 + 500_000
    assert second["calendar"] == {"months": 14, "days": 3, "microseconds": microseconds}
    from pyspark.sql.types import VariantVal

    assert json.loads(VariantVal(**second["variant"]).toJson()) == {"a": 1}


@pytest.mark.parametrize("columns", [SIMPLE, NESTED], ids=["simple", "nested"])
def test_arrow_types_are_those_that_spark_expects(spark: SparkSession, columns: dict[str, str]) -> None:
    """Spark refuses batches of a Python data source whose schema differs in anything."""
    read = schema_columns(json.loads(rows_of(spark, columns).schema.json()))
    expected = to_arrow_schema(StructType.fromJson(read.spark), timezone="UTC")
    assert pa.schema(read.arrow).equals(expected, check_metadata=True)


class Encoders:
    """Spark's own encoders of keys."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        self._jvm = spark._jvm
        self._state = self._jvm.org.apache.spark.sql.execution.streaming.state
        self.schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())

    def spec(self, kind: str, ordinals: list[int]) -> Any:
        if kind == "prefix":
            return self._state.PrefixKeyScanStateEncoderSpec(self.schema, len(ordinals))
        if kind == "range":
            listed = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(ordinals).toList()
            return self._state.RangeKeyScanStateEncoderSpec(self.schema, listed)
        name = {"noPrefix": "NoPrefixKey", "timestampPrefix": "TimestampAsPrefixKey"}.get(
            kind, "TimestampAsPostfixKey"
        )
        return getattr(self._state, f"{name}StateEncoderSpec")(self.schema)

    def keys(self, frame: DataFrame, kind: str, ordinals: list[int]) -> list[bytes]:
        spec = self.spec(kind, ordinals)
        rows = self._state.UnsafeRowDataEncoder(spec, self.schema)
        encoder = self._state.RocksDBStateEncoder.getKeyEncoder(rows, spec, False)
        collected = frame._jdf.queryExecution().executedPlan().executeCollect()
        return [bytes(encoder.encodeKey(row)) for row in collected]


KEYS = {
    "word": SIMPLE["string"],
    "number": SIMPLE["int"],
    "real": "array(double('-inf'), -0.0d, double('nan'), randn(3))[id % 4]",
    "short": SIMPLE["short"],
    "half": SIMPLE["float"],
    "byte": SIMPLE["byte"],
    "time": SIMPLE["long"],
}


@pytest.mark.parametrize(
    ("kind", "ordinals"),
    [
        ("noPrefix", []),
        ("prefix", [0]),
        ("prefix", [0, 1, 2]),
        ("range", [6]),
        ("range", [4, 2, 1, 3, 5]),
        ("timestampPrefix", []),
        ("timestampPostfix", []),
    ],
)
def test_every_key_encoder(spark: SparkSession, kind: str, ordinals: list[int]) -> None:
    frame = rows_of(spark, KEYS, nulls=not kind.startswith("timestamp"))
    keys = Encoders(spark, frame.schema).keys(frame, kind, ordinals)
    schema = frame.schema.json()
    decoder = FamilyDecoder(family(schema, '{"type": "struct", "fields": []}', kind, ordinals))
    decoded, _ = decoder.decode(Block.of((FAMILY_ID + key, b"\x00") for key in keys))
    # repr: NaN is not equal to itself, and -0.0 is to 0.0.
    assert list(map(repr, decoded.to_pylist())) == list(map(repr, as_rows(frame)))
    if kind != "range":
        # As JSON they lead back to where they are stored.
        found = [stored_key(decoder.family, jsonable(key)) for key in decoded.to_pylist()]
        assert found == [FAMILY_ID + key for key in keys]


def test_keys_of_other_types_lead_back_to_where_they_are_stored(spark: SparkSession) -> None:
    names = ("boolean", "date", "timestamp", "ntz", "small", "binary")
    columns = {name: SIMPLE[name] for name in names} | {"pair": NESTED["pair"]}
    frame = rows_of(spark, columns)
    schema = frame.schema.json()
    made = family(schema, schema)
    rows = encoded(frame)
    keys, _ = FamilyDecoder(made).decode(Block.of((FAMILY_ID + row, row) for row in rows))
    assert [stored_key(made, jsonable(key)) for key in keys.to_pylist()] == [FAMILY_ID + row for row in rows]


def test_keys_that_only_looking_at_all_can_find(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("id", "array(id) as list")
    made = family(frame.schema.json(), frame.schema.json())
    asked: dict[str, Any]
    for asked in ({"id": 0}, {"id": 0, "list": [0]}, {"id": "x", "list": None}):
        assert stored_key(made, asked) is None


def test_lists_are_put_together_from_their_chunks_in_order(spark: SparkSession) -> None:
    frame = spark.range(6).selectExpr("id", "string(id) as text")
    schema = frame.schema.json()
    rows = encoded(frame)
    framed = [len(row).to_bytes(4, "little") + row for row in rows]

    def key(row: int, chunk: int) -> bytes:
        return FAMILY_ID + rows[row] + chunk.to_bytes(4, "big")

    block = Block.of(
        [
            (key(0, 258), framed[3]),
            (key(1, 0), framed[5] + framed[4]),
            (key(0, 0), framed[0] + framed[1]),
            (key(0, 3), framed[2]),
        ]
    )
    keys, values = FamilyDecoder(family(schema, schema, multiple=True)).decode(block)
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    lists = {key["id"]: [value["id"] for value in listed] for key, listed in pairs}
    assert lists == {0: [0, 1, 2, 3], 1: [5, 4]}


def test_what_cannot_be_decoded_is_said(spark: SparkSession) -> None:
    schema = json.dumps({"type": "struct", "fields": [{"name": "shape", "type": "geometry(4326)"}]})
    with pytest.raises(SerializationError, match="'shape' is of type geometry"):
        FamilyDecoder(family(schema, schema))
    plain = spark.range(1).schema.json()
    with pytest.raises(SerializationError, match="encoded as avro"):
        FamilyDecoder(family(plain, plain, encoding="avro"))
    decoder = FamilyDecoder(family(plain, plain))
    with pytest.raises(SerializationError, match="format"):
        decoder.decode(Block.of([(FAMILY_ID + b"\x01" + bytes(16), b"\x00" + bytes(16))]))


DAMAGED = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "text", "type": "string"},
            {"name": "list", "type": {"type": "array", "elementType": "string"}},
            {"name": "map", "type": {"type": "map", "keyType": "long", "valueType": "string"}},
            {"name": "money", "type": "decimal(30,2)"},
        ],
    }
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=120), min_size=1, max_size=4))
def test_bytes_that_are_no_rows_are_an_error_or_some_value_but_nothing_worse(pieces: list[bytes]) -> None:
    """State is read from stores that others can write to: lengths in it are not to be believed."""
    decoder = FamilyDecoder(family(DAMAGED, DAMAGED))
    try:
        keys, values = decoder.decode(Block.of((FAMILY_ID + b"\x00" + p, b"\x00" + p) for p in pieces))
    except SerializationError:
        return
    assert len(keys) == len(values) == len(pieces)


def test_numbers_are_what_python_has_for_them(spark: SparkSession) -> None:
    frame = spark.sql("select 1.5bd as money, date'2024-02-29' as day, timestamp'2024-02-29 12:00:00' as at")
    schema = frame.schema.json()
    rows = encoded(frame)
    _, values = FamilyDecoder(family(schema, schema)).decode(Block.of((FAMILY_ID + row, row) for row in rows))
    assert values.to_pylist() == [
        {
            "money": Decimal("1.5"),
            "day": dt.date(2024, 2, 29),
            "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
        }
    ]
