"""The demo's Spark application: two queries count the same words batch by batch, each with its own provider.

`python -m ckpt.spark.demo.driver` reads a `Job` from standard input and writes messages to standard output.
A batch is a file of words. What a query puts out for a batch goes into one file, whole or not at all, so a
batch that is done again after a crash replaces what it had put out before.

The queries take turns in one Spark, so that both meet the same machine and the same warm JVM.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ckpt.sidecar.life import first_line
from ckpt.spark.demo.messages import (
    CKPT,
    DEFAULT,
    QUERIES,
    Done,
    Ended,
    Failed,
    Halfway,
    Job,
    Message,
    Started,
)
from ckpt.spark.settings import PROVIDER_CLASS, configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STATE_STORE = "spark.sql.streaming.stateStore"
_PROVIDERS = {
    CKPT: (PROVIDER_CLASS, "2"),
    # Spark's default provider does not know the second format.
    DEFAULT: ("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider", "1"),
}
_LOOK_AGAIN_S = 0.005

Say = Callable[[Message], None]


def main() -> None:
    """Do the job that standard input describes."""
    channel = os.dup(1)
    os.dup2(2, 1)  # Spark's JVM inherits standard output, and what it prints there is not for the parent

    def say(message: Message) -> None:
        os.write(channel, msgspec.json.encode(message) + b"\n")

    try:
        _run(msgspec.json.decode(first_line(), type=Job), say)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent shows it
        say(Failed(_one_line(error)))
        sys.exit(1)
    say(Ended())
    _hold()


def _run(job: Job, say: Say) -> None:
    spark = _session(job)
    say(Started(spark.version))
    queries: dict[str, StreamingQuery] = {}
    for batch in range(job.first, job.batches):
        # Who goes first changes from batch to batch; both have finished the one before.
        for name in QUERIES if batch % 2 == 0 else QUERIES[::-1]:
            _feed(job, name, batch)
            if name not in queries:
                queries[name] = _start(spark, job, name, say)
            queries[name].processAllAvailable()
            progress = next(p for p in reversed(queries[name].recentProgress) if p["batchId"] == batch)
            state = progress["stateOperators"][0]
            say(Done(name, batch, progress["durationMs"]["triggerExecution"], state["numRowsTotal"]))


def _session(job: Job) -> SparkSession:
    from pyspark.sql import SparkSession

    scratch = os.path.join(job.folder, "scratch")
    os.makedirs(scratch, exist_ok=True)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ckpt demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData")
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", os.path.join(scratch, "warehouse"))
        .config("spark.sql.shuffle.partitions", str(job.partitions))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # How soon `statusTracker` knows that a task has ended.
        .config("spark.ui.liveUpdate.period", "10ms")
    )
    spark = configure(builder, job.address).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _feed(job: Job, name: str, batch: int) -> None:
    """Put the words of a batch where the query looks for them, in one step."""
    folder = os.path.join(job.folder, "in", name)
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, f"{batch:04}.txt")
    if not os.path.exists(target):
        hidden = os.path.join(folder, f".{batch:04}")
        shutil.copyfile(os.path.join(job.folder, "words", f"{batch:04}.txt"), hidden)
        os.rename(hidden, target)


def _start(spark: SparkSession, job: Job, name: str, say: Say) -> StreamingQuery:
    provider, format_version = _PROVIDERS[name]
    spark.conf.set(f"{_STATE_STORE}.providerClass", provider)
    spark.conf.set(f"{_STATE_STORE}.checkpointFormatVersion", format_version)
    outputs = os.path.join(job.folder, "out", name)
    os.makedirs(outputs, exist_ok=True)

    def put_out(rows: DataFrame, batch: int) -> None:
        held = name == CKPT and batch == job.hold_in
        all_committed = threading.Event()
        if held:
            watch = (spark, job.partitions, all_committed, say)
            threading.Thread(target=_say_halfway, args=watch, daemon=True).start()
        counted = {row["value"]: row["count"] for row in rows.collect()}
        if held:
            all_committed.set()
            _hold()
        hidden = os.path.join(outputs, f".{batch}")
        with open(hidden, "wb") as file:
            file.write(msgspec.json.encode(counted))
        os.rename(hidden, os.path.join(outputs, f"{batch}.json"))

    words = spark.readStream.option("maxFilesPerTrigger", 1).text(os.path.join(job.folder, "in", name))
    writer = words.groupBy("value").count().writeStream.outputMode("update").foreachBatch(put_out)
    return writer.option("checkpointLocation", os.path.join(job.folder, "checkpoint", name)).start()


def _say_halfway(spark: SparkSession, partitions: int, all_committed: threading.Event, say: Say) -> None:
    """Say it as soon as a third of the partitions have committed; all, if they were too quick to be seen."""
    tracker = spark.sparkContext.statusTracker()
    while not all_committed.wait(_LOOK_AGAIN_S):
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            # The stage of the state is the one with a task for each partition.
            if stage and stage.numTasks == partitions and stage.numCompletedTasks * 3 >= partitions:
                say(Halfway(stage.numCompletedTasks))
                return
    say(Halfway(partitions))


def _hold() -> None:
    """Wait to be killed; or for the parent's end, should that come first."""
    os.read(0, 1)
    os._exit(0)


def _one_line(error: Exception) -> str:
    """The innermost cause that Spark names, among a hundred lines about everything else."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return causes[-1].removeprefix("Caused by: ") if causes else lines[0]


if __name__ == "__main__":
    main()
