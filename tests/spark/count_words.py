"""A driver to be killed: counts words until all are counted, and says which batch it begins and has ended.

`python count_words.py FOLDER ADDRESS` reads FOLDER/in and writes what each batch puts out to FOLDER/out.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession

import ckpt.spark


def main(folder: str, address: str) -> None:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
    )
    spark = ckpt.spark.configure(builder, address).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def put_out(batch: DataFrame, number: int) -> None:
        print(f"begins {number}", flush=True)
        rows = {row["word"]: row["count"] for row in batch.collect()}
        with open(f"{folder}/out/{number}.new", "w") as file:
            json.dump(rows, file)
        os.rename(f"{folder}/out/{number}.new", f"{folder}/out/{number}.json")
        print(f"ended {number}", flush=True)

    reader = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
    counts = reader.json(f"{folder}/in").groupBy("word").count()
    writer = counts.writeStream.outputMode("update").foreachBatch(put_out)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
