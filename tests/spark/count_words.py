"""A driver to be killed: counts words until all are counted, and says which batch it begins and has ended.

`python count_words.py FOLDER ADDRESS` reads FOLDER/in and writes what each batch puts out to FOLDER/out.
With `--speculate`, the first attempt at a partition commits its state and then waits until it is killed for
a second attempt's sake, which leaves a file in FOLDER/again. With `--placed tables`, the keys are placed by a
table that changes with every batch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import ckpt.spark
from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import open_tables

STUCK_S = 120
PARTITIONS = 4
REBALANCE_MODE = "spark.sql.streaming.stateStore.ckpt.rebalance.mode"


def second_attempt_only(parts: Iterator[pd.DataFrame], folder: str) -> Iterator[pd.DataFrame]:
    """The rows, once all of them are read; the first attempt at partition 0 gets no further."""
    rows = list(parts)  # and with the last of them the store has committed
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0:
        if task.attemptNumber() == 0:
            time.sleep(STUCK_S)
        open(f"{folder}/again/{task.taskAttemptId()}", "w").close()
    yield from rows


def change_table(address: str, checkpoint: str, batch: int) -> None:
    """With each batch the keys are on one partition more, and on one after they were on all."""
    with open(f"{checkpoint}/metadata") as file, open_tables(address, json.load(file)["id"]) as tables:
        tables.write(0, RoutingTable(batch % PARTITIONS + 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("address")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--speculate", action="store_true")
    parser.add_argument("--placed", choices=["hash", "tables"], default="hash")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    folder = given.folder
    builder = SparkSession.builder.master(given.master).config("spark.sql.shuffle.partitions", PARTITIONS)
    for name, _, value in (pair.partition("=") for pair in given.conf):
        builder.config(name, value)
    # The workers of the cluster are on this host, and share a log if their executors share a runtime folder.
    reach = "host" if given.address.startswith("log:") else "everywhere"
    python = sys.executable
    builder.config(REBALANCE_MODE, "apply" if given.placed == "tables" else "off")
    spark = ckpt.spark.configure(builder, given.address, python=python, reach=reach).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def put_out(batch: DataFrame, number: int) -> None:
        print(f"begins {number}", flush=True)
        if given.speculate:
            batch = batch.mapInPandas(partial(second_attempt_only, folder=folder), batch.schema)
        rows = {row["word"]: row["count"] for row in batch.collect()}
        with open(f"{folder}/out/{number}.new", "w") as file:
            json.dump(rows, file)
        os.rename(f"{folder}/out/{number}.new", f"{folder}/out/{number}.json")
        if given.placed == "tables":
            change_table(given.address, f"{folder}/checkpoint", number)
        print(f"ended {number}", flush=True)

    reader = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
    counts = reader.json(f"{folder}/in").groupBy("word").count()
    writer = counts.writeStream.outputMode("update").foreachBatch(put_out)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
