"""A driver to be killed: queries of several stateful operators, side by side, until all rows are processed.

`python -m tests.spark.every_operator FOLDER ADDRESS BATCH PLACED OPERATOR…` reads FOLDER/rows and
FOLDER/right and writes what each batch puts out to FOLDER/out/OPERATOR/BATCH, again and whole if the batch is
run again. It says on standard output which batch of which operator it begins and has ended.

Number BATCH the queries begin together, and when they have ended it they wait to be killed. With `end` for
BATCH they come to their end; then FOLDER/expected/OPERATOR gets what a batch makes of all rows.

PLACED is how keys are: by `hash`, as Spark does, or by `tables`, which change with every batch.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import ckpt.spark
from ckpt.rebalance import RoutingTable
from ckpt.spark.rebalancing import open_tables
from tests.spark.operators import OPERATORS, SCHEMA, Operator
from tests.spark.small import SETTINGS

PARTITIONS = 2
MOST_GROUPS = 2
"""How many stateful operators a query has at most."""


class Killed:
    """The batch in which the queries meet and wait to be killed."""

    def __init__(self, number: int, queries: int) -> None:
        self._number, self._all_begin = number, threading.Barrier(queries)

    def begins(self, number: int) -> None:
        if number == self._number:
            self._all_begin.wait()

    def ended(self, number: int) -> None:
        if number == self._number:
            threading.Event().wait()


def main(folder: str, address: str, batch: str, placed: str, *names: str) -> None:
    builder = (
        SparkSession.builder.master("local[2]")
        .config(map=dict(SETTINGS))
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config(
            "spark.sql.streaming.stateStore.ckpt.rebalance.mode", "apply" if placed == "tables" else "off"
        )
        # Spark refuses a checkpoint whose first offsets it was killed in the middle of writing.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    )
    spark = ckpt.spark.configure(builder, address).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    operators = [OPERATORS[name] for name in names]
    killed = None if batch == "end" else Killed(int(batch), len(operators))
    with ThreadPoolExecutor(len(operators)) as pool:
        for done in [pool.submit(run, spark, folder, address, operator, killed) for operator in operators]:
            done.result()
    os.makedirs(f"{folder}/expected", exist_ok=True)
    for operator in operators:
        rows, right = (spark.read.schema(SCHEMA).json(f"{folder}/{name}") for name in ("rows", "right"))
        write(f"{folder}/expected/{operator.name}", operator.expected(rows, right))
    spark.stop()


def run(spark: SparkSession, folder: str, address: str, operator: Operator, killed: Killed | None) -> None:
    if operator.by_clock:
        spark = spark.newSession()
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")

    def stream(name: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(f"{folder}/{name}")

    def put_out(batch: DataFrame, number: int) -> None:
        print(f"{operator.name} begins {number}", flush=True)
        if killed:
            killed.begins(number)
        write(f"{folder}/out/{operator.name}/{number}", batch.collect())
        change_tables(address, f"{folder}/checkpoints/{operator.name}", number)
        print(f"{operator.name} ended {number}", flush=True)
        if killed:
            killed.ended(number)

    os.makedirs(f"{folder}/out/{operator.name}", exist_ok=True)
    query = operator.query(stream("rows"), stream("right"))
    writer = query.writeStream.outputMode(operator.mode).foreachBatch(put_out)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoints/{operator.name}")
    while True:
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as failed:
            # On a busy machine: Spark waits ten seconds for a worker, whatever its settings are.
            if "Python worker failed to connect back" in str(failed):
                continue
            traceback.print_exc()
            os._exit(1)  # the others would wait for this query for ever
        return


def change_tables(address: str, checkpoint: str, batch: int) -> None:
    """After every other batch all keys go to one partition, and then back to where their hashes say."""
    with open(f"{checkpoint}/metadata") as file:
        query = json.load(file)["id"]
    with open_tables(address, query) as tables:
        for group in range(MOST_GROUPS):
            tables.write(group, RoutingTable(PARTITIONS - (batch + 1) % 2))


def write(path: str, value: Any) -> None:
    with open(f"{path}.new", "wb") as file:
        pickle.dump(value, file)
    os.rename(f"{path}.new", path)


if __name__ == "__main__":
    main(*sys.argv[1:])
