"""A driver to be killed: queries of every stateful operator, several at once, until all rows are processed.

`python -m tests.spark.every_operator FOLDER ADDRESS FIRST` reads FOLDER/rows and FOLDER/right and writes what
each batch puts out to FOLDER/out/OPERATOR/BATCH, again and whole if the batch is run again. It begins with
operator number FIRST, and says on standard output which batch of which operator it begins and has ended.
"""

from __future__ import annotations

import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import ckpt.spark
from tests.spark.operators import OPERATORS, SCHEMA, Operator

AT_ONCE = 6


def main(folder: str, address: str, first: str) -> None:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        # Spark refuses a checkpoint whose first offsets it was killed in the middle of writing.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    )
    spark = ckpt.spark.configure(builder, address).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    operators = list(OPERATORS.values())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rotated = operators[int(first) :] + operators[: int(first)]
        for done in [pool.submit(run, spark, folder, operator) for operator in rotated]:
            done.result()
    spark.stop()


def run(spark: SparkSession, folder: str, operator: Operator) -> None:
    if operator.by_clock:
        spark = spark.newSession()
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")

    def stream(name: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(f"{folder}/{name}")

    def put_out(batch: DataFrame, number: int) -> None:
        print(f"{operator.name} begins {number}", flush=True)
        rows = batch.collect()
        path = f"{folder}/out/{operator.name}/{number}"
        with open(f"{path}.new", "wb") as file:
            pickle.dump(rows, file)
        os.rename(f"{path}.new", path)
        print(f"{operator.name} ended {number}", flush=True)

    os.makedirs(f"{folder}/out/{operator.name}", exist_ok=True)
    query = operator.query(stream("rows"), stream("right"))
    writer = query.writeStream.outputMode(operator.mode).foreachBatch(put_out)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoints/{operator.name}")
    while True:
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as failed:
            # On a busy machine: Spark waits ten seconds for a worker, whatever its settings are.
            if "Python worker failed to connect back" not in str(failed):
                raise
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
