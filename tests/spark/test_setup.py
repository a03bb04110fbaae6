"""Setting Spark up: what cannot work is one clear error before a query starts, and no secret is shown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

import ckpt.spark
from ckpt.cli import main
from ckpt.errors import ConfigError
from ckpt.spark import existing_settings, jar, settings

pytestmark = pytest.mark.spark_core

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
    for module in (existing_settings, settings):
        monkeypatch.setattr(module, "running_jvm", lambda: None)  # other tests may have left one
    for name in ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_API_MODE", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "check_address", lambda _address, _python: None)
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-sql_2.13-4.3.7.jar").touch()
    monkeypatch.setattr(jar, "_compile", lambda _spark, _sources, target: _touched(target))
    return jars


@pytest.fixture
def compiles(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is really asked for."""
    monkeypatch.setattr(jar, "_compile", _COMPILE)


_COMPILE = jar._compile


def _touched(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).touch()


def test_one_call_sets_everything(installed: Path) -> None:
    builder = Builder(spark_master="local[2]", spark_jars="/mine.jar", spark_sql_extensions="my.Extensions")
    assert ckpt.spark.configure(builder, "log:///var/ckpt") is builder
    mine, provider = builder["spark.jars"].split(",")
    assert mine == "/mine.jar"
    assert os.path.basename(provider).startswith("ckpt-spark-4.3.7-")
    assert builder["spark.sql.extensions"] == "my.Extensions,ckpt.spark.CkptExtensions"
    assert builder["spark.sql.streaming.stateStore.providerClass"] == "ckpt.spark.CkptStateStoreProvider"
    assert builder["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert builder[ADDRESS] == "log:///var/ckpt"


@pytest.mark.parametrize("address", ["file:///var/ckpt", "fsspec+file:///var/ckpt"])
def test_executors_elsewhere_cannot_reach_a_path(installed: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=r"executors of yarn run on others; .* reach='everywhere'"):
        ckpt.spark.configure(Builder(spark_master="yarn"), address)
    for reach in ("everywhere", "host"):
        shared = ckpt.spark.configure(Builder(spark_master="yarn"), address, reach=reach)
        assert shared[ADDRESS] == address


@pytest.mark.parametrize("address", ["log:///var/ckpt", "memory://"])
@pytest.mark.parametrize("reach", ["auto", "everywhere"])
def test_hosts_do_not_share_what_has_one_writer(
    installed: Path, monkeypatch: pytest.MonkeyPatch, address: str, reach: str
) -> None:
    monkeypatch.setenv("SHOP_ADDRESS", address)
    for told in (address, "env:SHOP_ADDRESS"):
        with pytest.raises(
            ConfigError, match=r"one writer, but .* use a server, .* or fsspec[+]file:///"
        ) as caught:
            ckpt.spark.configure(Builder(spark_master="spark://host:7077"), told, reach=reach)
        assert "reach='host' if all executors run on one host" in str(caught.value)
        builder = ckpt.spark.configure(Builder(spark_master="spark://host:7077"), told, reach="host")
        assert builder[ADDRESS] == told
        assert builder["spark.sql.streaming.stateStore.ckpt.python"] == sys.executable


@pytest.fixture
def defaults(installed: Path) -> Path:
    """The settings that an administrator has written down."""
    path = installed.parent / "conf" / "spark-defaults.conf"
    path.parent.mkdir()
    path.write_text(
        "# of the house\n\nspark.jars   /house.jar\nspark.sql.extensions=house.Extensions\n"
        "spark.master: spark://house:7077\n"
    )
    return path


def test_what_spark_defaults_name_stays(defaults: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ckpt.spark.configure(Builder(), "file:///var/ckpt", reach="everywhere")
    assert builder["spark.jars"].split(",")[0] == "/house.jar"
    assert builder["spark.sql.extensions"] == "house.Extensions,ckpt.spark.CkptExtensions"
    own = Builder(spark_sql_extensions="my.Extensions", spark_master="local[2]")
    ckpt.spark.configure(own, "log:///var/ckpt")  # of two values of one setting Spark takes the application's
    assert own["spark.sql.extensions"] == "my.Extensions,ckpt.spark.CkptExtensions"
    printed = CliRunner().invoke(main, ["spark", "conf", "redis://host:6379/0"], prog_name="ckpt").stdout
    assert "house.Extensions,ckpt.spark.CkptExtensions" in printed
    monkeypatch.setenv("SPARK_CONF_DIR", str(defaults.parent))
    defaults.write_text(printed)  # and once more changes nothing
    again = CliRunner().invoke(main, ["spark", "conf", "redis://host:6379/0", "--python", "python3"])
    assert "house.Extensions,ckpt.spark.CkptExtensions\n" in again.stdout
    assert again.stdout.count("/house.jar,") == 1


def test_a_master_is_found_where_spark_finds_it(defaults: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="executors of spark://house:7077"):
        ckpt.spark.configure(Builder(), "log:///var/ckpt")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn --conf=spark.sql.extensions=a.B pyspark-shell")
    with pytest.raises(ConfigError, match="executors of yarn"):
        ckpt.spark.configure(Builder(), "log:///var/ckpt")
    builder = ckpt.spark.configure(Builder(spark_master="local"), "log:///var/ckpt")
    assert builder["spark.sql.extensions"] == "a.B,ckpt.spark.CkptExtensions"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars /a.jar pyspark-shell")
    with pytest.raises(ConfigError, match="PYSPARK_SUBMIT_ARGS names jars"):
        ckpt.spark.configure(Builder(), "log:///var/ckpt")


def test_a_setting_that_nobody_reads_is_refused(installed: Path) -> None:
    misspelt = {"spark.sql.streaming.stateStore.ckpt.recovry": "lazy"}
    builder = Builder()
    builder._options |= misspelt
    with pytest.raises(ConfigError, match=r"ckpt.recovry; did you mean 'recovery'"):
        ckpt.spark.configure(builder, "log:///var/ckpt")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("recovery", "lazy", "lasy"),
        ("memory", "512m", "lots"),
        ("memory", "4G", "OFF"),
        ("timeout", "1500ms", "soon"),
        ("timeout", "2min", "500ms"),
        ("metrics", "127.0.0.1:9090", "9090"),
        ("metrics", "[::1]:65535", "127.0.0.1:65536"),
        ("sidecar.token", "env:SHOP_TOKEN", "hunter2"),
    ],
)
def test_a_value_that_nobody_understands_is_refused(installed: Path, name: str, good: str, bad: str) -> None:
    setting = f"{ADDRESS.removesuffix('address')}{name}"
    ckpt.spark.configure(Builder().config(setting, good), "log:///var/ckpt")
    with pytest.raises(ConfigError, match=f"ckpt.{name} is ") as caught:
        ckpt.spark.configure(Builder().config(setting, bad), "log:///var/ckpt")
    assert "hunter2" not in str(caught.value)


def test_a_reach_that_is_none(installed: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'everywhere'"):
        ckpt.spark.configure(Builder(spark_master="yarn"), "file:///var/ckpt", reach="everywere")


def test_the_provider_reads_what_may_be_set() -> None:
    scala = Path(jar._SOURCES, "wire", "Settings.scala").read_text()
    assert set(re.findall(r'Prefix \+ "([\w.]+)"', scala)) == set(settings._KNOWN)


@pytest.mark.parametrize("how", ["builder", "environment", "mode"])
def test_a_session_of_spark_connect_is_configured_at_its_server(
    installed: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    builder = Builder(spark_remote="sc://host") if how == "builder" else Builder()
    if how == "environment":
        monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    elif how == "mode":
        monkeypatch.setenv("SPARK_API_MODE", "connect")
    with pytest.raises(ConfigError, match=r"Spark Connect .* start-connect-server.sh --properties-file"):
        ckpt.spark.configure(builder, "log:///var/ckpt")


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


def test_no_spark_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = CliRunner().invoke(main, ["spark", "conf", "log:///var/ckpt"], prog_name="ckpt")
    assert result.exit_code == 2
    assert result.stderr == "ckpt: Spark is not installed; install it with: pip install 'ckpt[spark]'\n"


def test_a_cache_that_cannot_be_written_to_is_said_so(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(ConfigError, match=f"provider in {tmp_path}/cache/spark: .*; set CKPT_CACHE"):
        jar.provider_jar()


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (["log:///var/ckpt"], True),
        (["log:///var/ckpt", "--master", "local[2]"], False),
        (["log:///var/ckpt", "--reach", "host"], False),
        (["redis://host:6379/0"], False),
    ],
)
def test_settings_for_this_machine_are_called_so(installed: Path, options: list[str], warned: bool) -> None:
    """Whoever takes them to a cluster would find the state of a lost executor gone."""
    result = CliRunner().invoke(main, ["spark", "conf", *options], prog_name="ckpt")
    assert result.exit_code == 0
    assert ("name their --master" in result.stderr) is warned


def test_a_spark_without_its_compiler_is_said_so(installed: Path, compiles: None) -> None:
    with pytest.raises(ConfigError, match=r"lacks the scala-compiler .* pip install pyspark==4\.3\.7"):
        ckpt.spark.provider_jar()


def test_a_jar_of_the_wheel_is_for_one_release_and_one_source(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = ckpt.spark.provider_jar()
    monkeypatch.setattr(jar, "_PREBUILT", str(tmp_path / "jars"))
    prebuilt = tmp_path / "jars" / os.path.basename(compiled)
    _touched(str(prebuilt))
    assert ckpt.spark.provider_jar() == str(prebuilt)
    prebuilt.rename(prebuilt.with_name(prebuilt.name.replace("4.3.7", "4.3.6")))
    assert ckpt.spark.provider_jar() == compiled
    prebuilt.with_name("ckpt-spark-4.3.7-0123456789abcdef.jar").touch()
    assert ckpt.spark.provider_jar() == compiled


def java_of(folder: Path, version: str) -> Path:
    """A Java that is nothing but what says its version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("found", ["11.0.2", None])
def test_the_java_that_spark_would_start_has_to_fit(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    fitting = java_of(tmp_path / "system" / "java-21", "21.0.1")
    monkeypatch.setattr("ckpt.dev.tools.SYSTEM_JAVAS", f"{tmp_path}/system/*/bin/java")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if found is not None:
        monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "old", found)))
    says = "is Java 11" if found else "there is none"
    with pytest.raises(ConfigError, match=f"needs 17 or later, but .*{says}; set JAVA_HOME={fitting}"):
        ckpt.spark.configure(Builder(), "log:///var/ckpt")
    monkeypatch.setenv("JAVA_HOME", str(fitting))
    ckpt.spark.configure(Builder(), "log:///var/ckpt")


def test_no_java_is_named_with_the_command_that_installs_it(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt.dev.tools.SYSTEM_JAVAS", f"{tmp_path}/none/*")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or later; install it: sudo apt-get"):
        ckpt.spark.configure(Builder(), "log:///var/ckpt")


def test_several_executors_on_this_machine_reach_a_path(installed: Path) -> None:
    builder = ckpt.spark.configure(Builder(spark_master="local-cluster[2,1,1024]"), "log:///var/ckpt")
    assert builder[ADDRESS] == "log:///var/ckpt"
    assert builder["spark.sql.streaming.stateStore.ckpt.python"] == sys.executable


def test_an_unknown_scheme_is_refused(installed: Path) -> None:
    with pytest.raises(ConfigError, match="no backend for scheme 'rediss2'; did you mean"):
        ckpt.spark.configure(Builder(), "rediss2://host:6379/0")


def test_the_settings_are_printed_as_spark_reads_them(installed: Path) -> None:
    result = CliRunner().invoke(
        main, ["spark", "conf", "log:///var/ckpt", "--master", "local"], prog_name="ckpt"
    )
    assert result.exit_code == 0, result.output
    printed = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert printed == ckpt.spark.session_settings("log:///var/ckpt", master="local")


def test_executors_may_share_a_sidecar_that_runs(installed: Path) -> None:
    sidecar = ckpt.spark.RunningSidecar("db1:7077", token="env:SHOP_TOKEN", ca="/etc/ca.pem")
    builder = ckpt.spark.configure(Builder(spark_master="yarn"), "log:///var/ckpt", sidecar=sidecar)
    assert {
        name: builder[f"{ADDRESS.removesuffix('address')}{name}"] for name in ("sidecar", "sidecar.ca")
    } == {
        "sidecar": "db1:7077",
        "sidecar.ca": "/etc/ca.pem",
    }
    options = ["--master", "yarn", "--sidecar", "db1:7077", "--sidecar-token", "env:SHOP_TOKEN"]
    result = CliRunner().invoke(main, ["spark", "conf", "log:///var/ckpt", *options], prog_name="ckpt")
    assert result.exit_code == 0, result.output
    printed = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert printed[f"{ADDRESS.removesuffix('address')}sidecar.token"] == "env:SHOP_TOKEN"


@pytest.mark.parametrize(
    ("name", "token"), [("db1", "env:T"), ("db1:65536", "env:T"), ("db1:7077", "hunter2")]
)
def test_a_sidecar_has_a_port_and_no_token_in_settings(name: str, token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ckpt.spark.RunningSidecar(name, token=token)
    assert "hunter2" not in str(caught.value)


def test_a_path_is_no_address_and_the_error_says_so(installed: Path) -> None:
    for prepare in (lambda address: ckpt.spark.configure(Builder(), address), ckpt.spark.session_settings):
        with pytest.raises(ConfigError, match=r"/var/ckpt'\) is not an address; write scheme://location"):
            prepare(Path("/var/ckpt"))


def test_files_may_be_named_by_paths(installed: Path) -> None:
    sidecar = ckpt.spark.RunningSidecar("db1:7077", ca=Path("/etc/ca.pem"))
    told = ckpt.spark.session_settings("log:///var/ckpt", python=Path("/opt/python"), sidecar=sidecar)
    assert told["spark.sql.streaming.stateStore.ckpt.python"] == "/opt/python"
    assert told["spark.sql.streaming.stateStore.ckpt.sidecar.ca"] == "/etc/ca.pem"
