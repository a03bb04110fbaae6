"""The settings that a session has before ckpt adds its own.

They come from spark-submit, spark-defaults.conf and PYSPARK_SUBMIT_ARGS. Spark takes one value for each
setting, so adding to a list, such as `spark.jars`, needs the list as it is. One of these settings is the
master, which says where executors run.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from ckpt.errors import ConfigError
from ckpt.spark.jar import spark_home

_LINE = re.compile(r"([^\s=:]+)\s*[=:]?\s*(.*)")
_LISTS = ("spark.jars", "spark.sql.extensions")


def existing_settings() -> dict[str, str]:
    """The settings of the JVM that runs, or else of the one that PySpark would start."""
    jvm = running_jvm()
    if jvm is not None:
        from pyspark import SparkConf

        return dict(SparkConf(_jvm=jvm).getAll())
    submitted = dict(_of_submit_arguments())
    if "spark.jars" in submitted:
        raise ConfigError(
            "PYSPARK_SUBMIT_ARGS names jars, and Spark would leave the provider out for them; name them in "
            "spark-defaults.conf or with .config('spark.jars', …) instead"
        )
    return {**dict(_of_defaults_file()), **submitted}


def extended(settings: dict[str, str], existing: dict[str, Any]) -> dict[str, str]:
    """The settings, with jars and extensions added to the lists that exist."""
    whole = dict(settings)
    for name in _LISTS:
        had = [each for each in str(existing.get(name) or "").split(",") if each.strip()]
        whole[name] = ",".join([*(each for each in had if each != settings[name]), settings[name]])
    return whole


def running_jvm() -> Any:
    """Spark's JVM if there is one already: spark-submit's, or that of a session that was stopped; or None."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no other way to its JVM without a session
    return getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_jvm", None)


def take_into_running_jvm(jar: str, provider: str) -> None:
    """Let a JVM that runs already find the provider: its own `spark.jars` are read when it starts."""
    jvm = running_jvm()
    if jvm is None:
        return
    from py4j.protocol import Py4JError

    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(jvm.java.io.File(jar).toURI().toURL())
        loader.loadClass(provider)
    except Py4JError as error:
        raise ConfigError(
            "Spark's JVM runs already and takes no more classes; write the settings to a file with: "
            "ckpt spark conf ADDRESS > ckpt.conf, and start the application with: "
            "spark-submit --properties-file ckpt.conf"
        ) from error


def _of_defaults_file() -> Iterator[tuple[str, str]]:
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.path.dirname(spark_home().jars), "conf")
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return
    for line in lines:
        if (match := _LINE.fullmatch(line)) and line[0] not in "#!":
            yield match[1], match[2]


def _of_submit_arguments() -> Iterator[tuple[str, str]]:
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if option in ("--master", "--jars"):
            yield f"spark.{option.removeprefix('--')}", value
        elif option in ("--conf", "-c"):
            name, _, text = value.partition("=")
            yield name, text
