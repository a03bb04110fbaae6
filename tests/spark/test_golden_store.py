"""A store as it was written once: the provider writes the same bytes, and the provider and Python read them.

`golden/store.hex` was written by the provider before its Scala was divided into packages. It has stored keys,
key encoders, the chunks of a list, and the catalogue. A change of it is a change of the format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import ckpt
from ckpt.sidecar import SidecarClient
from ckpt.sidecar.life import Place
from ckpt.spark.catalogue import StoreVersion, read_families, read_live_keys
from ckpt.spark.encodings import FamilyDecoder
from ckpt.spark.keys import stored_key
from ckpt.spark.stores import decoded
from tests.golden import golden_rows

pytestmark = pytest.mark.spark_core

GOLDEN = Path(__file__).parent / "golden" / "store.hex"
ORIGIN = b"\xff\xff\x00"
"""Where the store was written from differs with each run."""
SINGLE = {
    "default": {("be", 1): 2, ("or", -1): 3},
    "prefix": {("be", 1): 4, ("be", 2): 5},
    "$sorted": {("be", 1): 7, ("or", -1): 6},
}
LISTS = {("be", 1): [*range(20), 99], ("not", 0): [5]}
ENCODERS = {"default": "noPrefix", "prefix": "prefix", "$sorted": "range", "list": "noPrefix"}


def with_families(provider: Any, store: Any) -> Any:
    """The store, and in it one family of each kind."""
    store.create("prefix", provider.spec("prefix"))
    store.create("$sorted", provider.range_spec(), internal=True)
    store.create("list", provider.spec("none"), several=True)
    return store


def test_the_provider_writes_the_golden_bytes(provider_of: Any, address: str) -> None:
    provider = provider_of(families=True)
    store = with_families(provider, provider.open(0))
    for family, rows in SINGLE.items():
        for (word, number), value in rows.items():
            store.put(word, number, value, family)
    for (word, number), values in LISTS.items():
        store.merge(word, number, *values[:20], family="list")
    store = with_families(provider, provider.open(1, store.commit()))
    store.merge("be", 1, 99, family="list")  # shorter than the chunk before it, and so a chunk of its own
    store.commit()
    with ckpt.open_backend(address, mode="read") as backend:
        written = dict(backend.scan(provider.namespace))
    assert written.pop(ORIGIN)
    assert written == golden_rows(GOLDEN)


def test_the_provider_reads_the_golden_bytes(provider_of: Any, address: str, tmp_path: Path) -> None:
    started = provider_of(root=tmp_path / "other").open(0)  # and with it the sidecar
    started.put("a", 1, 1)
    started.commit()
    provider = provider_of(families=True)
    with SidecarClient(Place.of(address).socket) as client:
        client.commit(provider.namespace, 1, golden_rows(GOLDEN), commit_id="golden")
    store = with_families(provider, provider.open(1, "golden"))
    for family, rows in SINGLE.items():
        assert {(word, number): value for word, number, value in store.all(family)} == rows
        for (word, number), value in rows.items():
            assert store.get(word, number, family) == value
    assert store.starting_with("be", "prefix") == [("be", 1, 4), ("be", 2, 5)]
    assert [number for _, number, _ in store.all("$sorted")] == [-1, 1]
    for (word, number), values in LISTS.items():
        assert store.values(word, number, "list") == values
    store.commit()
    assert store.java.metrics().numKeys() == 6  # internal families are not counted


def test_python_reads_the_golden_bytes() -> None:
    store = StoreVersion("spark/query/0/0/default")
    with ckpt.open_backend("memory://") as backend:
        backend.commit(store.namespace, 1, golden_rows(GOLDEN))
        families = read_families(backend, store)
        assert {name: family.key_encoder for name, family in families.items()} == ENCODERS
        assert {name for name, family in families.items() if family.internal} == {"$sorted"}
        assert {name for name, family in families.items() if family.multiple} == {"list"}
        assert read_live_keys(backend, store) == dict.fromkeys((f.id for f in families.values()), 2)
        for name, family in families.items():
            [(keys, values)] = decoded(backend, store, FamilyDecoder(family))
            found = {
                (key["word"], key["number"]): value
                for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
            }
            if name == "list":
                assert {key: [row["value"] for row in rows] for key, rows in found.items()} == LISTS
            else:
                assert {key: row["value"] for key, row in found.items()} == SINGLE[name]


@pytest.mark.parametrize("name", ["default", "prefix"])
def test_python_makes_the_golden_keys(name: str) -> None:
    store = StoreVersion("spark/query/0/0/default")
    with ckpt.open_backend("memory://") as backend:
        backend.commit(store.namespace, 1, golden_rows(GOLDEN))
        family = read_families(backend, store)[name]
    made = {stored_key(family, {"word": word, "number": number}) for word, number in SINGLE[name]}
    assert made == {key for key in golden_rows(GOLDEN) if key.startswith(family.prefix)}
