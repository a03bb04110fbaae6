"""Settings that make a Spark of the tests start and plan sooner; what they switch off is in no test's focus.

The proof (`make prove`) runs on Spark as it comes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.effort import PROVING

JAVA_OPTIONS = "" if PROVING else "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of every JVM: one that lives for a minute compiles more than it gains."""

_SOONER = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # Plans that run over a few rows are interpreted; stores get the same rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Streaming queries do without it.
    "spark.sql.adaptive.enabled": "false",
}

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    # On a busy machine, 15 seconds are too short.
    "spark.python.authenticate.socketTimeout": "120s",
    **({} if PROVING else _SOONER),
}
"""Of every session of the tests, in this process or in another."""

ARGUMENTS = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
"""The same for a driver or for `spark-submit`."""

_PATHS = [] if PROVING else [str(Path(__file__).with_name("workers"))]
ENVIRONMENT = {
    # Without it, workers are whatever `python3` of the PATH is.
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join([*_PATHS, *filter(None, [os.environ.get("PYTHONPATH")])]),
}
"""Of every driver, which hands it on to its Python workers."""
