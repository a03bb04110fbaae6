"""A query whose keys are placed by a table is never computed without it; what cannot be placed says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import ckpt.spark
from ckpt.cli import main
from ckpt.contract.opening import open_to_read
from ckpt.errors import CkptError
from ckpt.rebalance import RoutingTable, spark_hash
from ckpt.spark.moving import Keeper, Move
from ckpt.spark.rebalancing import open_tables
from tests.spark.conftest import SHUFFLE_PARTITIONS
from tests.spark.routing.routed import MODE, moved_rows, routing_session
from tests.spark.streams import Stream

WORDS = [f"w{n}" for n in range(12)]


def counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("word").agg(fn.count("*").alias("n"))


class Counting:
    """A query that has counted each word once, with all of them in one partition."""

    def __init__(self, session: SparkSession, address: str, folder: Path) -> None:
        self.session, self.address = session, address
        self.stream = Stream(session, folder / "words", "word string")
        self.id = str(self.go_on().id)
        self.write(RoutingTable(1))
        self.go_on()

    def go_on(self) -> Any:
        """One more batch, in which each word comes once."""
        self.stream.feed([{"word": word} for word in WORDS])
        return self.stream.run(counts(self.stream.stream()), "update")

    def write(self, table: RoutingTable) -> None:
        with open_tables(self.address, self.id) as tables:
            tables.write(0, table)

    @property
    def newest(self) -> dict[str, int]:
        """What the last batch has put out."""
        return {row["word"]: row["n"] for row in self.stream.batches[-1]}


@pytest.fixture
def counting(spark: SparkSession, address: str, tmp_path: Path) -> Counting:
    return Counting(routing_session(spark), address, tmp_path)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["rebalance", *words], prog_name="ckpt")
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.spark_core
def test_without_its_routing_a_query_computes_nothing(counting: Counting) -> None:
    counting.session.conf.set(MODE, "off")
    with pytest.raises(StreamingQueryException, match=r"placed by a routing table.*rebalance.mode to apply"):
        counting.go_on()
    counting.session.conf.set(MODE, "apply")
    counting.go_on()
    assert counting.newest == dict.fromkeys(WORDS, 4)


def test_with_its_keys_home_it_needs_no_routing(counting: Counting) -> None:
    run("home", counting.address, counting.id)
    assert moved_rows(counting.go_on()) > 0
    counting.session.conf.set(MODE, "off")
    counting.go_on()
    assert counting.newest == dict.fromkeys(WORDS, 4)


def test_state_is_read_wherever_its_keys_are(counting: Counting) -> None:
    found = ckpt.spark.read_state(counting.session, counting.stream.checkpoint)
    assert {(row.key.word, row.partition) for row in found.collect()} == {(word, 0) for word in WORDS}
    reader = counting.session.read.format("statestore").load(counting.stream.checkpoint)
    assert {row.key.word for row in reader.collect()} == set(WORDS)


def test_other_providers_do_not_get_keys_that_are_placed_by_a_table(counting: Counting) -> None:
    with pytest.raises(CkptError, match="ckpt rebalance home"):
        Move(counting.session, counting.stream.checkpoint, Keeper.DEFAULT).run()
    run("home", counting.address, counting.id)
    counting.go_on()
    Move(counting.session, counting.stream.checkpoint, Keeper.DEFAULT).run()


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (lambda: RoutingTable(SHUFFLE_PARTITIONS + 1), "does not fit a query with 3"),
        (lambda: split(), "splits keys cannot be used"),
    ],
    ids=["too many", "split"],
)
def test_a_table_that_cannot_be_used_is_refused_before_the_batch(
    counting: Counting, table: Callable[[], RoutingTable], why: str
) -> None:
    counting.write(table())
    with pytest.raises(StreamingQueryException, match=why):
        counting.go_on()
    counting.write(RoutingTable(2))
    counting.go_on()
    assert counting.newest == dict.fromkeys(WORDS, 4)


def split() -> RoutingTable:
    from ckpt.rebalance import Split

    return RoutingTable(2, splits=(Split(7, (0, 1), (0.5, 0.5)),))


def test_keys_whose_hashes_collide_move_together(spark: SparkSession, address: str, tmp_path: Path) -> None:
    names = np.array([f"k{n}" for n in range(300_000)])
    hashes = spark_hash([("string", names.tolist())])
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])[0]
    pair = [str(names[order[same + n]]) for n in (0, 1)]
    session = routing_session(spark)
    stream = Stream(session, tmp_path / "words", "word string")
    stream.feed([{"word": word} for word in (*pair, *WORDS)])
    query = stream.run(counts(stream.stream()), "update")
    place = int(hashes[order[same]].view(np.int32) % SHUFFLE_PARTITIONS + 1) % SHUFFLE_PARTITIONS
    with open_tables(address, str(query.id)) as tables:
        tables.write(
            0,
            RoutingTable(
                SHUFFLE_PARTITIONS, hashes[order[same : same + 1]].astype(np.uint64), np.array([place])
            ),
        )
    stream.feed([{"word": word} for word in (*pair, *WORDS)])
    assert moved_rows(stream.run(counts(stream.stream()), "update")) == 2
    assert {row["word"]: row["n"] for row in stream.batches[-1]} == dict.fromkeys((*pair, *WORDS), 2)


def test_commands_scale_a_query_and_find_what_is_misplaced(counting: Counting) -> None:
    assert run("verify", counting.address, counting.id) == "every key is where its table says\n"
    assert "on 2 of 3 partitions" in run("scale", counting.address, counting.id, "2")
    counting.go_on()
    with open_to_read(counting.address) as backend:
        stores = [backend.get_many(f"spark/{counting.id}/0/{n}/default", [b"\xff\xff\x02"]) for n in range(3)]
    assert all(stores)
    assert "has 3 partitions" in run("scale", counting.address, counting.id, "4", code=2)
