"""The state of a checkpoint changes its provider, and the query goes on with its next batch.

`Move` copies the state of the last committed batch, reads it back, and only then says so in the checkpoint.
Until that last step, and if it never comes, the query runs on as before; nothing of the old state is removed.
The work is done by Spark's own interfaces in the JVM, so a checkpoint may be wherever Spark can read it.
"""

from __future__ import annotations

import enum
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpt.errors import CkptError, ConfigError
from ckpt.spark.settings import configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_MS = 100
_REFUSED = "ckpt.spark.MovingRefused"
_OWN_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Keeper(enum.StrEnum):
    """The provider that the state of a query is with."""

    CKPT = "ckpt"
    DEFAULT = "default"
    ROCKSDB = "rocksdb"


@dataclass(frozen=True, slots=True)
class StoresToMove:
    """The stores of one name that an operator has, one for each partition."""

    operator: int
    name: str
    store: str
    partitions: int
    families: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What is moved: the state after `batch`, the last that was committed."""

    checkpoint: str
    batch: int
    planned: int | None
    """The batch that was begun and not committed; it is run again, with the same offsets."""
    source: Keeper
    target: Keeper
    stores: tuple[StoresToMove, ...]

    @property
    def total_stores(self) -> int:
        return sum(each.partitions for each in self.stores)


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How much is copied and read back. A list counts with each of its values."""

    stores: int
    rows: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved, and where the checkpoint's files are kept as they were before."""

    stores: int
    rows: int
    kept: tuple[str, ...]


class MoveError(CkptError):
    """State could not be copied; the query can go on as before."""


class Move:
    """A checkpoint that can change its provider; ConfigError says what stands in the way.

    `spark` is a session that `ckpt.spark.configure` has prepared with the store that state comes from or
    goes to. The query must not be running.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, target: Keeper) -> None:
        # Python has no other way to classes of the JVM.
        jvm: Any = spark._jvm  # noqa: SLF001
        session: Any = spark._jsparkSession  # noqa: SLF001
        with _errors_of_java():
            self._java = jvm.ckpt.spark.Moving(session, checkpoint, target.value)
            told = json.loads(self._java.plan())
        stores = tuple(
            StoresToMove(**{**each, "families": tuple(each["families"])}) for each in told["stores"]
        )
        self.plan = MovePlan(
            checkpoint=told["checkpoint"],
            batch=told["batch"],
            planned=told["planned"],
            source=Keeper(told["source"]),
            target=Keeper(told["target"]),
            stores=stores,
        )

    def run(self, on_progress: Callable[[MoveProgress], None] = lambda _: None) -> Moved:
        """Copy, read back, and switch. The last call of `on_progress` is before the switch."""
        with _errors_of_java():
            self._java.start()
            try:
                while not self._java.isDone(_POLL_MS):
                    on_progress(self._progress())
                done = self._progress()
                on_progress(done)
                kept = tuple(self._java.switch())
            finally:
                self._java.close()
        return Moved(done.stores, done.rows, kept)

    def _progress(self) -> MoveProgress:
        return MoveProgress(self._java.copiedStores(), self._java.copiedRows())


@contextmanager
def moving_session(address: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of this machine for moves from and to the store at `address`, with more settings of Spark.

    It listens on the loopback device only, and what Spark says while it starts is shown only if it does not.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("ckpt").master(f"local[{os.cpu_count() or 1}]")
    for name, value in {**_OWN_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    builder = configure(builder, address)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_into(said.fileno()):
                spark = builder.getOrCreate()
        except PySparkException as error:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise ConfigError(f"Spark does not start, and said: {last or error}") from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_into(file: int) -> Iterator[None]:
    """For processes that are started meanwhile: they keep it."""
    sys.stderr.flush()
    shown = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)


@contextmanager
def _errors_of_java() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        message = str(java.getMessage() or java)
        refused = java.getClass().getName() == _REFUSED
        raise (ConfigError if refused else MoveError)(message) from error
    except PySparkException as error:
        # What Spark itself throws comes as its own exception, with its whole story behind the first line.
        raise MoveError(str(error).partition("\n")[0]) from error
