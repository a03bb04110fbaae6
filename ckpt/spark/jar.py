"""The provider's jar for the Spark that is installed: from the wheel, or compiled once by Spark's compiler.

A released wheel carries jars for the newest release of each supported line (`make wheel`). For any other
release, and in a checkout, the jar is compiled: pip's pyspark carries a Scala compiler among its jars, so a
Java runtime is all that is needed: no JDK, no sbt, no Maven.

A jar is known by the hash of its sources and the exact version of Spark: what was compiled for one version
must not be loaded by another, not even for 4.3.0 by 4.3.1, because providers override what is not Spark's
public interface.

```
ckpt/spark/jars/ckpt-spark-4.3.0-0123456789abcdef.jar      in a released wheel
$CKPT_CACHE/spark/ckpt-spark-4.3.0-0123456789abcdef.jar    compiled here
```
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass

from ckpt.dev import cache, tools
from ckpt.errors import CkptError, ConfigError

_SOURCES = os.path.join(os.path.dirname(__file__), "jvm")
_PREBUILT = os.path.join(os.path.dirname(__file__), "jars")
_SQL_JAR = re.compile(r"spark-sql_(\d+\.\d+)-(\d+)\.(\d+)\.(.+)\.jar")
LEAST_JAVA = 17
_COMPILE_TIMEOUT_S = 600.0
_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class SparkHome:
    """An installed Spark: its jars, its version, and the line of versions that sources are chosen by."""

    jars: str
    version: str
    line: str


def spark_home() -> SparkHome:
    """The Spark that PySpark starts: SPARK_HOME if set, else pip's pyspark. ConfigError if none fits."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise ConfigError("Spark is not installed; install it with: pip install 'ckpt[spark]'")
        home = os.path.dirname(found.origin)
    jars = os.path.join(home, "jars")
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(jars, "spark-sql_*.jar")))
    match = next((m for m in map(_SQL_JAR.fullmatch, names) if m), None)
    if match is None:
        raise ConfigError(f"{home} holds no Spark: jars/spark-sql_*.jar is missing; check SPARK_HOME")
    version, line = f"{match[2]}.{match[3]}.{match[4]}", f"{match[2]}.{match[3]}"
    if line not in supported_lines():
        raise ConfigError(
            f"Spark {version} is not supported, but {' and '.join(supported_lines())} are; "
            "install one with: pip install 'ckpt[spark]'"
        )
    return SparkHome(jars, version, line)


def supported_lines() -> list[str]:
    """The lines of Spark versions that the provider has sources for.

    Examples
    --------
    >>> supported_lines()
    ['4.2', '4.3']
    """
    return sorted(name.removeprefix("spark-") for name in os.listdir(_SOURCES) if name.startswith("spark-"))


def provider_jar(*, report: cache.Report = cache.silent) -> str:
    """The path of the provider's jar for the installed Spark; it is compiled first if there is none."""
    spark = spark_home()
    return built_jar("ckpt-spark", _sources(spark.line), spark=spark, report=report)


def built_jar(
    stem: str,
    sources: list[str],
    *,
    spark: SparkHome | None = None,
    report: cache.Report = cache.silent,
) -> str:
    """The path of the jar of these Scala sources for the installed Spark, from the cache or compiled now."""
    spark = spark or spark_home()
    digest = hashlib.sha256()
    for path in sources:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.relpath(path, _SOURCES)}\0{len(content)}\0".encode() + content)
    name = f"{stem}-{spark.version}-{digest.hexdigest()[:16]}.jar"
    prebuilt, path = os.path.join(_PREBUILT, name), cache.folder("spark", name)
    for found in (prebuilt, path):
        if os.path.exists(found):
            return found
    try:
        with cache.locked(name, report=report):
            if not os.path.exists(path):
                report(f"compiling {stem} for Spark {spark.version}")
                _compile(spark, sources, path)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the compiled provider in {os.path.dirname(path)}: {error.strerror or error}; set "
            "CKPT_CACHE to a folder that can be written to"
        ) from error
    return path


def _sources(line: str) -> list[str]:
    """The Scala files of every package, with those of one line of Spark and without those of the others."""
    others = {f"spark-{other}" for other in supported_lines() if other != line}
    found = glob.glob("**/*.scala", root_dir=_SOURCES, recursive=True)
    return [os.path.join(_SOURCES, path) for path in sorted(found) if path.split(os.sep)[0] not in others]


def _compile(spark: SparkHome, sources: list[str], target: str) -> None:
    java = tools.java("Spark", LEAST_JAVA)
    if not glob.glob(os.path.join(glob.escape(spark.jars), "scala-compiler*.jar")):
        raise ConfigError(
            f"{spark.jars} lacks the scala-compiler that Spark comes with, which compiles the provider for "
            f"Spark {spark.version}; use a whole Spark, such as pip's: pip install pyspark=={spark.version}"
        )
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=os.path.dirname(target)) as folder:
        made = os.path.join(folder, "provider.jar")
        # One short run: the quick compiler of the JVM is enough, and scalac wants deep stacks.
        options = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xss8m",
            "-cp",
            os.path.join(spark.jars, "*"),
        ]
        scalac = ["scala.tools.nsc.Main", "-usejavacp", "-deprecation", "-Xlint", "-Werror", "-d", made]
        done = subprocess.run(
            [java, *options, *scalac, *sources],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise JarError(
                f"the provider does not compile for Spark {spark.version} (scalac: {done.returncode}); "
                f"report this with what it said:\n{_tail(done.stdout)}"
            )
        os.rename(made, target)


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[:_SHOWN_LINES])


class JarError(CkptError):
    """The provider could not be compiled: a mistake in ckpt, or a Spark that differs from its release."""
