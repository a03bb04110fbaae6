"""What a Spark store says about itself: its families with their schemas, how many keys they have, its origin.

The provider writes these rows into family 65535 of the store's namespace, in the commits that change them, so
that state can be read without the query that wrote it.

```
key                         value
family id (u16, 65535) +
  name of a family, UTF-8   JSON: format, id, internal, multiple, encoding, keySchema, valueSchema, keyEncoder
  00                        JSON: format, spark, checkpoint, query: where the store was last written from
  01                        live keys: number of families (u16), for each of them id (u16) and keys (u64)
  02                        the routing table that placed the keys, as ckpt.rebalance.RoutingTable has its
                            bytes; not there where Spark's hash placed them
```

Numbers are big endian. A namespace is `spark/<query id>/<operator>/<partition>/<store>`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError, CorruptRecordError, SerializationError
from ckpt.rebalance import RoutingTable

CATALOGUE_ID = 0xFFFF
FAMILY_ID = struct.Struct(">H")
DEFAULT_FAMILY = "default"
_FORMAT = 1
_PREFIX = FAMILY_ID.pack(CATALOGUE_ID)
_ORIGIN = _PREFIX + b"\x00"
_LIVE_KEYS = _PREFIX + b"\x01"
_LAYOUT = _PREFIX + b"\x02"
_NO_FAMILIES = frozenset({_ORIGIN, _LIVE_KEYS, _LAYOUT})
_LIVE = struct.Struct(">HQ")


@dataclass(frozen=True, slots=True)
class StoreName:
    """The parts of a store's namespace; `query` is the checkpoint's root where there is no query id."""

    query: str
    operator: int
    partition: int
    store: str

    @classmethod
    def parse(cls, namespace: str) -> StoreName | None:
        """The parts, or None if this is no namespace of a Spark store.

        Examples
        --------
        >>> StoreName.parse("spark/1c7f0a52-0000-0000-0000-000000000000/0/3/default")
        StoreName(query='1c7f0a52-0000-0000-0000-000000000000', operator=0, partition=3, store='default')
        >>> StoreName.parse("words")
        """
        if not namespace.startswith("spark/"):
            return None
        head, *parts = namespace.rsplit("/", 3)
        query = head.removeprefix("spark").removeprefix("/")
        if len(parts) != 3 or not (query and parts[0].isdecimal() and parts[1].isdecimal() and parts[2]):
            return None
        return cls(query, int(parts[0]), int(parts[1]), parts[2])


@dataclass(frozen=True, slots=True)
class Family:
    """One column family: how its keys and values are encoded."""

    name: str
    id: int
    internal: bool
    multiple: bool
    encoding: str
    key_schema: Mapping[str, Any]
    value_schema: Mapping[str, Any]
    key_encoder: str
    ordinals: tuple[int, ...] = ()
    """Which fields of the key stand first in its bytes."""

    @property
    def prefix(self) -> bytes:
        """What its stored keys begin with."""
        return FAMILY_ID.pack(self.id)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a store was last written from."""

    spark: str
    checkpoint: str
    query: str


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """One store as of one version and commit; without either, as of its tip."""

    namespace: str
    version: int | None = None
    commit_id: str | None = None


def read_family(backend: Backend, place: StoreVersion, name: str) -> Family:
    """One family of a store, without reading the others; ConfigError if the store has none of that name."""
    key = _PREFIX + name.encode()
    found = _get(backend, place, key)
    if found is None:
        known = sorted(read_families(backend, place))
        if not known:
            raise ConfigError(
                f"namespace {place.namespace!r} of {backend.address} says nothing about its schema; if a "
                "Spark query writes it, let it run one batch with this version of ckpt, or read it raw"
            )
        raise ConfigError(
            f"store {place.namespace!r} has no family {name!r}; it has {', '.join(map(repr, known))}"
        )
    return _family(place, name, found)


def read_families(backend: Backend, place: StoreVersion) -> dict[str, Family]:
    """Every family of a store by name; empty if it says nothing about itself."""
    if (read_live_keys(backend, place) or {}).keys() == {0}:
        # Most stores have no other, and to find that out a log would be read whole.
        found = _get(backend, place, _PREFIX + DEFAULT_FAMILY.encode())
        if found is not None:
            return {DEFAULT_FAMILY: _family(place, DEFAULT_FAMILY, found)}
    rows = backend.scan(place.namespace, prefix=_PREFIX, version=place.version, commit_id=place.commit_id)
    names = {key[len(_PREFIX) :]: value for key, value in rows if key not in _NO_FAMILIES}
    return {name.decode(): _family(place, name.decode(), value) for name, value in sorted(names.items())}


def read_origin(backend: Backend, place: StoreVersion) -> Origin | None:
    """Where the store was last written from, or None if it does not say."""
    found = _get(backend, place, _ORIGIN)
    if found is None:
        return None
    document = _document(place, found)
    return Origin(document["spark"], document["checkpoint"], document["query"])


def read_live_keys(backend: Backend, place: StoreVersion) -> dict[int, int] | None:
    """How many keys each family has, by the family's id; None if the store does not say."""
    found = _get(backend, place, _LIVE_KEYS)
    if found is None:
        return None
    if len(found) < FAMILY_ID.size:
        raise _damaged(place)
    (count,) = FAMILY_ID.unpack_from(found)
    if len(found) != FAMILY_ID.size + count * _LIVE.size:
        raise _damaged(place)
    return dict(_LIVE.iter_unpack(found[FAMILY_ID.size :]))


def read_layout(backend: Backend, place: StoreVersion) -> RoutingTable | None:
    """The table that placed the keys of the store's operator; None if Spark's hash did."""
    found = _get(backend, place, _LAYOUT)
    return None if found is None else RoutingTable.from_bytes(found)


def _get(backend: Backend, place: StoreVersion, key: bytes) -> bytes | None:
    found = backend.get_many(place.namespace, [key], version=place.version, commit_id=place.commit_id)
    return found.get(key)


def _family(place: StoreVersion, name: str, value: bytes) -> Family:
    document = _document(place, value)
    encoder = document["keyEncoder"]
    ordinals = encoder.get("ordinals") or range(encoder.get("columns", 0))
    return Family(
        name,
        document["id"],
        document["internal"],
        document["multiple"],
        document["encoding"],
        document["keySchema"],
        document["valueSchema"],
        encoder["type"],
        tuple(ordinals),
    )


def _document(place: StoreVersion, value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
        form = document["format"]
    except (ValueError, TypeError, KeyError):
        raise _damaged(place) from None
    if form != _FORMAT:
        raise SerializationError(
            f"store {place.namespace!r} was written by a newer ckpt (format {form}); read it with that one"
        )
    return dict(document)


def _damaged(place: StoreVersion) -> CorruptRecordError:
    return CorruptRecordError(
        f"what store {place.namespace!r} says about itself cannot be read; `ckpt verify` looks for damage"
    )
