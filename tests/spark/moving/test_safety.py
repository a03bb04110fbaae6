"""A move changes nothing before its last step, can be undone, and says in one line what stands in its way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ckpt.cli import main
from ckpt.errors import ConfigError
from ckpt.spark import Keeper, Move
from ckpt.spark.moving import MoveError, MoveProgress
from tests.effort import sample
from tests.spark.small import JAVA_OPTIONS

MOVER = Path(__file__).with_name("move_and_die.py")
ADDRESS = "spark.sql.streaming.stateStore.ckpt.address"
SPARKS_DEFAULT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


class DiedError(Exception):
    """Of a sink that does not get to its end."""


def test_a_batch_that_was_begun_is_run_again_after_the_move(
    spark: SparkSession, counting: Any, keepers: Any
) -> None:
    def die(_batch: DataFrame, _number: int) -> None:
        raise DiedError

    counting.stream.files(2)
    writer = counting.counts(counting.stream.stream()).writeStream.outputMode("update").foreachBatch(die)
    query = writer.option("checkpointLocation", counting.checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    counting.stream.files(3)

    move = Move(spark, counting.checkpoint, Keeper.CKPT)
    assert (move.plan.batch, move.plan.planned) == (1, 2)
    move.run()
    keepers.use("ckpt")
    counting.run()
    assert len(counting.stream.batches) == 4
    assert counting.newest == counting.expected


def test_the_switch_can_be_undone_with_the_files_that_were_kept(
    spark: SparkSession, counting: Any, keepers: Any
) -> None:
    root = Path(counting.checkpoint)
    before = {
        file: file.read_text() for folder in ("offsets", "commits") for file in (root / folder).glob("[0-9]*")
    }
    moved = Move(spark, counting.checkpoint, Keeper.CKPT).run()
    kept = [Path(path.removeprefix("file:")) for path in moved.kept]
    assert sorted(str(path.relative_to(root)) for path in kept) == [
        "commits/1.default.bak",
        "offsets/1.default.bak",
    ]
    for path in kept:
        original = path.with_name(path.name.removesuffix(".default.bak"))
        assert path.read_text() == before[original] != original.read_text()
        os.replace(path, original)
        original.with_name(f".{original.name}.crc").unlink()
    counting.run(2)
    assert counting.newest == counting.expected


def test_a_switch_that_broke_off_leaves_a_query_that_runs(
    spark: SparkSession, counting: Any, keepers: Any
) -> None:
    """The files are replaced one by one; the first of them decides, and the second is not needed."""
    Move(spark, counting.checkpoint, Keeper.CKPT).run()
    commit = Path(counting.checkpoint, "commits", "1")
    os.replace(commit.with_name("1.default.bak"), commit)
    commit.with_name(".1.crc").unlink()
    keepers.use("ckpt")
    counting.run(2)
    assert counting.newest == counting.expected


def test_a_query_that_runs_meanwhile_is_noticed(spark: SparkSession, counting: Any) -> None:
    def go_on(_: MoveProgress) -> None:
        counting.stream.files(2)
        counting.run()

    with pytest.raises(ConfigError, match="went on meanwhile, so its query is running; stop it"):
        Move(spark, counting.checkpoint, Keeper.CKPT).run(go_on)
    counting.run(3)
    assert counting.newest == counting.expected


def changed(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))
    path.with_name(f".{path.name}.crc").unlink()


def test_what_cannot_be_moved_is_said_in_one_line(spark: SparkSession, counting: Any, tmp_path: Path) -> None:
    def refusal(break_it: Callable[[Path], object], target: Keeper = Keeper.CKPT) -> str:
        copy = tmp_path / "copy"
        shutil.copytree(counting.checkpoint, copy)
        try:
            break_it(copy)
            with pytest.raises((ConfigError, MoveError)) as caught:
                Move(spark, str(copy), target).run()
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def of_others(text: str) -> str:
        return text.replace(SPARKS_DEFAULT, "com.example.TheirProvider")

    assert "does not exist; check the path" in refusal(lambda copy: copy.rename(tmp_path / "elsewhere"))
    assert "not the checkpoint of a streaming query" in refusal(lambda copy: shutil.rmtree(copy / "offsets"))
    assert "no batch of" in refusal(lambda copy: shutil.rmtree(copy / "commits"))
    assert "keeps no state" in refusal(lambda copy: shutil.rmtree(copy / "state"))
    assert "com.example.TheirProvider, which is unknown here" in refusal(
        lambda copy: changed(copy / "offsets/1", of_others)
    )
    assert "has format 9" in refusal(lambda copy: changed(copy / "commits/1", lambda text: f"v9{text[2:]}"))
    assert "this checkpoint is damaged" in refusal(
        lambda copy: changed(copy / "offsets/1", lambda _: "v1\n{")
    )
    assert "has no partition 2, but should have 3; state is missing" in refusal(
        lambda copy: shutil.rmtree(copy / "state/0/2")
    )
    assert "which operator it is of" in refusal(lambda copy: shutil.rmtree(copy / "state/0/_metadata"))
    assert "operator 0, partition 1, store default" in refusal(
        lambda copy: (copy / "state/0/1/1.delta").unlink()
    )
    assert "import it first" in refusal(lambda copy: None, Keeper.ROCKSDB)
    assert "is with Spark's default provider already" in refusal(lambda copy: None, Keeper.DEFAULT)


def test_the_commands_say_what_they_do(
    spark: SparkSession, counting: Any, address: str, keepers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def this_session(given: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        assert (given, settings) == (address, {"spark.driver.memory": "2g"})
        yield spark

    monkeypatch.setattr("ckpt.spark.moving.moving_session", this_session)

    def ckpt(*command: str) -> str:
        arguments = ["spark", *command, "--conf", "spark.driver.memory=2g"]
        result = CliRunner().invoke(main, arguments, prog_name="ckpt")
        return f"{result.exit_code} {result.output.replace(counting.checkpoint, 'HERE')}"

    planned = ckpt("import", counting.checkpoint, address, "--dry-run")
    assert planned.splitlines() == [
        "0 file:HERE: the state after batch 1, from default to ckpt",
        "operator  name            store    partitions  families",
        "       0  stateStoreSave  default           3         0",
    ]
    words = len(counting.expected)
    assert ckpt("import", counting.checkpoint, address).splitlines() == [
        f"0 moved the state after batch 1 from default to ckpt: {words} rows of 3 stores",
        "kept as they were: /offsets/1.default.bak, /commits/1.default.bak",
    ]
    assert ckpt("import", counting.checkpoint, address) == (
        "2 ckpt: the state of file:HERE is with ckpt already; there is nothing to move\n"
    )
    assert ckpt("export", counting.checkpoint, address, "--provider", "rocksdb").startswith(
        f"0 moved the state after batch 1 from ckpt to rocksdb: {words} rows of 3 stores\n"
    )


def test_state_that_is_not_at_the_address_is_missed(spark: SparkSession, counting: Any, address: str) -> None:
    Move(spark, counting.checkpoint, Keeper.CKPT).run()
    spark.conf.set(ADDRESS, f"{address}-of-others")
    try:
        with pytest.raises(MoveError, match=r"operator 0, partition \d, .* version 2 .* of namespace spark/"):
            Move(spark, counting.checkpoint, Keeper.DEFAULT).run()
    finally:
        spark.conf.set(ADDRESS, address)


@pytest.mark.parametrize("moment", sample(["first", "last"], 1, "moment"))
def test_a_move_that_is_killed_changes_nothing(
    spark: SparkSession, counting: Any, address: str, keepers: Any, moment: str
) -> None:
    mover = subprocess.run(
        [sys.executable, MOVER, counting.checkpoint, address, moment, JAVA_OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert mover.stdout == ""  # nor does Spark chatter
    assert mover.returncode == -signal.SIGKILL
    counting.run(2)
    Move(spark, counting.checkpoint, Keeper.CKPT).run()
    keepers.use("ckpt")
    counting.run(3)
    assert counting.newest == counting.expected
