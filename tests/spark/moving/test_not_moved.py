"""A query goes on with the provider of its checkpoint as before, and says so to whoever has switched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

pytestmark = pytest.mark.spark_core

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def warnings(spark: SparkSession) -> Iterator[Any]:
    """Says what the session has warned of about state that is kept elsewhere."""
    jvm = spark._jvm
    logging = jvm.org.apache.logging.log4j
    written = jvm.java.io.StringWriter()
    appender = logging.core.appender.WriterAppender.newBuilder().setName("kept").setTarget(written).build()
    appender.start()
    logger = logging.LogManager.getContext(False).getLogger("ckpt.spark.plan.OtherProviderQueries")
    before = logger.getLevel()
    logger.addAppender(appender)
    logging.core.config.Configurator.setLevel(logger.getName(), logging.Level.WARN)
    yield lambda: written.toString().splitlines()
    logger.removeAppender(appender)
    logging.core.config.Configurator.setLevel(logger.getName(), before)


@pytest.mark.parametrize(
    ("keeper", "named"),
    [("default", "HDFSBackedStateStoreProvider"), ("rocksdb", "RocksDBStateStoreProvider")],
)
def test_a_checkpoint_that_was_not_moved_goes_on_and_is_named_with_what_to_do(
    keepers: Any, stream: Any, warnings: Any, keeper: str, named: str
) -> None:
    counts = stream.stream().groupBy("word").count()
    keepers.use(keeper)
    stream.files(0)
    stream.run(counts, "complete")
    keepers.use("ckpt")
    before = len(warnings())
    stream.files(1, 2)
    stream.run(counts, "complete")
    (said,) = warnings()[before:]  # of two batches
    assert f"{named}, not in ckpt" in said
    assert f"ckpt spark import file:{stream.checkpoint} ADDRESS" in said
    # Spark 4.2 notes no format in a checkpoint: in another the query could not go back to where it came from.
    keepers.use(keeper)
    stream.files(3)
    stream.run(counts, "complete")
    assert sorted(stream.batches[-1]) == sorted(stream.rows().groupBy("word").count().collect())


def test_a_query_on_ckpt_and_one_without_state_say_nothing(keepers: Any, stream: Any, warnings: Any) -> None:
    stream.files(0)
    stream.run(stream.stream().groupBy("word").count(), "update")
    keepers.use("default")
    stream.checkpoint += "-of-another"
    stream.run(stream.stream().select("word"), "append")
    assert warnings() == []
