"""How `ls`, `cat` and `stats` show the stores of Spark queries: by query, operator and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ckpt.cli.show import jsonable
from ckpt.contract.addresses import suggestion
from ckpt.contract.backend import Backend
from ckpt.errors import ConfigError, UnsupportedError
from ckpt.spark.catalogue import (
    Family,
    StoreName,
    StoreVersion,
    read_families,
    read_live_keys,
    read_origin,
)
from ckpt.spark.selection import newest_of_all

if TYPE_CHECKING:
    from ckpt.spark.columns import Structs


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """One decoded row of a store."""

    namespace: str
    family: str
    only_family: bool
    """The store has no other, so its name is not shown."""
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing: a namespace, or all partitions of one store of a query."""

    name: str
    versioned: bool
    store: str | None = None
    partitions: int | None = None
    version: int | None = None
    keys: int | None = None
    """Those that Spark counts: without its own families."""
    checkpoint: str | None = None

    def document(self) -> dict[str, Any]:
        """The line as JSON; what is not known is left out."""
        more = {
            "store": self.store,
            "partitions": self.partitions,
            "version": self.version,
            "keys": self.keys,
            "checkpoint": self.checkpoint,
        }
        named = {"namespace": self.name, "versioned": self.versioned}
        return named | {name: value for name, value in more.items() if value is not None}

    def details(self) -> list[str]:
        """What there is to say beside the name."""
        shown = []
        if self.store is not None:
            shown.append(self.store)
        if self.partitions is not None:
            shown.append(f"{self.partitions:,} partition{'s' if self.partitions != 1 else ''}")
        if self.version is not None:
            shown.append(f"version {self.version}")
        if self.keys is not None:
            shown.append(f"{self.keys:,} key{'s' if self.keys != 1 else ''}")
        if self.checkpoint is not None:
            shown.append(self.checkpoint)
        return shown


def listing(backend: Backend, names: list[str], *, long: bool) -> Iterator[Listed]:
    """Every namespace, in order; partitions of one Spark store are one line, unless `long`."""

    def kind(name: str) -> tuple[str, str]:
        parsed = StoreName.parse(name)
        return (name, "") if parsed is None else (f"spark/{parsed.query}/{parsed.operator}", parsed.store)

    for (name, store), members in groupby(sorted(names, key=kind), kind):
        listed = list(members)
        if not store:
            yield Listed(name, bool(backend.history(name)))
        elif long:
            yield from (_described(backend, partition, [partition]) for partition in _in_order(listed))
        else:
            yield _described(backend, name, listed, store)


def state_keys(backend: Backend, members: Sequence[str]) -> int | None:
    """How many keys these partitions of one store have, as Spark counts them; None if one does not say."""
    live = [read_live_keys(backend, StoreVersion(member)) for member in members]
    if None in live:
        return None
    internal: set[int] = set()
    if any(len(counts) > 1 for counts in live if counts):
        internal = {f.id for f in read_families(backend, StoreVersion(members[0])).values() if f.internal}
    return sum(n for counts in live if counts for id_, n in counts.items() if id_ not in internal)


def rows(
    backend: Backend, places: list[StoreVersion], *, family: str | None, key: str | None
) -> Iterator[DecodedRow]:
    """The decoded rows of some stores: of one family or all, with this key or all.

    A key is text, or JSON, if it has one column, otherwise a JSON object of the columns that are to be equal.
    """
    try:
        from ckpt.spark.encodings import FamilyDecoder
        from ckpt.spark.keys import stored_key
        from ckpt.spark.stores import decoded, decoded_row
    except ImportError as error:
        raise UnsupportedError(
            f"rows of Spark stores are decoded with {error.name}; install it with "
            "`pip install 'ckpt[spark]'`, or use --raw"
        ) from error
    for place in places:
        families = read_families(backend, place)
        for chosen in _chosen(place, families, family):
            decoder = FamilyDecoder(chosen)
            asked = None if key is None else _asked(key, decoder.key)
            stored = None if asked is None else stored_key(chosen, asked)
            found = (
                decoded(backend, place, decoder)
                if stored is None
                else decoded_row(backend, place, decoder, stored)
            )
            for keys, values in found:
                # Keys alone are cheap to look at.
                wanted = keys.to_pylist(maps_as_pydicts="lossy")
                for at, plain in enumerate(map(jsonable, wanted)):
                    if asked is None or stored is not None or asked.items() <= plain.items():
                        value = jsonable(values[at].as_py(maps_as_pydicts="lossy"))
                        yield DecodedRow(place.namespace, chosen.name, len(families) == 1, plain, value)


def _chosen(place: StoreVersion, families: dict[str, Family], name: str | None) -> list[Family]:
    if name is None:
        if not families:
            raise ConfigError(f"store {place.namespace!r} says nothing about its schema; use --raw")
        return list(families.values())
    if name not in families:
        known = ", ".join(map(repr, families)) or "none"
        raise ConfigError(f"store {place.namespace!r} has no family {name!r}; it has {known}")
    return [families[name]]


def _asked(text: str, columns: Structs) -> dict[str, Any]:
    """The columns of a key that are to be equal."""
    names = columns.names
    try:
        asked = json.loads(text)
    except ValueError:
        asked = text
    if isinstance(asked, dict):
        if unknown := [name for name in asked if name not in names]:
            raise ConfigError(
                f"keys of this store have no column {unknown[0]!r}; {suggestion(unknown[0], names)}"
            )
        return {name: asked[name] for name in names if name in asked}
    if len(names) != 1:
        raise ConfigError(
            f"keys of this store have {len(names)} columns; name those that matter as JSON: "
            f"{json.dumps(dict.fromkeys(names, '...'))}"
        )
    # A text may well be `42` or `null`: only in quotes it is taken as JSON.
    is_text = columns.columns[0].spark == "string" and not isinstance(asked, str)
    return {names[0]: text if is_text else asked}


def _described(backend: Backend, name: str, members: list[str], store: str | None = None) -> Listed:
    """A line about some partitions of one store."""
    origin = read_origin(backend, StoreVersion(members[0]))
    return Listed(
        name,
        True,
        store,
        None if store is None else len(members),
        newest_of_all(backend, members),
        state_keys(backend, members),
        origin.checkpoint if origin is not None else None,
    )


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: parsed.partition if (parsed := StoreName.parse(name)) else -1)
