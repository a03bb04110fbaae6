"""Where the stored keys of a query are, and where they belong: computed from the store alone.

A row belongs to the partition that the routing table of its commit gives to the hash of its *partition key*:
those columns of the stored key by which Spark shuffles rows to the operator.

| family | its stored key | partition key |
| --- | --- | --- |
| aggregation, deduplication, groups with state, value and list state | the key | all of it |
| session windows | the key, the start of the session | the prefix |
| join, rows by number | the key, the number of the row | all but the last |
| map state | `key`, `userKey` | the fields of `key` |
| timers by key, timers by time | `key`, time; time, `key` | the fields of `key` |
| expiry of values and lists, of maps | time, `elementKey` | its fields; those of its `key` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError, UnsupportedError
from ckpt.rebalance import RoutingTable
from ckpt.rebalance.sparkhash import Array, Struct, Type, spark_hash
from ckpt.spark.catalogue import Family, StoreName, StoreVersion, read_families, read_layout
from ckpt.spark.encodings import FamilyDecoder
from ckpt.spark.selection import newest_of_all, within
from ckpt.spark.stores import decoded

_BY_NUMBER = "keyWithIndexToValue"
_TIMERS_BY_KEY, _TIMERS_BY_TIME = "_keyToTimestamp", "_timestampToKey"
_EXPIRY = "$ttl_"
_MAP_KEY = ["key", "userKey"]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A stored row that is not where its table puts its key."""

    namespace: str
    family: str
    key: Mapping[str, Any]
    belongs_to: int
    """The partition that has this key."""


@dataclass(frozen=True, slots=True)
class FamilyRows:
    """The keys of one family of one store: the hash of each one's partition key."""

    store: StoreName
    place: StoreVersion
    family: str
    keys: pa.Array
    hashes: npt.NDArray[np.uint32]


def rows_of(backend: Backend, query: str) -> Iterator[tuple[FamilyRows, RoutingTable | None]]:
    """Every stored row of a query as of one version of all its stores, with the table of its commit."""
    yield from _rows_of(backend, _stores(backend, query))


def _rows_of(
    backend: Backend, stores: Mapping[str, StoreName]
) -> Iterator[tuple[FamilyRows, RoutingTable | None]]:
    partitions = _partitions(stores)
    version = newest_of_all(backend, list(stores))
    for name, store in stores.items():
        if partitions[store.operator] == 1:
            continue  # an operator with all rows in one partition, such as a limit, has no partition key
        commit = backend.history(name).resolve(version)
        if commit is None:
            continue
        place = StoreVersion(name, commit.version, commit.id)
        table = read_layout(backend, place)
        families = read_families(backend, place)
        for family in families.values():
            decoder = FamilyDecoder(family)
            for keys, _ in decoded(backend, place, decoder):
                columns = _partition_key(store, family, families, decoder.key.spark, keys)
                yield FamilyRows(store, place, family.name, keys, spark_hash(columns)), table


def misplaced(backend: Backend, query: str) -> Iterator[Misplaced]:
    """The rows of a query that are in another partition than their table says; ConfigError for no such query.

    Where this yields nothing, every key is in exactly one partition, for its hash has one place.
    """
    stores = _stores(backend, query)
    partitions = max(_partitions(stores).values())
    tables: dict[int, RoutingTable | None] = {}
    for rows, table in _rows_of(backend, stores):
        if _bytes(tables.setdefault(rows.store.operator, table)) != _bytes(table):
            raise ConfigError(
                f"the stores of operator {rows.store.operator} of query {query} were committed under several "
                f"routing tables as of version {rows.place.version}; it was run without routing in between"
            )
        placed = RoutingTable(partitions) if table is None else table
        belongs = placed.place(rows.hashes.astype(np.uint64))
        for at in np.flatnonzero(belongs != rows.store.partition).tolist():
            yield Misplaced(rows.place.namespace, rows.family, rows.keys[at].as_py(), int(belongs[at]))


def _bytes(table: RoutingTable | None) -> bytes:
    return b"" if table is None else table.to_bytes()


def partitions_of(backend: Backend, query: str) -> dict[int, int]:
    """How many partitions each stateful operator of a query has."""
    return _partitions(_stores(backend, query))


def _partitions(stores: Mapping[str, StoreName]) -> dict[int, int]:
    counted: dict[int, int] = {}
    for store in stores.values():
        counted[store.operator] = max(counted.get(store.operator, 0), store.partition + 1)
    return counted


def _stores(backend: Backend, query: str) -> dict[str, StoreName]:
    """The stores of a query by their namespaces; ConfigError if there is no such query."""
    parsed = {name: StoreName.parse(name) for name in within(backend, f"spark/{query}")}
    return {name: store for name, store in parsed.items() if store is not None}


def _partition_key(
    store: StoreName, family: Family, families: Mapping[str, Family], key_type: Any, keys: pa.Array
) -> list[tuple[Type, list[Any]]]:
    """The columns of the partition key, each with its type."""
    fields = {field["name"]: field for field in key_type["fields"]}
    names = list(fields)
    nested: list[str] = []
    if _BY_NUMBER in (store.store.partition("-")[2], family.name.partition("-")[2]):
        names.pop()
    elif family.name.endswith(_TIMERS_BY_TIME):
        nested = [names[1]]
    elif family.name.endswith(_TIMERS_BY_KEY):
        nested = [names[0]]
    elif family.name.startswith(_EXPIRY):
        nested = [names[1]]
        if _is_map(families.get(family.name.removeprefix(_EXPIRY))):
            nested.append(_MAP_KEY[0])
    elif _is_map(family):
        nested = [_MAP_KEY[0]]
    elif family.key_encoder == "prefix":
        names = names[: len(family.ordinals)]
    for name in nested:
        keys = keys.field(name)
        fields = {field["name"]: field for field in fields[name]["type"]["fields"]}
        names = list(fields)
    return [_column(fields[name], keys.field(name)) for name in names]


def _is_map(family: Family | None) -> bool:
    if family is None or family.key_encoder != "prefix":
        return False
    return [field["name"] for field in family.key_schema["fields"]] == _MAP_KEY


def _column(field: Mapping[str, Any], values: pa.Array) -> tuple[Type, list[Any]]:
    kind = _hashed_type(field["type"])
    return kind, [_hashed_value(kind, value) for value in values.to_pylist()]


def _hashed_type(written: Any) -> Type:
    if isinstance(written, str):
        return written
    if written["type"] == "struct":
        return Struct(tuple(_hashed_type(field["type"]) for field in written["fields"]))
    if written["type"] == "array":
        return Array(_hashed_type(written["elementType"]))
    raise UnsupportedError(f"where a key of type {written['type']} belongs is known to Spark only")


def _hashed_value(kind: Type, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct):
        return tuple(
            _hashed_value(inner, each) for inner, each in zip(kind.fields, value.values(), strict=True)
        )
    if isinstance(kind, Array):
        return [_hashed_value(kind.element, each) for each in value]
    return value
