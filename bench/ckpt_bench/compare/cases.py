"""The cases of a comparison by name: what is measured, between whom, and which ratio is asked for.

A ratio is the baseline's throughput over the store's, so above 1 the baseline is faster. The bars are for
the baseline that a case has by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ckpt.contract.addresses import suggestion
from ckpt.errors import ConfigError
from ckpt_bench.compare.through import Producers, ThesisReads, ThesisWrites
from ckpt_bench.compare.turns import (
    BulkBatches,
    Job,
    MixedBatches,
    ObjectBatches,
    Openings,
    Player,
    PutBatches,
    Sizes,
)
from ckpt_bench.drivers import BULK_STORES


@dataclass(frozen=True, slots=True)
class Bar:
    """The ratio that has to be reached, and the one that would be better still."""

    least: float
    stretch: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured."""

    name: str
    about: str
    play: Callable[[Job], Player]
    durable: bool
    sizes: Sizes
    quick: Sizes
    stores: tuple[str, ...]
    """Who takes part unless asked otherwise."""
    others: tuple[str, ...] = ()
    """Who may be asked to; it takes them minutes."""
    bars: Mapping[str, Bar] = field(default_factory=dict)
    baseline: str = "log"


_PEERS = ("rocksdict", "lmdb", "sqlite3", "diskcache", "file-per-key")
_FILES = ("file", "file-per-key")
"""One file for each key: with what the contract of backends promises, and with nothing but a rename."""
_FLOOR = "raw-append"


def _puts(name: str, value_bytes: int) -> Case:
    return Case(
        name,
        f"puts of {value_bytes:,} B in batches of 1,000, not synced",
        PutBatches,
        False,
        Sizes(keys=100_000, rounds=100, calls=10, records=1000, value_bytes=value_bytes),
        Sizes(keys=10_000, rounds=20, calls=1, records=1000, value_bytes=value_bytes),
        ("log", "file", *_PEERS, _FLOOR),
        bars={"rocksdict": Bar(3, 4.5), "lmdb": Bar(2.5, 4)},
    )


def _durable(records: int, calls: int, rocks: Bar, file: Bar | None = None) -> Case:
    return Case(
        f"durable-batch-{records}",
        f"durable puts of 1 KB, {records:,} a batch",
        PutBatches,
        True,
        Sizes(keys=100_000, rounds=100, calls=calls, records=records, value_bytes=1000),
        Sizes(keys=10_000, rounds=20, calls=max(calls // 10, 1), records=records, value_bytes=1000),
        ("log", "file", *_PEERS, _FLOOR),
        bars={"rocksdict": rocks, "lmdb": Bar(3, 5)} | (dict.fromkeys(_FILES, file) if file else {}),
    )


def _append(name: str, about: str, durable: bool, bar: Bar) -> Case:
    return Case(
        name,
        f"1 KB records appended in batches of 1,000, {about}: the floor keeps nothing to find them by",
        PutBatches,
        durable,
        Sizes(keys=100_000, rounds=100, calls=10, records=1000, value_bytes=1000),
        Sizes(keys=10_000, rounds=20, calls=3, records=1000, value_bytes=1000),
        ("log", _FLOOR),
        others=("file", *_PEERS),
        bars={_FLOOR: bar},
    )


def _thesis(name: str, about: str, play: Callable[[Job], Player], bar: Bar) -> Case:
    return Case(
        name,
        about,
        play,
        True,
        Sizes(keys=1000, rounds=20, calls=10_000, records=1, value_bytes=1000),
        Sizes(keys=100, rounds=10, calls=1000, records=1, value_bytes=1000),
        ("log", "file", *_PEERS),
        others=("redis", "hbase", "cassandra", "s3"),
        bars=dict.fromkeys(_FILES, bar),
    )


def _object(records: int) -> Case:
    return Case(
        f"object-batch-{records}",
        f"durable puts of 1 KB on S3, {records:,} a batch, beside a raw PUT of the same bytes and SlateDB",
        ObjectBatches,
        True,
        Sizes(keys=100_000, rounds=150, calls=1, records=records, value_bytes=1000),
        Sizes(keys=10_000, rounds=6, calls=1, records=records, value_bytes=1000),
        ("s3", "raw-put", "slatedb"),
        bars={"raw-put": Bar(0.7, 0.9), "slatedb": Bar(0.8, 1.2)},
        baseline="s3",
    )


def _bulk(server: str, what: str) -> Case:
    calls = [f"{server}-{name}" for name in BULK_STORES[server] if name != "ckpt"]
    return Case(
        f"{server}-bulk-{what}",
        f"{what} of 1 KB on {server} in batches of 1,000, beside the best bulk calls of its driver",
        BulkBatches,
        True,
        Sizes(keys=20_000, rounds=60, calls=1, records=1000, value_bytes=1000),
        Sizes(keys=1000, rounds=6, calls=1, records=100, value_bytes=1000),
        (server, *calls),
        bars=dict.fromkeys(calls, Bar(0.7)),
        baseline=server,
    )


_ALL = (
    _puts("batched-puts-100B", 100),
    _puts("batched-puts-1KB", 1000),
    _durable(1, 100, Bar(1.0, 1.5)),
    _durable(100, 10, Bar(1.4, 2), Bar(50, 100)),
    _durable(1000, 4, Bar(2.2, 3)),
    Case(
        "producers-keeper",
        "8 threads save 1 KB each through a SafeKeeper, until all of it is durable; a name without -keeper, "
        "but for log and file, is written to directly, with a sync for each put",
        Producers,
        True,
        Sizes(keys=1_000_000, rounds=20, calls=4000, records=1, value_bytes=1000),
        Sizes(keys=10_000, rounds=10, calls=400, records=1, value_bytes=1000),
        ("log", "rocksdict", "rocksdict-keeper", "lmdb", "lmdb-keeper"),
        others=("file", "sqlite3", "sqlite3-keeper", "diskcache", "file-per-key", "file-per-key-keeper"),
        bars={"rocksdict": Bar(3.5, 5), "rocksdict-keeper": Bar(1.3, 1.5)},
    ),
    Case(
        "mix-90-10",
        "90 % puts and 10 % gets of 1 KB over all keys, in batches of 100, not synced",
        MixedBatches,
        False,
        Sizes(keys=1_000_000, rounds=100, calls=100, records=100, value_bytes=1000),
        Sizes(keys=10_000, rounds=20, calls=20, records=100, value_bytes=1000),
        ("log", "rocksdict", "lmdb", "sqlite3"),
        others=("file", "diskcache", "file-per-key"),
        bars={"rocksdict": Bar(2.5, 4), "lmdb": Bar(1.0, 1.5)},
    ),
    _append("raw-append-durable", "durable", True, Bar(0.6, 0.8)),
    _append("raw-append-nosync", "not synced", False, Bar(0.25, 0.5)),
    Case(
        "open",
        "opening a store that was closed, and reading one key",
        Openings,
        False,
        Sizes(keys=5_000_000, rounds=30, calls=1, records=10_000, value_bytes=8),
        Sizes(keys=50_000, rounds=10, calls=1, records=10_000, value_bytes=8),
        ("log", "rocksdict", "lmdb", "sqlite3"),
        others=("file", "diskcache", "file-per-key"),
        bars={"rocksdict": Bar(50), "lmdb": Bar(1)},
    ),
    _thesis(
        "thesis-mix-writes",
        "the thesis' mix through a SafeKeeper: 90 % saves and 10 % loads of 1 KB, until all of it is durable",
        ThesisWrites,
        Bar(4.85, 50),
    ),
    _thesis(
        "thesis-mix-reads",
        "the thesis' recovery: the store is opened again, and every key loaded through a SafeKeeper",
        ThesisReads,
        Bar(3, 5),
    ),
    _object(1),
    _object(100),
    _object(1000),
    *(_bulk(server, what) for server in BULK_STORES for what in ("puts", "gets")),
)

CASES: Mapping[str, Case] = MappingProxyType({case.name: case for case in _ALL})
"""Every case, in the order in which they run."""


def stores_of(case: Case) -> tuple[str, ...]:
    """Everybody who can take part."""
    return (*case.stores, *case.others)


ALL_STORES = tuple(dict.fromkeys(name for case in _ALL for name in stores_of(case)))
"""Every store that can take part in something."""


def checked_store(name: str) -> str:
    """The name of a store, or a ConfigError that names the nearest."""
    if name not in ALL_STORES:
        raise ConfigError(f"no store {name!r} to compare; {suggestion(name, ALL_STORES)}")
    return name
