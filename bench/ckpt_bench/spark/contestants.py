"""Who is compared, as settings of a query: ckpt, Spark's own providers, and three floors without state.

A floor is what the same rows cost with nothing remembered. They differ in what they do beside that:

- `nothing`: the same query on a store that keeps nothing, so all of Spark's stateful operators run. No
  provider can be faster.
- `floor`: each batch aggregated alone. The same scan, partial aggregation, shuffle and final aggregation; not
  the two aggregations more that a stateful query has before and behind its store.
- `shuffle`: rows repartitioned. Less than any aggregation: no hash table, no result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ckpt.spark.jar import built_jar
from ckpt.spark.settings import PROVIDER_CLASS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORE = "spark.sql.streaming.stateStore"
_SPARK = "org.apache.spark.sql.execution.streaming.state"
_CHANGELOG = f"{_STORE}.rocksdb.changelogCheckpointing.enabled"

OURS, FLOOR = "ckpt", "floor"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the query; its settings are those of the session in the moment when the query starts."""

    name: str
    about: str
    settings: Mapping[str, str]
    write: Callable[[DataFrame, int], Any]
    """Rows with a column `k` and a number of partitions to a writer that can be started."""
    stateful: bool = True


def _count(rows: DataFrame, partitions: int) -> Any:
    del partitions  # the session's number of shuffle partitions is the operator's
    return rows.groupBy("k").count().writeStream.format("noop").outputMode("update")


def _count_alone(rows: DataFrame, partitions: int) -> Any:
    del partitions

    def count(batch: DataFrame, _: int) -> None:
        batch.groupBy("k").count().write.format("noop").mode("overwrite").save()

    return rows.writeStream.foreachBatch(count)


def _repartition(rows: DataFrame, partitions: int) -> Any:
    return rows.repartition(partitions, "k").writeStream.format("noop")


def _provider(name: str, *, changelog: bool = False) -> dict[str, str]:
    return {
        f"{_STORE}.providerClass": f"{_SPARK}.{name}",
        f"{_STORE}.checkpointFormatVersion": "1",
        _CHANGELOG: str(changelog).lower(),
    }


_NOTHING = {
    f"{_STORE}.providerClass": "ckpt.bench.NothingProvider",
    f"{_STORE}.checkpointFormatVersion": "1",
}
_OURS = {f"{_STORE}.providerClass": PROVIDER_CLASS, f"{_STORE}.checkpointFormatVersion": "2"}

CONTESTANTS: Mapping[str, Contestant] = MappingProxyType(
    {
        c.name: c
        for c in (
            Contestant(OURS, "ckpt, durable", _OURS, _count),
            Contestant("default", "Spark's default", _provider("HDFSBackedStateStoreProvider"), _count),
            Contestant(
                "rocksdb",
                "RocksDB with changelog",
                _provider("RocksDBStateStoreProvider", changelog=True),
                _count,
            ),
            Contestant("nothing", "the same on a store that keeps nothing", _NOTHING, _count, stateful=False),
            Contestant(FLOOR, "no state: each batch aggregated alone", {}, _count_alone, stateful=False),
            Contestant("shuffle", "no state: rows repartitioned", {}, _repartition, stateful=False),
        )
    }
)
"""Name → who it is."""


def nothing_jar() -> str:
    """The jar of the store that keeps nothing; compiled on first use, as the provider is."""
    return built_jar("ckpt-bench", [os.path.join(os.path.dirname(__file__), "jvm", "Nothing.scala")])


def files_below(*folders: str) -> int:
    """How many files there are now, in all folders below these; ones that vanish meanwhile do not count."""
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))
