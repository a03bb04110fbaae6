"""An application of spark-submit, whose JVM runs before `configure` is called, counts like any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'ckpt[spark]'")

import pyspark

from tests.spark.small import ARGUMENTS

APPLICATION = """
import json, sys, time
from pyspark.sql import SparkSession
import ckpt.spark
from ckpt.errors import BackendUnavailableError, ConfigError
from ckpt.sidecar import SidecarClient
from ckpt.sidecar.life import Place

folder = sys.argv[1]
address = f"log://{folder}/state"

def refusal(address, **settings):
    builder = SparkSession.builder
    for name, value in settings.items():
        builder.config(name, value)
    try:
        ckpt.spark.configure(builder, address)
    except ConfigError as error:
        return str(error)

def is_held():
    try:
        with SidecarClient(Place.of(address).socket, timeout_s=5) as client:
            return client.stats()["lifelines"] > 0
    except BackendUnavailableError:
        return False

said = [
    refusal("redis://:hunter2@127.0.0.1:1/0"),
    refusal("redis://127.0.0.1:1/0", **{"spark.master": "yarn"}),
]
SparkSession.builder.getOrCreate()
said.append(refusal(address))
SparkSession.getActiveSession().stop()
spark = ckpt.spark.configure(SparkSession.builder, address).getOrCreate()
deadline = time.monotonic() + 60
while not is_held() and time.monotonic() < deadline:
    time.sleep(0.05)
early = is_held()
words = spark.readStream.schema("word string").json(f"{folder}/in").groupBy("word").count()
rows = []
put_out = lambda batch, _: rows.extend(map(tuple, batch.collect()))
writer = words.writeStream.outputMode("update").foreachBatch(put_out)
query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
with open(f"{folder}/said", "w") as file:
    settings = {name: spark.conf.get(name) for name in ("spark.jars", "spark.sql.extensions")}
    provider = next(iter(query.lastProgress["stateOperators"][0]["customMetrics"]))
    json.dump({"refused": said, "rows": sorted(rows), "provider": provider, "early": early, **settings}, file)
"""


@pytest.mark.spark_core
def test_configure_under_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words.json").write_text('{"word": "be"}\n{"word": "or"}\n{"word": "be"}\n')
    (tmp_path / "shop.py").write_text(APPLICATION)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *ARGUMENTS]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--conf", "spark.sql.extensions=org.apache.spark.sql.NoSuchExtensions"]
    done = subprocess.run(
        [*command, str(tmp_path / "shop.py"), str(tmp_path)],
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads((tmp_path / "said").read_text())
    secret, elsewhere, running = said["refused"]
    assert "Spark's JVM runs already; set the address as an environment variable before it starts" in secret
    assert "hunter2" not in secret
    assert elsewhere is None
    assert "stop() it, then configure" in running
    assert said["early"]  # a sidecar that the session holds, before there is a query
    assert said["rows"] == [["be", 2], ["or", 1]]
    assert said["provider"].startswith("ckpt")
    assert said["spark.sql.extensions"].split(",")[1:] == ["ckpt.spark.CkptExtensions"]
    assert said["spark.jars"].count("ckpt-spark-") == 1
