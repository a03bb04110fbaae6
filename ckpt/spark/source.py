"""`spark.read.format("ckpt")`: state in any backend as a table, at one version, while its query runs.

Spark finds the source by itself where ckpt is installed (`pyspark_ckpt`); elsewhere:
`spark.dataSource.register(ckpt.spark.CkptDataSource)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ckpt.contract.addresses import suggestion
from ckpt.contract.opening import open_to_read
from ckpt.errors import ConfigError
from ckpt.spark.catalogue import DEFAULT_FAMILY, Family, StoreName, StoreVersion, read_family, read_live_keys
from ckpt.spark.encodings import FamilyDecoder
from ckpt.spark.selection import Selection
from ckpt.spark.settings import ADDRESS_SETTING, address_of
from ckpt.spark.stores import decoded, stored
from ckpt.types import Block

_MAX_SHARES = 64
_SHARE_KEYS = 250_000
_BATCH_ROWS = 65536


def read_state(spark: SparkSession, checkpoint: str | os.PathLike[str], **options: str | int) -> DataFrame:
    """The state of a query as its last committed batch left it; options are those of the data source.

    Examples
    --------
    >>> read_state(spark, "/data/checkpoints/orders").select("key.*", "value.*")     # doctest: +SKIP
    >>> read_state(spark, "/data/checkpoints/orders", version=12, operator=1)        # doctest: +SKIP
    """
    address = spark.conf.get(ADDRESS_SETTING, None)
    if address is None:
        raise ConfigError(
            "this session keeps no state with ckpt; name the address: "
            "spark.read.format('ckpt').option('address', ...).load(checkpoint)"
        )
    checkpoint = os.fspath(checkpoint)
    given = {"address": address, **{name: str(value) for name, value in options.items()}}
    # Asked here as well: what is wrong is then one line of ours, and no traceback within an error of Spark.
    CkptDataSource({**given, "path": checkpoint}).schema()
    return spark.read.format("ckpt").options(**given).load(checkpoint)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What `option` takes; unknown names are rejected."""

    address: str
    selection: Selection
    family: str | None = None
    raw: bool = False
    shares: int | None = None
    """How many tasks read; None: as many as the number of keys is worth."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options of one read, whatever the case of their names."""
        options = {_NAMES.get(name.lower(), name): value for name, value in given.items()}
        for name in options:
            if name not in _NAMES.values():
                raise ConfigError(
                    f"unknown option {name!r}; {suggestion(name, sorted(set(_NAMES.values())))}"
                )
        if "address" not in options:
            raise ConfigError(
                f"option 'address' is missing; it is in the session's setting {ADDRESS_SETTING}, or use "
                "ckpt.spark.read_state"
            )
        return cls(
            options["address"],
            Selection(
                options.get("namespace"),
                options.get("checkpoint"),
                _number(options, "operator"),
                options.get("store"),
                _number(options, "version"),
                options.get("commitId"),
            ),
            options.get("family"),
            _yes(options, "raw"),
            _number(options, "numPartitions", least=1),
        )


_NAMES = {
    name.lower(): name
    for name in (
        "address",
        "namespace",
        "checkpoint",
        "operator",
        "store",
        "family",
        "version",
        "commitId",
        "raw",
        "numPartitions",
    )
} | {"path": "checkpoint"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a read will show: rows of a family, or stored bytes."""

    places: tuple[StoreVersion, ...]
    family: Family | None
    keys: int = 0
    """About how many there are."""


class CkptDataSource(DataSource):
    """State of Spark stores decoded with their schema; of other namespaces keys and values as bytes."""

    @classmethod
    def name(cls) -> str:
        return "ckpt"

    def schema(self) -> StructType:
        options = SourceOptions.of(self.options)
        family = _plan(options).family
        if family is None:
            return _RAW_SCHEMA
        decoder = FamilyDecoder(family)
        return StructType(
            [
                StructField("namespace", StringType()),
                StructField("partition", IntegerType()),
                StructField("version", LongType()),
                StructField("key", _type(decoder.key.spark)),
                StructField("value", _type(decoder.value_spark)),
            ]
        )

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return CkptReader(SourceOptions.of(self.options))


_RAW_SCHEMA = StructType(
    [
        StructField("namespace", StringType()),
        StructField("version", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


@dataclass
class _Share(InputPartition):
    """The stores that one task reads, with one handle."""

    places: tuple[StoreVersion, ...]


class CkptReader(DataSourceReader):
    """Arrow batches of the stores that were chosen; the version is fixed when the read is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._plan = _plan(options)

    def partitions(self) -> Sequence[InputPartition]:
        places = self._plan.places
        # Each task opens the store anew, which costs as much as reading many keys.
        worth = min(_MAX_SHARES, -(-self._plan.keys // _SHARE_KEYS))
        shares = min(len(places), self._options.shares or max(1, worth))
        return [_Share(places[number::shares]) for number in range(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        family = self._plan.family
        with open_to_read(address_of(self._options.address)) as backend:
            for place in partition.places:
                if family is None:
                    for block in stored(backend, place):
                        yield _raw_batch(place, block)
                    continue
                # Ids are given by each store in its own order.
                decoder = FamilyDecoder(read_family(backend, place, family.name))
                for keys, values in decoded(backend, place, decoder):
                    yield from _batches(place, keys, values)


def _plan(options: SourceOptions) -> _Plan:
    with open_to_read(address_of(options.address)) as backend:
        places = options.selection.places(backend)
        if options.raw or StoreName.parse(places[0].namespace) is None:
            if options.family is not None:
                raise ConfigError("a family is decoded, so it cannot be read raw or from a plain namespace")
            return _Plan(tuple(places), None)
        family = read_family(backend, places[0], options.family or DEFAULT_FAMILY)
        counted = [read_live_keys(backend, place) or {} for place in places]
        return _Plan(tuple(places), family, sum(keys.get(family.id, 0) for keys in counted))


def _batches(place: StoreVersion, keys: pa.Array, values: pa.Array) -> Iterator[pa.RecordBatch]:
    name = StoreName.parse(place.namespace)
    assert name is not None
    for start in range(0, len(keys), _BATCH_ROWS):
        some = keys[start : start + _BATCH_ROWS]
        yield pa.RecordBatch.from_arrays(
            [
                _repeated(place.namespace, pa.string(), len(some)),
                _repeated(name.partition, pa.int32(), len(some)),
                _repeated(place.version, pa.int64(), len(some)),
                some,
                values[start : start + _BATCH_ROWS],
            ],
            names=["namespace", "partition", "version", "key", "value"],
        )


def _raw_batch(place: StoreVersion, block: Block) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            _repeated(place.namespace, pa.string(), len(block)),
            _repeated(place.version, pa.int64(), len(block)),
            _binaries(block.keys, block.key_lengths),
            _binaries(block.values, block.value_lengths),
        ],
        names=["namespace", "version", "key", "value"],
    )


def _repeated(value: Any, kind: pa.DataType, times: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), times)


def _binaries(blob: bytes | memoryview, lengths: Any) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(blob)])


def _type(document: Any) -> Any:
    """A type of Spark from its JSON."""
    field = {"name": "it", "type": document, "nullable": True, "metadata": {}}
    return StructField.fromJson(field).dataType


def _number(options: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"option {name!r} is a whole number from {least}, got {text!r:.40}")
    return int(text)


def _yes(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name!r} is true or false, got {text!r:.40}")
    return text == "true"
