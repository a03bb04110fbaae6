"""Setting Spark up: what cannot work is one clear error before a query starts, and no secret is shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

import ckpt.spark
from ckpt.cli import main
from ckpt.errors import ConfigError
from ckpt.spark import jar, settings

ADDRESS = "spark.sql.streaming.stateStore.ckpt.address"


class Builder:
    """As much of Spark's session builder as matters here."""

    def __init__(self, **options: str) -> None:
        self._options: dict[str, Any] = {name.replace("_", "."): value for name, value in options.items()}

    def config(self, key: str, value: str) -> Self:
        self._options[key] = value
        return self

    def __getitem__(self, name: str) -> Any:
        return self._options[name]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark 4.3 of which there is nothing but its name, and a provider that was built for it before."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("CKPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "_require_no_session", lambda: None)
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-sql_2.13-4.3.7.jar").touch()
    monkeypatch.setattr(jar, "_compile", lambda _spark, _sources, target: _touched(target))
    return jars


def _touched(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).touch()


def test_one_call_sets_everything(installed: Path) -> None:
    builder = Builder(spark_master="local[2]", spark_jars="/mine.jar")
    assert ckpt.spark.configure(builder, "log:///var/ckpt") is builder
    mine, provider = builder["spark.jars"].split(",")
    assert mine == "/mine.jar"
    assert os.path.basename(provider).startswith("ckpt-spark-4.3.7-")
    assert builder["spark.sql.streaming.stateStore.providerClass"] == "ckpt.spark.CkptStateStoreProvider"
    assert builder["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert builder[ADDRESS] == "log:///var/ckpt"


@pytest.mark.parametrize(
    "address", ["log:///var/ckpt", "file:///var/ckpt", "fsspec+file:///var/ckpt", "memory://"]
)
def test_executors_elsewhere_cannot_reach_a_path(installed: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="executors of yarn run on others"):
        ckpt.spark.configure(Builder(spark_master="yarn"), address)
    shared = ckpt.spark.configure(Builder(spark_master="yarn"), address, reach="everywhere")
    assert shared[ADDRESS] == address


def test_a_secret_stays_out_of_the_settings(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CKPT_SPARK_ADDRESS", raising=False)
    builder = ckpt.spark.configure(Builder(spark_master="local[2]"), "redis://:hunter2@host:6379/0")
    assert builder[ADDRESS] == "env:CKPT_SPARK_ADDRESS"
    assert os.environ["CKPT_SPARK_ADDRESS"] == "redis://:hunter2@host:6379/0"
    assert "hunter2" not in repr(builder._options)
    with pytest.raises(ConfigError, match="env:NAME") as caught:
        ckpt.spark.configure(Builder(spark_master="spark://host:7077"), "redis://:hunter2@host:6379/0")
    assert "hunter2" not in str(caught.value)


def test_an_address_may_be_in_the_environment(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_ADDRESS", raising=False)
    with pytest.raises(ConfigError, match="SHOP_ADDRESS is to hold the address"):
        ckpt.spark.session_settings("env:SHOP_ADDRESS")
    assert ckpt.spark.session_settings("env:SHOP_ADDRESS", master="yarn")[ADDRESS] == "env:SHOP_ADDRESS"


def test_a_running_session_cannot_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running:
        _active_spark_context = object()

    class Pyspark:
        SparkContext = Running

    monkeypatch.setitem(sys.modules, "pyspark", Pyspark)
    with pytest.raises(ConfigError, match="stop\\(\\) it"):
        ckpt.spark.configure(Builder(), "memory://")


def test_the_jar_is_built_once_for_a_version(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ckpt.spark.provider_jar()
    monkeypatch.setattr(jar, "_compile", lambda *_: pytest.fail("it is there already"))
    assert ckpt.spark.provider_jar() == first


@pytest.mark.parametrize("version", ["3.5.6", "4.1.0", "4.4.0"])
def test_other_versions_of_spark_are_refused(installed: Path, version: str) -> None:
    (installed / "spark-sql_2.13-4.3.7.jar").rename(installed / f"spark-sql_2.13-{version}.jar")
    with pytest.raises(ConfigError, match=f"Spark {version} is not supported, but 4.2 and 4.3 are"):
        ckpt.spark.provider_jar()


def test_a_folder_without_spark_is_said_so(installed: Path) -> None:
    (installed / "spark-sql_2.13-4.3.7.jar").unlink()
    with pytest.raises(ConfigError, match="check SPARK_HOME"):
        ckpt.spark.provider_jar()


def test_the_settings_are_printed_as_spark_reads_them(installed: Path) -> None:
    result = CliRunner().invoke(
        main, ["spark", "conf", "log:///var/ckpt", "--master", "local"], prog_name="ckpt"
    )
    assert result.exit_code == 0, result.output
    printed = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert printed == ckpt.spark.session_settings("log:///var/ckpt", master="local")
